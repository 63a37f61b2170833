"""A table to which files are committed that were written without Spark."""

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
    """The table is no longer the one that files were written for; no commit was begun."""


@contextmanager
def discarding(written: Written, folder: Folder) -> Iterator[None]:
    """Delete the files if what commits them within raises before it has begun a commit."""
    try:
        yield
    except (AlreadyLandedError, TableChangedError) as error:
        if not (isinstance(error, AlreadyLandedError) and error.is_begun):
            discard(written, folder)
        raise


class KnownTable(Protocol):
    """What a read has to know of the table that it is for."""

    @property
    def schema(self) -> StructType: ...

    def properties(self) -> dict[str, str]: ...

    def topic_columns(self) -> list[StructField]:
        """Return the columns that are the topic's, and none that a user has added."""


class FilesTable(KnownTable, Protocol):
    """A table to which files are committed; not for several threads at once."""

    identifier: str
    rewritten_by: str | None

    @property
    def exists(self) -> bool: ...

    def landed(self) -> Landed | None:
        """Return as :meth:`TopicTable.landed`."""

    def is_recorded(self, landed: Landed) -> bool:
        """Return as :meth:`TopicTable.is_recorded`."""

    @property
    def folder(self) -> Folder:
        """Return where tasks write files."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return pyarrow's schema of the table."""

    def unreachable(self) -> str | None:
        """Return why this process cannot reach the table's folder; None if it can."""

    def refresh(self) -> None:
        """Look at what was committed since."""

    def reason_against(self) -> str | None:
        """Return why files cannot be committed to the table as it is; None if they can."""

    def create_of(self, schema: pa.Schema, table: Table, query: str, initial_position: Landed | None) -> None:
        """Make the table without rows, of pyarrow's schema, with the topic that it holds and the offsets that it begins at."""

    def layout(self, schema: pa.Schema, table: Table) -> FileLayout:
        """Return how files of rows of pyarrow's ``schema`` are written."""

    def append_files(self, written: Written, layout: FileLayout, landed: Landed) -> None:
        """Make files rows of the table, and ``landed`` its position, by one commit.

        Raises:
            AlreadyLandedError: the table has another commit of this number, or does not end where this one begins.
            TableChangedError: the table is not the one that the layout is for.
        """
