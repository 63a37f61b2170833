"""The position of a Delta table as transaction ids, which do not expire with the table's history: read and written by deltalake.

Delta keeps the newest version of each transaction id in its checkpoints. The version of one id is the sequence number of the newest
commit of an ingest, in every commit, also of Spark. The versions of others are the end offsets of the topic's partitions, as of one
sequence number. A commit has these as well, where deltalake writes it; after Spark's commits, which take one transaction id alone,
:func:`record` adds them by a commit without rows, which conflicts with no other program's commit.

Must not know: what a table is to an ingest. Takes deltalake's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pykafka_wire.ingest.tables.position import POSITION_PROPERTY, SEQUENCE, TOPIC_ID_PROPERTY, Landed

#: The sequence number of the commit whose ends the partitions have.
_RECORDED: Final = "pykafka-wire.recorded"
#: One more than the highest partition of the recorded position.
_PARTITIONS: Final = "pykafka-wire.partitions"
#: Followed by the partition; the version is its end offset.
_END: Final = "pykafka-wire.end."


class RecordedEnds(NamedTuple):
    """The end offsets that transaction ids have, and the sequence number of the commit that had these ends."""

    sequence: int
    ends: Mapping[int, int]


def newest_sequence(table: Any) -> int | None:
    """Return the sequence number of the newest commit of an ingest to deltalake's ``table``; None where none had a number."""
    version = table.transaction_version(SEQUENCE)
    return None if version is None else int(version)


def recorded_ends(table: Any) -> RecordedEnds | None:
    """Return the position that transaction ids have; None without one."""
    sequence = table.transaction_version(_RECORDED)
    if sequence is None:
        return None
    versions = {p: table.transaction_version(f"{_END}{p}") for p in range(table.transaction_version(_PARTITIONS) or 0)}
    return RecordedEnds(int(sequence), {p: int(end) for p, end in versions.items() if end is not None})


def recorded_position(table: Any | None, properties: Mapping[str, str], query: str, topic: str) -> Landed | None:
    """Return the position that a Delta table keeps beside its history; None where it keeps none, or none of its newest commit.

    Args:
        table: deltalake's; None where the library cannot read it.
        properties: of the table, whose position may be a property.
        query, topic: of the table.
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
    return None if newest is None or newest.sequence < (committed or 0) else newest


def transactions_of(landed: Landed) -> list[Any]:
    """Return the transactions of a commit: its sequence number, and the position."""
    from deltalake.transaction import Transaction

    return [Transaction(SEQUENCE, landed.sequence), *_ends_of(landed)]


def record(table: Any, landed: Landed) -> None:
    """Record the position of a commit that Spark has written, by a commit without rows.

    Raises:
        deltalake's errors: the library cannot commit to the table.
    """
    from deltalake.transaction import CommitProperties

    table.create_write_transaction(
        [], "append", table.schema(), partition_by=list(table.metadata().partition_columns),
        commit_properties=CommitProperties(app_transactions=_ends_of(landed)),
    )  # fmt: skip


def _ends_of(landed: Landed) -> list[Any]:
    from deltalake.transaction import Transaction

    ends = [Transaction(f"{_END}{partition}", end) for partition, end in sorted(landed.end.items())]
    n = max(landed.end, default=-1) + 1
    return [Transaction(_RECORDED, landed.sequence), Transaction(_PARTITIONS, n), *ends]
