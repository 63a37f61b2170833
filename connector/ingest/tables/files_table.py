"""A table to which files are committed without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from pykafka_wire.ingest.files.parquet import FileLayout
from pykafka_wire.ingest.files.tasks import (
    Folder,
    Written,
    discard,
)
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.tables.position import AlreadyLandedError, Landed


class TableChangedError(Exception):
    """The table has changed since its files were laid out; no commit was begun."""


@contextmanager
def discarding(written: Written, folder: Folder) -> Iterator[None]:
    """Delete the files if the ``with`` block raises an error before a commit was begun."""
    try:
        yield
    except (AlreadyLandedError, TableChangedError) as error:
        if not (isinstance(error, AlreadyLandedError) and error.is_begun):
            discard(written, folder)
        raise


class KnownTable(Protocol):
    """The facts that a read needs about the table."""

    @property
    def schema(self) -> StructType: ...

    def properties(self) -> dict[str, str]: ...

    def topic_columns(self) -> list[StructField]:
        """Return the columns that come from the topic, without columns that a user has added."""


class FilesTable(KnownTable, Protocol):
    """A table to which files are committed. Not thread-safe.

    Attributes:
        needs_session: whether the object has the Spark session of one attempt, so that a later attempt may not use the object.
    """

    identifier: str
    needs_session: bool
    rewritten_by: str | None

    @property
    def exists(self) -> bool: ...

    def landed(self) -> Landed | None:
        """Return the same as :meth:`TopicTable.landed`."""

    def is_recorded(self, landed: Landed) -> bool:
        """Return the same as :meth:`TopicTable.is_recorded`."""

    @property
    def folder(self) -> Folder:
        """Return the folder in which tasks write files."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the table's schema as a pyarrow schema."""

    def unreachable(self) -> str | None:
        """Return why this process cannot access the table's folder; None if it can."""

    def refresh(self) -> None:
        """Read the commits after the last refresh."""

    @property
    def is_same(self) -> bool:
        """Return whether the table is still the one for which this object has laid out files: it was neither dropped nor created
        again."""

    def spark_reason(self) -> str | None:
        """Return why files cannot be committed to the table in its present state; None if they can."""

    def create_of(self, schema: pa.Schema, table: Table, query: str, initial_position: Landed | None) -> None:
        """Create the table without rows, from a pyarrow schema, and store its topic and the offsets at which it begins."""

    def layout(self, schema: pa.Schema, table: Table) -> FileLayout:
        """Return the layout of files for rows with the pyarrow ``schema``."""

    def append_files(self, written: Written, layout: FileLayout, landed: Landed) -> None:
        """Add files to the table and set its position to ``landed``, in one commit.

        Raises:
            AlreadyLandedError: the table has another commit with this sequence number, or does not end where this commit begins.
            TableChangedError: the table has changed since the layout was made.
        """
