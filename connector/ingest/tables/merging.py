"""How changes meet the rows of a table of any format: one MERGE, and what a table remembers of its merges as properties."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pykafka_wire.ingest.sql import quoted, sql_text
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.ingest.tables.topic_table import COLUMNS_PROPERTY, TopicTable

#: The last TRUNCATE of each partition, as a list in JSON.
_TRUNCATED_PROPERTY: Final = "pykafka-wire.truncated"
#: The names of the key's columns that keys of some rows may not have, since keys have had others for a time; written as
#: :data:`~pykafka_wire.ingest.tables.topic_table.COLUMNS_PROPERTY`.
_KEY_GAPS_PROPERTY: Final = "pykafka-wire.key-gaps"
#: The column of changes that is true for a row to be deleted; no column of a table.
DELETE: Final = "_pykafka_wire_delete"
#: The column of changes that names the columns whose value the database has not sent, null for most rows; no column of a table.
UNAVAILABLE: Final = "_pykafka_wire_unavailable"
#: The column of changes that is true for a row that is made anew: none of its values is an older row's; no column of a table.
CREATED: Final = "_pykafka_wire_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A TRUNCATE of the database's table: where it is in the topic, and when.

    Attributes:
        timestamp_us: of the record.
        seen_ns: when Debezium saw it; None where it does not say.
    """

    partition: int
    offset: int
    timestamp_us: int
    seen_ns: int | None

    def ends(self, partition: str, offset: str, timestamp: str, seen_ns: str | None = None) -> str:
        """Return the condition by which a change or a row of these columns is older.

        Where nothing tells which of two in the same millisecond was first, a change is newer, and a row that a table has is older.
        """
        time = f"unix_micros({timestamp})"
        if seen_ns is None:
            is_before = f"{time} <= {self.timestamp_us}L"
        elif self.seen_ns is None:
            is_before = f"{time} < {self.timestamp_us}L"
        else:
            seen = f"coalesce({seen_ns} < {self.seen_ns}L, false)"
            is_before = f"({time} < {self.timestamp_us}L OR {time} = {self.timestamp_us}L AND {seen})"
        return f"IF({partition} = {self.partition}, {offset} < {self.offset}L, {is_before})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How changes meet the rows of a table, in SQL.

    Attributes:
        same_row: the condition by which the change ``new`` is one of the row ``old``.
        is_newer: the condition by which the change ``new`` is newer than the row ``old``.
        unavailable: columns that keep their value in rows whose change names them in :data:`UNAVAILABLE`, unless they
            are :data:`CREATED`.
        is_truncated: the condition by which a row ``old`` without a change is deleted; None where there was no TRUNCATE.
        key_gaps: as :func:`key_gaps_of` from this merge on.
    """

    same_row: str
    is_newer: str
    unavailable: frozenset[str] = frozenset()
    is_truncated: str | None = None
    key_gaps: frozenset[str] = frozenset()


def merge_rows(target: TopicTable, changes: DataFrame, merging: Merging, landed: Landed | None) -> None:
    """Apply the newest change of each row, unless the row has a newer one.

    Columns that a change lacks become null if they are the topic's. Those that a user has added are not touched.

    Args:
        changes: columns of the table, new ones among them, and :data:`DELETE`.
        landed: as :meth:`TopicTable.append`'s.
    """
    marks = [mark for mark in (DELETE, UNAVAILABLE, CREATED) if mark in changes.columns]
    columns = changes.drop(*marks)
    given = {name.lower() for name in columns.columns}
    properties = target.properties()
    # Whose the columns of an older version's table are is not known: only those of the changes are surely the topic's.
    is_known = COLUMNS_PROPERTY in properties
    topic_names = {column.name.lower() for column in target.topic_columns()} if is_known else given
    noted = {} if is_known and given <= topic_names else {COLUMNS_PROPERTY: json.dumps(sorted(topic_names | given))}
    # Before the key's type changes, which shows the gap.
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
    """Return what follows the table and the changes in a MERGE that writes columns, and makes those that are ``lacking`` null."""
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
    """Note TRUNCATEs, before they are applied; return these, and those that the table knew."""
    ordered = sorted([*truncations_of(target), *truncated], key=lambda truncation: truncation.offset)
    last = {truncation.partition: truncation for truncation in ordered}
    known = [last[partition] for partition in sorted(last)]
    if truncated:
        target.alter({_TRUNCATED_PROPERTY: json.dumps([asdict(truncation) for truncation in known])})
    return known


def key_gaps_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the key's columns that keys of some rows may not have, by a table's properties."""
    return frozenset(json.loads(properties.get(_KEY_GAPS_PROPERTY, "[]")))
