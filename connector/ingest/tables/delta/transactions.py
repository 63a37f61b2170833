"""The position of a Delta table as transaction ids, which outlive the table's history: read and written through deltalake.

Delta keeps the newest version of each transaction id in its checkpoints. One id has the sequence number of the newest commit of an
ingest as its version; every commit sets it, including Spark's. The other ids have the end offsets of the topic's partitions, as of
one sequence number. Commits of deltalake set them, too. Spark's commits can set only one transaction id; after them, :func:`record`
adds the other ids in a commit without rows, which conflicts with no commit of another program.

A table's owner may let transaction ids expire (:data:`_RETENTION`). So the ids have a time that never comes. Ids that Spark has
written have the time of their commit, and Spark drops ids without a time. A position counts only if no newer one can have expired.

Knows deltalake's tables and positions, but nothing else of an ingest. Takes tables of deltalake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pykafka_wire.checkpoints.stored_tables import TOPIC_ID_PROPERTY
from pykafka_wire.ingest.tables.position import POSITION_PROPERTY, SEQUENCE, Landed

#: The transaction id with the sequence number of the commit whose end offsets are recorded.
_RECORDED: Final = "pykafka-wire.recorded"
#: The transaction id whose version is the highest recorded partition plus one.
_PARTITIONS: Final = "pykafka-wire.partitions"
#: The prefix of the transaction id for a partition. The version of that id is the partition's end offset.
_END: Final = "pykafka-wire.end."
#: The table property that says when Delta forgets transaction ids, counted from their times. Without it, never.
_RETENTION: Final = "delta.setTransactionRetentionDuration"
#: The time of transaction ids that do not expire, in ms since the epoch: the end of the year 9999.
_NEVER_MS: Final = 253_402_300_799_000


class RecordedEnds(NamedTuple):
    """The end offsets in transaction ids, and the sequence number of the commit with these end offsets."""

    sequence: int
    ends: Mapping[int, int]


def newest_sequence(table: Any, application: str = "") -> int | None:
    """Return the sequence number of the newest commit of an ingest to a deltalake ``table``; None if no commit had a number.

    Args:
        application: the one of a table, whose rejects the commits have added.
    """
    version = table.transaction_version(SEQUENCE + application)
    return None if version is None else int(version)


def recorded_ends(table: Any) -> RecordedEnds | None:
    """Return the position in transaction ids; None without one."""
    sequence = table.transaction_version(_RECORDED)
    if sequence is None:
        return None
    versions = {p: table.transaction_version(f"{_END}{p}") for p in range(table.transaction_version(_PARTITIONS) or 0)}
    return RecordedEnds(int(sequence), {p: int(end) for p, end in versions.items() if end is not None})


def recorded_position(table: Any | None, properties: Mapping[str, str], query: str, topic: str) -> Landed | None:
    """Return the position that a Delta table stores outside its history; None if it is missing, or may be older than the newest
    commit.

    Args:
        table: the table of deltalake; None if the library cannot read it.
        properties: the properties of the table, which may include its position.
        query, topic: the query and the topic of the table.
    """
    recorded = [Landed.from_json(properties.get(POSITION_PROPERTY))]
    ends = None if table is None else recorded_ends(table)
    if ends is not None:
        topic_id = properties.get(TOPIC_ID_PROPERTY, "")
        found = Landed(
            query=query,
            micro_batch=-1,
            topic=topic,
            topic_id=topic_id,
            start=ends.ends,
            end=ends.ends,
            sequence=ends.sequence,
        )
        recorded.append(found)
    newest = max((each for each in recorded if each is not None), key=lambda each: each.sequence, default=None)
    committed = None if table is None else newest_sequence(table)
    if committed is None and expires(properties) and (ends is not None or (newest is not None and not newest.sequence)):
        return None  # the sequence number has expired, and perhaps the position of a later commit
    return None if newest is None or newest.sequence < (committed or 0) else newest


def expires(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties let transaction ids expire."""
    return _RETENTION in properties


def transactions_of(landed: Landed) -> list[Any]:
    """Return the transactions of a commit: its sequence number and its position."""
    ends = [(f"{_END}{partition}", end) for partition, end in sorted(landed.end.items())]
    n = max(landed.end, default=-1) + 1
    return [*map(_transaction, ((SEQUENCE, landed.sequence), (_RECORDED, landed.sequence), (_PARTITIONS, n), *ends))]


def record(table: Any, landed: Landed) -> None:
    """Record the position of a commit that Spark has written, in a commit without rows.

    Raises:
        errors of deltalake: the library cannot commit to the table.
    """
    from deltalake.transaction import CommitProperties

    table.create_write_transaction(
        [], "append", table.schema(), partition_by=list(table.metadata().partition_columns),
        commit_properties=CommitProperties(app_transactions=transactions_of(landed)),
    )  # fmt: skip


def _transaction(version: tuple[str, int]) -> Any:
    """Return a transaction id with its version, which does not expire."""
    from deltalake.transaction import Transaction

    return Transaction(*version, last_updated=_NEVER_MS)
