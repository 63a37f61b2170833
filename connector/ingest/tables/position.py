"""A table's position: the offsets up to which the table holds its topic, and the commit that stores them.

Each commit of an ingest carries a :class:`Landed` in its own metadata, so that rows and position become visible together. Three
rules keep each record in the table exactly once, whatever a catalog, a store or a second driver responds:

* **A commit names its predecessor.** Its sequence number is one more than that of the ingest's previous commit to the table. If two
  drivers start from the same commit, the table accepts only one of their commits. Micro-batch numbers decide nothing: an older
  checkpoint has lower ones.
* **A commit has a unique name**, its attempt. The table, read afresh, shows by the attempt whether it has the commit. No response
  and no exception replaces this check.
* **The position does not expire with the table's history.** Delta stores it as transaction ids or as a table property, Iceberg as a
  property that is written with the snapshot, and names that snapshot: the property does not count after the table was set back. The
  position is never derived from rows, since the table's owner may delete rows.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from pykafka_wire.errors import IngestError
from pykafka_wire.values.registry.registered_schema import RegistryId, registry_id

#: The table property with the position, in the format of :meth:`Landed.to_json`.
POSITION_PROPERTY: Final = "pykafka-wire.position"
#: The table property with the last position that the settings have stated: a stated position is used once.
_STATED_PROPERTY: Final = "pykafka-wire.stated-position"
#: The key of the position in a commit's metadata.
_METADATA: Final = "pykafka-wire"
#: The attributes of :class:`Landed` that are numbers by partition.
_BY_PARTITION: Final = ("start", "end", "epochs")
#: The attributes of :class:`Landed` that are rejects.
_RECORDS: Final = ("isolated", "unreadable")
#: The most unreadable records that a commit names.
MAX_NAMED: Final = 50
#: The most characters of a reason in a commit. A reason may quote the record.
_MAX_REASON: Final = 500
#: The key, in the property, of the time when the position was recorded, in seconds since the epoch.
_AT: Final = "at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The position in one commit of an ingest: the range of one topic that the commit holds.

    Attributes:
        query: the id of Spark's query.
        micro_batch: the number of the micro-batch, for people; -1 for an initial position.
        start, end: offsets by partition, half-open; equal for partitions without rows in this commit.
        epochs: the leader epochs when ``end`` was planned, by partition, as far as known. They show that a log was truncated below
            the position although it has grown again.
        schema_id: the registry id of the schema with which values were read, None without one.
        n_rejects: the number of unreadable records; None if the commit was written before they were counted.
        sequence: the number of the commit among the ingest's commits to the table; 0 for an initial position, and for commits of
            versions without sequence numbers.
        attempt: the unique name of this commit; empty for commits of versions without such names.
        newest_ms: the timestamp of the newest record; None if it was unknown before the commit.
        n_added: the number of rows that the commit added, by the table's metrics; None before the commit, or if unknown.
        isolated: the records of the range that could not be landed, and are rejects.
        unreadable: the unreadable records of the range; empty if there are more than :data:`MAX_NAMED`. After a crash their rejects
            are written even if the settings have changed.
        application: distinguishes the tables whose rejects share one table; not stored.
    """

    query: str
    micro_batch: int
    topic: str
    topic_id: str
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict, compare=False)
    schema_id: RegistryId | None = None
    n_rejects: int | None = None
    sequence: int = 0
    attempt: str = field(default="", compare=False)
    newest_ms: int | None = field(default=None, compare=False)
    n_added: int | None = field(default=None, compare=False)
    isolated: tuple[RejectedRecord, ...] = field(default=(), compare=False)
    unreadable: tuple[RejectedRecord, ...] = field(default=(), compare=False)
    application: str = field(default="", compare=False)

    @property
    def read_start(self) -> dict[int, int]:
        """Return the start of the records that were read together in this commit: after the :attr:`isolated` records."""
        behind: dict[int, int] = {}
        for record in self.isolated:
            behind[record.partition] = max(record.offset + 1, behind.get(record.partition, 0))
        return {**self.start, **behind}

    @property
    def isolated_reasons(self) -> dict[tuple[int, int], str]:
        """Return the reasons of the :attr:`isolated` records, by partition and offset."""
        return {(record.partition, record.offset): record.reason for record in self.isolated}

    @property
    def transaction(self) -> dict[str, str]:
        """Return Delta's transaction id and version, with which Delta refuses a second commit with the same sequence number."""
        if not self.sequence:  # a commit without a number, whose rejects were not written yet
            return {"txnAppId": self.query + self.application, "txnVersion": str(self.micro_batch)}
        return {"txnAppId": SEQUENCE + self.application, "txnVersion": str(self.sequence)}

    def follows(self, held: Landed | None) -> bool:
        """Return whether this commit starts where a table ends whose newest commit is ``held``.

        Partitions may be added. But a driver that does not know a partition of ``held`` would make the table lose its position. A
        table without a position is not the one that the driver has opened: another program has created it again.
        """
        return held is not None and all(self.start.get(partition) == end for partition, end in held.end.items())

    def to_json(self) -> str:
        names = ("query", "micro_batch", "topic", "topic_id", "schema_id", "n_rejects", "sequence", "attempt")
        metadata = {name: getattr(self, name) for name in names}
        metadata |= {} if self.newest_ms is None else {"newest_ms": self.newest_ms}
        for name in _RECORDS:
            if records := getattr(self, name):
                metadata[name] = [(p, offset, reason[:_MAX_REASON]) for p, offset, reason in records]
        for name in _BY_PARTITION:
            if (numbers := getattr(self, name)) or name != "epochs":
                metadata[name] = sorted_offsets(numbers)
        return _as_text({_METADATA: metadata})

    @classmethod
    def from_json(cls, text: str | None, n_added: int | None = None) -> Landed | None:
        """Return the position in a commit's metadata; None for the commit of another program."""
        try:
            metadata: Any = json.loads(text or "null")[_METADATA]
        except (ValueError, TypeError, KeyError):
            return None
        offsets = {name: {int(p): int(n) for p, n in metadata.get(name, {}).items()} for name in _BY_PARTITION}
        known = {attribute.name: metadata[attribute.name] for attribute in fields(cls) if attribute.name in metadata}
        records = {name: tuple(RejectedRecord(*record) for record in metadata.get(name, ())) for name in _RECORDS}
        parts = {"schema_id": registry_id(metadata.get("schema_id")), "n_added": n_added}
        return cls(**{**known, **offsets, **records, **parts})


class AlreadyLandedError(Exception):
    """The table has another commit in this place, or does not end where this commit begins; nothing was added."""

    def __init__(self, table: str, *, is_begun: bool = True) -> None:
        """Note whether an earlier commit of the same files was begun, since the table may have that commit."""
        super().__init__(
            f"table {table} has a commit that this one does not follow: another driver of this query has written to the table "
            "meanwhile, or the table was rolled back or created again. Stop the other driver; this one continues from the table's "
            "position."
        )
        self.is_begun = is_begun


#: The prefix of the Delta transaction id whose version is the sequence number; followed by the application of rejects.
SEQUENCE: Final = "pykafka-wire.sequence"


def new_attempt() -> str:
    """Return a unique name for a commit."""
    return uuid.uuid4().hex


def stated_position(landed: Landed, position: Mapping[int, int]) -> Landed:
    """Return the position that the owner of a table has stated, as if a commit had written it.

    Its sequence number is the current time in ms: higher than any earlier commit's, even if none is known.
    """
    return replace(landed, micro_batch=-1, start=position, end=position, sequence=time.time_ns() // 1_000_000)


def position_property(landed: Landed) -> dict[str, str]:
    """Return the property that stores a position, with the current time."""
    return {POSITION_PROPERTY: _as_text({**json.loads(landed.to_json()), _AT: int(time.time())})}


def stated_properties(landed: Landed) -> dict[str, str]:
    """Return the properties that store a stated position, and that it was used."""
    return position_property(landed) | {_STATED_PROPERTY: _as_text(sorted_offsets(landed.end))}


def check_unused(position: Mapping[int, int], table: str, properties: Mapping[str, str]) -> None:
    """Check that a stated position was not used before: the table would get the rows since then again.

    Args:
        properties: the properties of the table.

    Raises:
        IngestError: the position was used before.
    """
    if properties.get(_STATED_PROPERTY) == _as_text(sorted_offsets(position)):
        raise IngestError(
            f"the table {table} has lost its position, and began at the position in the settings, {dict(position)}, before: the "
            "records since then would be landed again. State the table's present position in its [[table]]. If the old one is "
            f"right, remove the property {_STATED_PROPERTY} from the table."
        )


def recorded_at(properties: Mapping[str, str]) -> float:
    """Return when the position in a table's properties was recorded, in seconds since the epoch; 0 without one."""
    return float(json.loads(properties.get(POSITION_PROPERTY, "{}")).get(_AT, 0))


def lost_position_error(table: str) -> IngestError:
    """Return the error for a table of this ingest that has lost its position."""
    return IngestError(
        f"the table {table} has lost its position, the offsets up to which it holds its topic: its history was cleaned, and an "
        "older version, or an ingest that was killed, had not recorded the position; or the table was set back to a snapshot of "
        "another program, and the snapshots before it have expired; or the table is a copy, without the position of its newest "
        "rows. The rows do not show it, since some may have been deleted. "
        "State the position in the [[table]] of the topic, as the next offset of each partition: "
        "position = {0 = 1234}. Or drop the table to land the topic again."
    )


def sorted_offsets(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


class RejectedRecord(NamedTuple):
    """A record that is a reject; ``reason`` is the sentence of its error."""

    partition: int
    offset: int
    reason: str


def _as_text(document: Mapping[str, Any]) -> str:
    """Return JSON that Spark leaves unchanged: Spark replaces variables such as ``${env:HOME}`` in settings."""
    return json.dumps(document, default=str).replace("$", "\\u0024")  # a schema's id may be a UUID
