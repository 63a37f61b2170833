"""The interface of a table format. No other code asks which format a table has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pykafka_wire.ingest.settings.model import Settings, Table
    from pykafka_wire.ingest.tables.files_table import FilesTable
    from pykafka_wire.ingest.tables.log import ReadLog
    from pykafka_wire.ingest.tables.maintenance import TableMaintenance
    from pykafka_wire.ingest.tables.position import Landed
    from pykafka_wire.ingest.tables.topic_table import TopicTable


class NeededLibrary(NamedTuple):
    """A library that an ingest needs.

    Attributes:
        extra: the extra of this package that installs the library.
        what_for: the purpose, as text.
        is_for_plan: whether a plan needs the library, too.
        instead: what a user can do without the library, as text; empty for nothing.
    """

    module: str
    extra: str
    what_for: str
    is_for_plan: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True)
class SparkAlone:
    """Only Spark can commit to the table, for the ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableErrors:
    """The errors that the tables of a format raise, by their codes (:func:`~pykafka_wire.ingest.spark.errors.code_of`).

    Attributes:
        conflicts: another program has committed to the table.
        modules: the Python packages that commit to the table: no record causes their errors.
        missing: there is no table.
        permanent: another attempt meets the error again, until somebody changes a setting, a schema, the table or the topic.
        of_values: a constraint of the table fails for a record's values.
        advice: what a user can do, by the codes of errors whose own sentences do not say it.
        quoting: the texts of errors that quote values of a record; two groups have the text before and after the values.
        prefix: the beginning of all codes of the format's own errors; None if they have no common beginning.
    """

    conflicts: frozenset[str]
    modules: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    permanent: frozenset[str] = frozenset()
    of_values: frozenset[str] = frozenset()
    advice: Mapping[str, str] = field(default_factory=dict)
    quoting: tuple[re.Pattern[str], ...] = ()
    prefix: str | None = None

    def is_own(self, code: str) -> bool:
        """Return whether an error is one of the format's own."""
        return self.prefix is not None and code.startswith(self.prefix)


class PlacedTable(NamedTuple):
    """A table that was found by its place.

    Attributes:
        properties: the table's properties; empty if there are none.
        landed: the position in the newest commit of an ingest; None if there is none.
    """

    rows: DataFrame
    properties: Mapping[str, str]
    landed: Landed | None


class TableWithoutSpark(NamedTuple):
    """A table that was opened without Spark.

    Attributes:
        landed: returns the position when the table was opened, as :meth:`TopicTable.landed`.
        rows: returns the current rows, as a pyarrow dataset or table.
    """

    properties: Mapping[str, str]
    landed: Callable[[], Landed | None]
    rows: Callable[[], Any]


class PlacedTables(Protocol):
    """The tables of a format, by their place alone: a path, or a name in Spark's catalog. The settings of their ingest are unknown.

    Attributes:
        trace: what a folder has in which there is a table, as text.
    """

    trace: str

    def has_table(self, place: str) -> bool:
        """Return whether the format reads the table at a place, as far as is known without Spark. A place that only Spark can open
        may have no table."""

    def properties(self, session: SparkSession, place: str) -> Mapping[str, str]:
        """Return the properties of the table at a place; empty if it has none or does not exist."""

    def open(
        self, session: SparkSession, place: str, columns: Sequence[str] | None
    ) -> AbstractContextManager[PlacedTable]:
        """Open the newest version of the table at a place, and close it afterwards.

        Args:
            columns: the top-level columns that are read; None for all.

        Raises:
            OffsetsError: there is no table, it cannot be read, or it does not show its position.
        """

    def opened(self, place: str) -> TableWithoutSpark | None:
        """Return the table at a place, without Spark; None if only Spark knows the place.

        Raises:
            Exception: any error of the libraries that read the table.
        """

    def beside(self, place: str, name: str) -> str:
        """Return the place of the table ``name`` in the same folder, schema or namespace."""


class TableFormat(Protocol):
    """One table format. A method loads the libraries that it needs when it is called.

    Attributes:
        reader: the library besides Spark that reads the tables.
        errors: the errors that the tables raise.
        placed: the tables, by their place alone.
    """

    reader: str
    errors: TableErrors
    placed: PlacedTables

    def needed_libraries(self, settings: Settings) -> Iterator[NeededLibrary]:
        """Yield the libraries that tables with these settings need. Loads neither them nor PySpark."""

    def identifier(self, settings: Settings, name: str) -> str:
        """Return the name in SQL of the table with this name."""

    def prepare_session(self, session: SparkSession) -> None:
        """Set what a session of a landing needs to commit to the tables."""

    def open_table(self, session: SparkSession, settings: Settings, name: str) -> TopicTable:
        """Return the table with this name, which may not exist."""

    def spark_reason(self, settings: Settings, table: Table) -> str | None:
        """Return why Spark writes the files of a table with these settings; None if tasks of this package write them."""

    def open_files(
        self, session: SparkSession, settings: Settings, table: Table, target: TopicTable, name: str
    ) -> FilesTable | SparkAlone:
        """Return the table ``target`` as an object that commits files without the JVM; or the reason why only Spark can commit."""

    def open_log(self, session: SparkSession, settings: Settings, name: str) -> ReadLog:
        """Return the log of the table with this name."""

    def open_maintenance(self, settings: Settings, table: Table, name: str) -> TableMaintenance:
        """Return the maintenance of the table with this name."""

    def opened(self, settings: Settings, name: str) -> TableWithoutSpark | None:
        """Return the table with this name, without Spark; None if there is no table, or if only Spark can open it."""

    def lost_readers(self, settings: Settings, name: str, table: Table, columns: StructType) -> list[str]:
        """Return one sentence for each group of readers that could not read the table with these columns, without Spark; empty if
        only Spark can tell."""

    def check_columns(self, settings: Settings, name: str, columns: StructType) -> None:
        """Check without Spark that an existing table can store rows with these columns; do nothing if only Spark can tell.

        Raises:
            ColumnConflictError: the table cannot get the type of a column.
        """

    def limited_readers(self, settings: Settings, name: str) -> list[str]:
        """Return one sentence for each group of readers that cannot read the existing table, or not all of it, without Spark; empty
        if only Spark can tell."""

    def datasets(self, settings: Settings) -> dict[str, Callable[[], Any]] | None:
        """Return functions that open each table as a pyarrow dataset, by table name, without Spark; None if only Spark can list
        them."""

    def session_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        """Return why the session can make no tables there, and the remedy; None if it can. Creates a missing Iceberg namespace."""

    def catalog_mistake(self, settings: Settings) -> str | None:
        """Return why the catalog of the tables cannot be opened, without Spark; None if it can, or if only Spark can tell."""

    def merges_by_catalog_of_session(self, settings: Settings) -> bool:
        """Return whether a table needs a MERGE that not every session can run: :meth:`merge_mistake` says whether a session can."""

    def merge_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        """Return why the session cannot merge into tables with these settings; None if it can, or if no table needs a MERGE."""

    def folder_mistake(self, folder: Path, query: str | None) -> str | None:
        """Return why a folder of this machine cannot be a table of an ingest, without Spark; None if it can, or if only Spark can
        tell.

        Args:
            query: the id of the ingest's query; None before the first start.
        """

    def queries(self, settings: Settings, name: str) -> Mapping[str, str]:
        """Return example queries of the table with this name, by program."""

    def has_views(self, settings: Settings) -> bool:
        """Return whether Spark finds the tables by name only as views."""
