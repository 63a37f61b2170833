"""How changes are merged into the rows of a table of any format: one MERGE, and the properties that a table needs for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.spark.sql import quoted, sql_text
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY, TopicTable

#: The property with the last TRUNCATE of each partition, as a JSON list.
_TRUNCATED_PROPERTY: Final = "pykafka-wire.truncated"
#: The property with key columns that the keys of some rows may lack, since the keys' columns have changed over time; in the form of
#: :data:`~pykafka_wire.ingest.tables.topic_table.COLUMNS_PROPERTY`.
_KEY_GAPS_PROPERTY: Final = "pykafka-wire.key-gaps"
#: A column of changes, not of tables: whether the row is to be deleted.
DELETE: Final = "_pykafka_wire_delete"
#: A column of changes, not of tables: the names of columns whose value the database did not send; null for most rows.
UNAVAILABLE: Final = "_pykafka_wire_unavailable"
#: A column of changes, not of tables: whether the row is created, so that none of its values comes from an older row.
CREATED: Final = "_pykafka_wire_created"
#: Kafka's columns by which a MERGE finds the row of a change, and whether the change is newer.
_KEY: Final = "key"
_OF_CHANGES: Final[tuple[str, ...]] = (_KEY, "partition", "offset", "timestamp")
#: Kafka's columns by which a comparison or a replay of rejects finds the row of a record.
_OF_RECORDS: Final[tuple[str, ...]] = ("partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A TRUNCATE of the database's table: its place in the topic, and its time.

    Attributes:
        timestamp_us: the record's timestamp.
        seen_ns: when Debezium saw the TRUNCATE; None if unknown.
    """

    partition: int
    offset: int
    timestamp_us: int
    seen_ns: int | None

    def ends(self, partition: str, offset: str, timestamp: str, seen_ns: str | None = None) -> str:
        """Return the SQL condition that a change or row with these columns is older than the TRUNCATE.

        If the order within one millisecond is unknown, a change counts as newer, and a row of the table as older; so does a row
        without a place, of another program.
        """
        time = f"unix_micros({timestamp})"
        if seen_ns is None:
            is_before = f"{time} <= {self.timestamp_us}L"
        elif self.seen_ns is None:
            is_before = f"{time} < {self.timestamp_us}L"
        else:
            seen = f"coalesce({seen_ns} < {self.seen_ns}L, false)"
            is_before = f"({time} < {self.timestamp_us}L OR {time} = {self.timestamp_us}L AND {seen})"
        return f"coalesce(IF({partition} = {self.partition}, {offset} < {self.offset}L, {is_before}), true)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """The conditions of a MERGE of changes into the rows of a table, in SQL.

    Attributes:
        same_row: the condition that the change ``new`` belongs to the row ``old``.
        is_newer: the condition that the change ``new`` is newer than the row ``old``.
        unavailable: columns that keep their value in rows whose change names them in :data:`UNAVAILABLE`, unless the row is
            :data:`CREATED`.
        is_truncated: the condition that a row ``old`` without a change is deleted; None if there was no TRUNCATE.
        key_gaps: the value of :func:`key_gaps_of` from this merge on.
    """

    same_row: str
    is_newer: str
    unavailable: frozenset[str] = frozenset()
    is_truncated: str | None = None
    key_gaps: frozenset[str] = frozenset()


def check_kafka_columns(
    held: StructType, properties: Mapping[str, str] | None, prefix: str, table: str, *, merges: bool = True
) -> None:
    """Raise IngestError if a table lacks a column of Kafka's by which the ingest finds the rows of records.

    The ingest would add the column again, without values: a change would find no row, or be taken for an older one; and a
    comparison with the topic would find no record.

    Args:
        properties: the table's properties; None for a table of another program. A table without rows may have had no key yet.
        merges: whether records are changes of rows.
    """
    names = {name.lower() for name in held.names}
    needed = _OF_CHANGES if merges else _OF_RECORDS
    if properties is not None and (prefix + _KEY).lower() not in json.loads(properties.get(COLUMNS_PROPERTY, "[]")):
        needed = tuple(name for name in needed if name != _KEY)
    if missing := [prefix + name for name in needed if (prefix + name).lower() not in names]:
        raise IngestError(
            f"the ingest finds the rows of records in table {table} by the columns {', '.join(missing)}, which the table lacks. "
            f"It has {', '.join(held.names[-20:])}: if the columns were renamed or dropped, or made with another prefix, restore "
            "their names or the setting prefix. Otherwise give the topic another table by name in [[table]]"
            + (", or use mode append." if merges else ".")
        )


def merge_rows(target: TopicTable, changes: DataFrame, merging: Merging, landed: Landed | None) -> None:
    """Apply the newest change of each row, unless the row is newer.

    Columns of the topic that a change lacks become null. Columns that a user has added stay unchanged.

    Args:
        changes: the table's columns, perhaps with new ones, and :data:`DELETE`.
        landed: as in :meth:`TopicTable.append`.
    """
    marks = [mark for mark in (DELETE, UNAVAILABLE, CREATED) if mark in changes.columns]
    columns = changes.drop(*marks)
    given = {name.lower() for name in columns.columns}
    properties = target.properties()
    # A table of an older version does not say which columns the user has added: only those of the changes surely come from the
    # topic.
    is_known = COLUMNS_PROPERTY in properties
    topic_names = {column.name.lower() for column in target.topic_columns()} if is_known else given
    noted = {} if is_known and given <= topic_names else {COLUMNS_PROPERTY: json.dumps(sorted(topic_names | given))}
    # Store the gaps before the key's type changes, since the type would no longer show them.
    if not merging.key_gaps <= key_gaps_of(properties):
        noted[_KEY_GAPS_PROPERTY] = json.dumps(sorted(merging.key_gaps))
    if noted:
        target.alter(noted)
    target.add_columns(columns)
    held = target.schema
    written = StructType([column for column in held if column.name.lower() in given])
    whole = StructType([*written, *(column for column in changes.schema if column.name in marks)])
    lacking = [column.name for column in held if column.name.lower() in topic_names - given]
    target.merge(changes.to(whole), _clauses(written.names, lacking, merging), landed)


def _clauses(written: Sequence[str], lacking: Sequence[str], merging: Merging) -> str:
    """Return the part of a MERGE after the table and the changes: it writes columns, and sets ``lacking`` columns to null."""
    names = [quoted(name) for name in written]
    newer = f"WHEN MATCHED AND {merging.is_newer}"
    keeps = f"NOT new.{CREATED} AND array_contains(new.{UNAVAILABLE}, "
    sets = [
        f"{quoted(name)} = IF({keeps}{sql_text(name)}), old.{quoted(name)}, new.{quoted(name)})"
        if name in merging.unavailable
        else f"{quoted(name)} = new.{quoted(name)}"
        for name in written
    ] + [f"{quoted(name)} = NULL" for name in lacking]
    truncate = f"WHEN NOT MATCHED BY SOURCE AND {merging.is_truncated} THEN DELETE" if merging.is_truncated else ""
    return f"""
        ON {merging.same_row}
        {newer} AND new.{DELETE} THEN DELETE
        {newer} THEN UPDATE SET {", ".join(sets)}
        WHEN NOT MATCHED AND NOT new.{DELETE}
            THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"new.{name}" for name in names)})
        {truncate}
        """


def truncations_of(target: TopicTable) -> list[Truncation]:
    """Return the last TRUNCATE of each partition that the table has landed."""
    return [Truncation(**truncation) for truncation in json.loads(target.properties().get(_TRUNCATED_PROPERTY, "[]"))]


def remember_truncations(target: TopicTable, truncated: Sequence[Truncation]) -> list[Truncation]:
    """Store TRUNCATEs before they are applied; return them together with those stored earlier."""
    ordered = sorted([*truncations_of(target), *truncated], key=lambda truncation: truncation.offset)
    last = {truncation.partition: truncation for truncation in ordered}
    known = [last[partition] for partition in sorted(last)]
    if truncated:
        target.alter({_TRUNCATED_PROPERTY: json.dumps([asdict(truncation) for truncation in known])})
    return known


def key_gaps_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the key columns that the keys of some rows may lack, from a table's properties."""
    return frozenset(json.loads(properties.get(_KEY_GAPS_PROPERTY, "[]")))
