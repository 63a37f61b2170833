"""What a format of tables answers to the ingest. No other code asks which format a table has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pykafka_wire.ingest.settings.model import Settings, Table
    from pykafka_wire.ingest.tables.files_table import FilesTable
    from pykafka_wire.ingest.tables.log import ReadLog
    from pykafka_wire.ingest.tables.topic_table import TopicTable
    from pykafka_wire.ingest.tables.upkeep import Upkeep


class NeededLibrary(NamedTuple):
    """A library that an ingest needs.

    Attributes:
        extra: the extra of this package that brings it.
        what_for: in words.
        is_for_plan: whether a plan needs it, too.
        instead: what a user can do without it, in words; empty for nothing.
    """

    module: str
    extra: str
    what_for: str
    is_for_plan: bool = False
    instead: str = ""


@dataclass(frozen=True, slots=True)
class SparkAlone:
    """Spark alone can commit to a table, for a ``reason`` in words."""

    reason: str


class TableFormat(Protocol):
    """One format; what needs a library of the format's loads it when it is called.

    Attributes:
        reader: the library, beside Spark, that reads the tables.
    """

    reader: str

    def needed_libraries(self, settings: Settings) -> Iterator[NeededLibrary]:
        """Yield the libraries that tables of these settings need; loads neither them nor PySpark."""

    def open_table(self, session: SparkSession, settings: Settings, name: str) -> TopicTable:
        """Return the table of this name, which may not exist."""

    def spark_reason(self, settings: Settings, table: Table) -> str | None:
        """Return why Spark writes the files of a table of these settings; None if tasks of this package do."""

    def open_files(
        self, session: SparkSession, settings: Settings, table: Table, target: TopicTable, name: str
    ) -> FilesTable | SparkAlone:
        """Return the table ``target`` as files are committed to it, without the JVM, if that is possible."""

    def open_log(self, session: SparkSession, settings: Settings, name: str) -> ReadLog:
        """Return what the table of this name says of its commits."""

    def open_upkeep(self, settings: Settings, table: Table, name: str) -> Upkeep:
        """Return what looks after the table of this name."""

    def stored_properties(self, settings: Settings, name: str) -> dict[str, str] | None:
        """Return the properties of the table of this name, looked up without Spark; None where there is no table, or where that
        is not known without Spark."""

    def lost_readers(self, settings: Settings, name: str, table: Table, columns: StructType) -> list[str]:
        """Return a sentence for each loss of other readers once the table of this name takes columns; looked up
        without Spark, and empty where that is not known without Spark."""

    def datasets(self, settings: Settings) -> dict[str, Callable[[], Any]] | None:
        """Return what opens each table as a dataset of pyarrow's, by name, without Spark; None where that is not known without
        Spark."""

    def missing_place(self, session: SparkSession, settings: Settings) -> str | None:
        """Make the place of the tables, or return what a user has to make first; None if nothing is missing."""

    def merge_mistake(self, session: SparkSession, settings: Settings) -> str | None:
        """Return why the session cannot merge into tables of these settings; None if it can, or need not."""

    def queries(self, settings: Settings, name: str) -> Mapping[str, str]:
        """Return how to query the table of this name, by the program."""

    def has_views(self, settings: Settings) -> bool:
        """Return whether Spark sees the tables by their names as views alone."""
