"""A table that a topic lands in, whatever its format: what the ingest asks of the table, and whose the table is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Table
from pykafka_wire.ingest.sql import sql_text
from pykafka_wire.ingest.tables.definition import CONNECT_TYPES_PROPERTY, connect_types, definition_properties
from pykafka_wire.ingest.tables.position import (
    POSITION_PROPERTY,
    TOPIC_ID_PROPERTY,
    Landed,
    sorted_offsets,
)

#: Properties of every table, beside Delta's own.
TOPIC_PROPERTY: Final = "pykafka-wire.topic"
QUERY_PROPERTY: Final = "pykafka-wire.query"
#: The offsets that a table begins at, as JSON by partition; others begin at 0.
START_PROPERTY: Final = "pykafka-wire.start"
#: The names of the columns that are the topic's, in lower case, as a list in JSON; others are a user's. Of upsert and cdc.
COLUMNS_PROPERTY: Final = "pykafka-wire.columns"
#: When a folder was last rid of files that no version names, in seconds since the epoch.
VACUUMED_PROPERTY: Final = "pykafka-wire.vacuumed"
#: How often that is done, in seconds.
VACUUM_EVERY_S: Final = 24 * 3600.0
#: The view of the changes that a MERGE applies.
_CHANGES: Final = "pykafka_wire_changes"


def start_of(text: str) -> dict[int, int]:
    """Return the offsets in :data:`START_PROPERTY`."""
    return {int(partition): int(offset) for partition, offset in json.loads(text).items()}


class TopicTable(Protocol):
    """What a table is to the ingest, whatever its format.

    Attributes:
        rewritten_by: the commit of another program that replaced rows after the ingest's newest commit, as :meth:`landed` has found
            it; None without one.
        records_commits: whether each commit records its position itself.
    """

    identifier: str
    rewritten_by: str | None
    records_commits: bool

    @property
    def is_folder(self) -> bool:
        """Return whether the table is a folder alone, which its first rows make a table."""

    @property
    def exists(self) -> bool: ...

    @property
    def schema(self) -> StructType: ...

    @property
    def id(self) -> str:
        """Return the id of the table; another table of this name has another."""

    @property
    def version(self) -> int:
        """Return the version of the newest commit, of any program."""

    @property
    def rows(self) -> DataFrame: ...

    @property
    def places(self) -> DataFrame:
        """Return ``partition`` and ``offset`` of the table's rows."""

    def pinned(self) -> tuple[DataFrame, int | None]:
        """Return the table as it is now, and its version."""

    def properties(self) -> dict[str, str]: ...

    def set_properties(self, table: Table, first: Landed) -> None:
        """Note what the table holds, and where it begins: at its first commit's start."""

    def landed(self) -> Landed | None:
        """Return what the newest commit of an ingest holds, or the position that is recorded; None where the table has neither."""

    def is_recorded(self, landed: Landed) -> bool:
        """Return whether the position of the table's newest commit stays when the table's history is cleaned."""

    def record(self, landed: Landed) -> None:
        """Record the position of the table's newest commit, so that it stays when the table's history is cleaned."""

    def history(self, version: int | None = None) -> Iterator[Landed]:
        """Return what each commit of an ingest holds, the newest first, from a version on, by default the table's."""

    def earlier(self) -> Iterator[tuple[Landed, DataFrame | None]]:
        """Return what each recent commit of an ingest holds, the newest first, with the table's rows before it, if it was one."""

    def create(self, columns: str, table: Table, query: str, initial_position: Landed | None) -> None:
        """Make the table without rows, of columns as DDL, with the topic that it holds and the offsets that it begins at."""

    def append(self, rows: DataFrame, landed: Landed | None) -> None:
        """Add rows and new columns; ``landed`` is None for rows that do not move the table's position.

        Raises:
            AlreadyLandedError: the table, read afresh, has no such commit, since another one came before; nothing is added.
        """

    def append_first(self, rows: DataFrame, table: Table, landed: Landed) -> None:
        """Make a folder a table by its first rows."""

    def alter(self, properties: Mapping[str, str]) -> None:
        """Give the table properties."""

    def topic_columns(self) -> list[StructField]:
        """Return the columns that are the topic's, and none that a user has added."""

    def add_columns(self, rows: DataFrame) -> None:
        """Give the table the columns and the wider types that rows bring; nothing is written where it has them."""

    def merge(self, changes: DataFrame, clauses: str, landed: Landed | None) -> None:
        """Run one MERGE of ``changes``, as ``new``, into the table, as ``old``; ``landed`` and errors are as :meth:`append`'s."""

    def delete_places(self, name: str, places: DataFrame) -> None:
        """Delete the rejects of a table at ``partition`` and ``offset``."""

    def delete_from(self, name: str, start: Mapping[int, int]) -> None:
        """Delete the rejects of a table from these offsets of their partitions on."""


def made_properties(table: Table) -> dict[str, str]:
    """Return how a new table takes its topic: by which types it is read, and which records."""
    types = connect_types(table.reading, None, is_new=True)
    return ({} if types == "false" else {CONNECT_TYPES_PROPERTY: types}) | definition_properties(table)


def check_layout(table: Table, nested: Iterable[str]) -> None:
    """Check the columns by which a new table is partitioned or clustered.

    Args:
        nested: columns of the rows that are structs, lists, maps or variants: a file cannot have one value of them.

    Raises:
        IngestError: one of them is nested. Nobody could read the table.
    """
    others = {name.lower() for name in nested}
    for setting, names in (("partition_by", table.partition_by), ("cluster_by", table.cluster_by)):
        if wrong := [name for name in names if name.lower() in others]:
            raise IngestError(
                f"{setting} of the table of topic {table.topic} names {', '.join(wrong)}, whose values are structs, lists, maps or "
                'variants: name columns of single values, such as a field that select makes a column of (select = ["*", '
                '"place.city AS city"]).'
            )


def nested_columns(rows: StructType) -> list[str]:
    """Return the names of columns whose values are structs, lists, maps or variants."""
    return [field.name for field in rows if isinstance(field.dataType, (StructType, ArrayType, MapType, VariantType))]


def partition_columns(table: Table, columns: Sequence[str], nested: Iterable[str] = ()) -> list[str]:
    """Return the columns by which a new table is partitioned, as its rows have them; names are compared without regard to case.

    Args:
        nested: as :func:`check_layout` has them.

    Raises:
        IngestError: the rows have no such column, or it is nested.
    """
    check_layout(table, nested)
    by_name = {name.lower(): name for name in columns}
    if missing := [name for name in table.partition_by if name.lower() not in by_name]:
        raise IngestError(
            f"partition_by of the table of topic {table.topic} names {', '.join(missing)}, and its rows have the columns "
            f"{', '.join(columns)}: change partition_by in [[table]]."
        )
    return [by_name[name.lower()] for name in table.partition_by]


def topic_columns_of(schema: StructType, properties: Mapping[str, str]) -> list[StructField]:
    """Return the columns of a table that are the topic's by its properties; all where these do not name them."""
    names = properties.get(COLUMNS_PROPERTY)
    return [column for column in schema if names is None or column.name.lower() in json.loads(names)]


def merge_into(identifier: str, changes: DataFrame, clauses: str) -> None:
    """Run one MERGE of ``changes``, as ``new``, into a table of their session, as ``old``."""
    changes.createOrReplaceTempView(_CHANGES)
    changes.sparkSession.sql(f"MERGE INTO {identifier} AS old USING {_CHANGES} AS new {clauses}")


def owner_properties(first: Landed) -> dict[str, str]:
    """Return whose a table is, and where it begins: at the start of ``first``."""
    topic_id = {TOPIC_ID_PROPERTY: first.topic_id} if first.topic_id else {}
    start = json.dumps(sorted_offsets(first.start))
    return {QUERY_PROPERTY: first.query, TOPIC_PROPERTY: first.topic, START_PROPERTY: start} | topic_id


def start_position(initial_position: Landed) -> dict[str, str]:
    """Return the position of a table without rows, which stays until the table's first commit is recorded."""
    return {POSITION_PROPERTY: initial_position.to_json()}


class OwnedTable(Protocol):
    """What tells whose a table is."""

    identifier: str

    def properties(self) -> dict[str, str]: ...


def check_owner(table: OwnedTable, query: str, topic: str | None) -> None:
    """Raise IngestError for a table that another ingest, or another program, writes to."""
    properties = table.properties()
    owner, owned_topic = properties.get(QUERY_PROPERTY), properties.get(TOPIC_PROPERTY)
    if owner is None:
        raise IngestError(
            f"the table {table.identifier} exists, and no ingest made it: drop it, or use another name (name in [[table]], or "
            "rejects)."
        )
    if owner != query:
        raise IngestError(
            f"the table {table.identifier} belongs to the ingest whose query has the id {owner}, and this checkpoint's query is "
            f"{query}: use that ingest's checkpoint, or other tables."
        )
    if owned_topic not in (None, topic):
        raise IngestError(
            f"the table {table.identifier} holds topic {owned_topic}, and {topic} would go there, too: give one of them another "
            "name in [[table]]."
        )


def is_within(inner: DataType, outer: DataType) -> bool:
    """Return whether a table of the type ``outer`` can store rows of the type ``inner`` as it is; names are case-insensitive."""
    if isinstance(inner, StructType) and isinstance(outer, StructType):
        known = {column.name.lower(): column.dataType for column in outer}
        return all(
            column.name.lower() in known and is_within(column.dataType, known[column.name.lower()]) for column in inner
        )
    for part in ("elementType", "valueType"):
        if type(inner) is type(outer) and hasattr(inner, part):
            return is_within(getattr(inner, part), getattr(outer, part))
    return bool(inner == outer)


def places_from(name: str, start: Mapping[int, int]) -> str:
    """Return the condition, in SQL, of the rejects of a table from these offsets of their partitions on."""
    places = " OR ".join(f"(partition = {partition} AND offset >= {offset})" for partition, offset in start.items())
    return f"table = {sql_text(name)} AND ({places or 'false'})"
