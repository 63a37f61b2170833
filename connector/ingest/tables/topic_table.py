"""A table of a topic, whatever its format: the interface that the ingest uses, and the table's owner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from pykafka_wire.checkpoints.stored_tables import TOPIC_ID_PROPERTY, TOPIC_PROPERTY
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.tables.definition import CONNECT_TYPES_PROPERTY, connect_types, definition_properties
from pykafka_wire.ingest.tables.position import (
    POSITION_PROPERTY,
    Landed,
    sorted_offsets,
)

#: The property of every table with its query.
QUERY_PROPERTY: Final = "pykafka-wire.query"
#: The property with the offsets at which the table begins, as JSON by partition; a missing partition begins at 0.
START_PROPERTY: Final = "pykafka-wire.start"
#: The property with the names of the columns that come from the topic, in lower case, as a JSON list; only in modes that merge.
COLUMNS_PROPERTY: Final = "pykafka-wire.columns"
#: The property with the time of the last cleanup of unneeded files, in seconds since the epoch.
VACUUMED_PROPERTY: Final = "pykafka-wire.vacuumed"
#: The shortest time between two cleanups, in seconds.
VACUUM_EVERY_S: Final = 24 * 3600.0
#: The view of the changes that a MERGE applies.
_CHANGES: Final = "pykafka_wire_changes"


def start_of(text: str) -> dict[int, int]:
    """Return the offsets in :data:`START_PROPERTY`."""
    return {int(partition): int(offset) for partition, offset in json.loads(text).items()}


class TopicTable(Protocol):
    """A table of an ingest, whatever its format.

    Attributes:
        rewritten_by: the commit of another program that replaced rows after the ingest's newest commit, set by :meth:`landed`;
            None without one.
        records_commits: whether each commit records its position outside the table's history.
    """

    identifier: str
    rewritten_by: str | None
    records_commits: bool

    @property
    def is_folder(self) -> bool:
        """Return whether the table is a folder, which becomes a table with its first rows."""

    @property
    def exists(self) -> bool: ...

    @property
    def schema(self) -> StructType: ...

    @property
    def id(self) -> str:
        """Return the id of the table. A table that is created again under the same name has another id."""

    @property
    def version(self) -> int:
        """Return the version of the newest commit of any program."""

    @property
    def rows(self) -> DataFrame: ...

    def places(self, topic: str) -> DataFrame:
        """Return ``partition`` and ``offset`` of the table's rows of a topic: an adopted table may have rows of others."""

    def pinned(self) -> tuple[DataFrame, int | None]:
        """Return the table's rows at its current version, and the version."""

    def properties(self) -> dict[str, str]: ...

    def set_properties(self, table: Table, first: Landed) -> None:
        """Store the table's topic, and the offsets at which the table begins: the start of its first commit."""

    def landed(self) -> Landed | None:
        """Return the position in the newest commit of an ingest, or the recorded position; None if the table has neither."""

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the newest commit is also stored outside the table's history."""

    def record(self, landed: Landed) -> None:
        """Store the position of the newest commit outside the table's history."""

    def history(self, version: int | None = None) -> Iterator[Landed]:
        """Return the position in each commit of an ingest, newest first, from a version on, by default the newest."""

    def earlier(self) -> Iterator[tuple[Landed, DataFrame | None]]:
        """Return the position in each recent commit of an ingest, newest first, with the table's rows before the commit, if any."""

    def newest_number(self, application: str) -> int:
        """Return the highest sequence number of a commit to the table; 0 if there was none, or if that is unknown.

        Args:
            application: as in :class:`Landed`; empty for commits of the topic itself.
        """

    def check_follows(self, landed: Landed) -> None:
        """Raise AlreadyLandedError if the table, read afresh, does not end where a commit begins."""

    def create(self, columns: str, table: Table, query: str, initial_position: Landed | None) -> None:
        """Create the table without rows, from columns as DDL, and store its topic and the offsets at which it begins."""

    def append(self, rows: DataFrame, landed: Landed | None) -> None:
        """Append rows, and add new columns; ``landed`` is None for rows that do not move the table's position.

        Raises:
            AlreadyLandedError: the table, read afresh, lacks this commit, since another commit came first; nothing was added.
            ColumnConflictError: the table cannot store a column of the rows; nothing was added.
        """

    def append_first(self, rows: DataFrame, table: Table, landed: Landed) -> None:
        """Make a folder a table by writing its first rows."""

    def alter(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""

    def topic_columns(self) -> list[StructField]:
        """Return the columns that come from the topic, without columns that a user has added."""

    def add_columns(self, rows: DataFrame) -> None:
        """Add the columns and wider types of ``rows`` to the table. Writes nothing if the table has them.

        Afterwards the table's types hold every value of the rows.

        Raises:
            ColumnConflictError: the table cannot store a column of the rows; no type was changed.
        """

    def merge(self, changes: DataFrame, clauses: str, landed: Landed | None) -> None:
        """Run one MERGE of ``changes`` (alias ``new``) into the table (alias ``old``); ``landed`` is as in :meth:`append`."""

    def delete(self, condition: str, places: DataFrame | None) -> None:
        """Delete the rows that satisfy an SQL condition; with places, only those at the given ``partition`` and ``offset``."""


def made_properties(table: Table) -> dict[str, str]:
    """Return the properties of a new table that store its types and its definition."""
    types = connect_types(table.reading, None, is_new=True)
    return ({} if types == "false" else {CONNECT_TYPES_PROPERTY: types}) | definition_properties(table)


def check_layout(table: Table, nested: Iterable[str]) -> None:
    """Check the partition and cluster columns of a new table.

    Args:
        nested: columns that are structs, lists, maps or variants, which cannot have one value for a whole file.

    Raises:
        IngestError: a partition or cluster column is nested, so that nobody could read the table.
    """
    others = {name.lower() for name in nested}
    for setting, names in (("partition_by", table.partition_by), ("cluster_by", table.cluster_by)):
        if wrong := [name for name in names if name.lower() in others]:
            raise IngestError(
                f"{setting} of the table of topic {table.topic} names {', '.join(wrong)}, whose values are structs, lists, maps or "
                "variants: name columns with single values. select can make a field a column "
                '(select = ["*", "place.city AS city"]).'
            )


def nested_columns(rows: StructType) -> list[str]:
    """Return the names of columns that are structs, lists, maps or variants."""
    return [field.name for field in rows if isinstance(field.dataType, (StructType, ArrayType, MapType, VariantType))]


def partition_columns(table: Table, columns: Sequence[str], nested: Iterable[str] = ()) -> list[str]:
    """Return the partition columns of a new table, in the spelling of its rows; names ignore case.

    Args:
        nested: as in :func:`check_layout`.

    Raises:
        IngestError: the rows have no such column, or the column is nested.
    """
    check_layout(table, nested)
    by_name = {name.lower(): name for name in columns}
    if missing := [name for name in table.partition_by if name.lower() not in by_name]:
        raise IngestError(
            f"partition_by of the table of topic {table.topic} names {', '.join(missing)}, but its rows have the columns "
            f"{', '.join(columns)}: change partition_by in [[table]]."
        )
    return [by_name[name.lower()] for name in table.partition_by]


def topic_columns_of(schema: StructType, properties: Mapping[str, str]) -> list[StructField]:
    """Return the columns of a table that come from the topic, by the table's properties; all columns without that property."""
    names = properties.get(COLUMNS_PROPERTY)
    return [column for column in schema if names is None or column.name.lower() in json.loads(names)]


def merge_into(identifier: str, changes: DataFrame, clauses: str) -> None:
    """Run one MERGE of ``changes`` (alias ``new``) into a table (alias ``old``) of the same session."""
    changes.createOrReplaceTempView(_CHANGES)
    changes.sparkSession.sql(f"MERGE INTO {identifier} AS old USING {_CHANGES} AS new {clauses}")


def owner_properties(first: Landed) -> dict[str, str]:
    """Return the properties that store the owner of a table, and where it begins: the start of ``first``."""
    topic_id = {TOPIC_ID_PROPERTY: first.topic_id} if first.topic_id else {}
    start = json.dumps(sorted_offsets(first.start))
    return {QUERY_PROPERTY: first.query, TOPIC_PROPERTY: first.topic, START_PROPERTY: start} | topic_id


def start_position(initial_position: Landed) -> dict[str, str]:
    """Return the property with the position of a table without rows, valid until the first commit is recorded."""
    return {POSITION_PROPERTY: initial_position.to_json()}


class OwnedTable(Protocol):
    """The part of a table that shows its owner."""

    identifier: str

    def properties(self) -> dict[str, str]: ...


def check_owner(table: OwnedTable, query: str, topic: str | None) -> None:
    """Raise IngestError if another ingest or another program writes to the table."""
    properties = table.properties()
    owner, owned_topic = properties.get(QUERY_PROPERTY), properties.get(TOPIC_PROPERTY)
    if owner is None:
        raise IngestError(
            f"the table {table.identifier} exists, but no ingest has created it: drop it, or use another name (name in [[table]], "
            "or rejects)."
        )
    if owner != query:
        raise IngestError(
            f"the table {table.identifier} belongs to another ingest, whose query has the id {owner} (this checkpoint's query: "
            f"{query}): use that ingest's checkpoint, or other tables."
        )
    if owned_topic not in (None, topic):
        raise IngestError(
            f"the table {table.identifier} already holds topic {owned_topic}, so {topic} cannot use it: give one of the topics "
            "another name in [[table]]."
        )


def is_within(inner: DataType, outer: DataType) -> bool:
    """Return whether a table of the type ``outer`` can store rows of the type ``inner`` unchanged; names ignore case."""
    if isinstance(inner, StructType) and isinstance(outer, StructType):
        known = {column.name.lower(): column.dataType for column in outer}
        return all(
            column.name.lower() in known and is_within(column.dataType, known[column.name.lower()]) for column in inner
        )
    if isinstance(inner, ArrayType) and isinstance(outer, ArrayType):
        return is_within(inner.elementType, outer.elementType)
    if isinstance(inner, MapType) and isinstance(outer, MapType):
        return is_within(inner.keyType, outer.keyType) and is_within(inner.valueType, outer.valueType)
    return bool(inner == outer)
