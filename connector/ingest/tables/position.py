"""A table's position: the offsets up to which the table holds its topic, and the commit that says so.

Each commit of an ingest carries a :class:`Landed` in its own metadata, so that rows and position become visible together. Three
rules keep each record in the table exactly once, whatever a catalog, a store or a second driver responds:

* **A commit names its predecessor.** Its sequence number is that of the table's newest commit of an ingest plus one. Of two drivers
  that begin at one commit, the table takes one. The number of a micro-batch decides nothing: an older checkpoint has lower ones.
* **A commit has a name of its own**, its attempt. The table, read afresh, shows by the attempt whether it has the commit. No
  response and no exception stands in for that.
* **The position does not expire with the table's history.** Delta keeps it as transaction ids or as a
  property of the table, Iceberg as a property that is written with the snapshot. It is never made of rows: their owner may delete
  some.
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

#: The position as a property of a table, in the format of :meth:`Landed.to_json`.
POSITION_PROPERTY: Final = "pykafka-wire.position"
#: Kafka's id of the topic that a table holds.
TOPIC_ID_PROPERTY: Final = "pykafka-wire.topic-id"
#: The key of a commit's metadata.
_METADATA: Final = "pykafka-wire"
#: Beside it, in a property: when it was recorded, in seconds since the epoch.
_AT: Final = "at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What one commit of a table holds: records of one topic, by offsets.

    Attributes:
        query: Spark's id of the query. micro_batch: of that query, for people; -1 for what a table begins with. start, end: offsets
        by partition, half-open; partitions without rows of this commit have both alike. schema_id: the registry's id of the schema
        that values were read with, None without one. n_rejects: records that could not be read; None where the commit was written
        before they were counted. sequence: the number of the commit among the table's commits of an ingest; 0 for what a table
        begins with, and for commits of versions that did not number them.
        attempt: the name of this commit, which no other has; empty in commits of versions that did not name them.
        newest_ms: the timestamp of the newest record; None where it was not known before the commit.
        n_added: rows that the commit added by Delta's metrics; None before it is written, or where Delta does not say.
        isolated: records of the range that were found to keep it from being landed, and are rejects.
        application: distinguishes the tables whose rejects go into one table; not stored.
    """

    query: str
    micro_batch: int
    topic: str
    topic_id: str
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    schema_id: RegistryId | None = None
    n_rejects: int | None = None
    sequence: int = 0
    attempt: str = field(default="", compare=False)
    newest_ms: int | None = field(default=None, compare=False)
    n_added: int | None = field(default=None, compare=False)
    isolated: tuple[IsolatedRecord, ...] = field(default=(), compare=False)
    application: str = field(default="", compare=False)

    @property
    def read_start(self) -> dict[int, int]:
        """Return where the records of this commit begin that were read together: behind those of :attr:`isolated`."""
        behind: dict[int, int] = {}
        for record in self.isolated:
            behind[record.partition] = max(record.offset + 1, behind.get(record.partition, 0))
        return {**self.start, **behind}

    @property
    def transaction(self) -> dict[str, str]:
        """Return Delta's id and version, by which Delta refuses a second commit of one sequence number."""
        if not self.sequence:  # of a commit that has none, whose rejects were not written yet
            return {"txnAppId": self.query + self.application, "txnVersion": str(self.micro_batch)}
        return {"txnAppId": SEQUENCE + self.application, "txnVersion": str(self.sequence)}

    def follows(self, held: Landed) -> bool:
        """Return whether this commit starts where a table ends whose newest one is ``held``.

        Partitions are added at any time. A driver that does not know one of ``held`` yet would make the table forget its position.
        """
        return all(self.start.get(partition) == end for partition, end in held.end.items())

    def to_json(self) -> str:
        names = ("query", "micro_batch", "topic", "topic_id", "schema_id", "n_rejects", "sequence", "attempt")
        metadata = {name: getattr(self, name) for name in names}
        metadata |= {} if self.newest_ms is None else {"newest_ms": self.newest_ms}
        metadata |= {"isolated": self.isolated} if self.isolated else {}
        landed = {**metadata, "start": sorted_offsets(self.start), "end": sorted_offsets(self.end)}
        return json.dumps({_METADATA: landed}, default=str)  # a UUID

    @classmethod
    def from_json(cls, text: str | None, n_added: int | None = None) -> Landed | None:
        """Return None for the commit of another program."""
        try:
            metadata: Any = json.loads(text or "null")[_METADATA]
        except (ValueError, TypeError, KeyError):
            return None
        offsets = {name: {int(p): int(o) for p, o in metadata[name].items()} for name in ("start", "end")}
        known = {attribute.name: metadata[attribute.name] for attribute in fields(cls) if attribute.name in metadata}
        isolated = tuple(IsolatedRecord(*record) for record in metadata.get("isolated", ()))
        parts = {"schema_id": registry_id(metadata.get("schema_id")), "n_added": n_added, "isolated": isolated}
        return cls(**{**known, **offsets, **parts})


class AlreadyLandedError(Exception):
    """The table has another commit where this one should be, or does not end where this one begins; nothing is added."""

    def __init__(self, table: str, *, is_begun: bool = True) -> None:
        """Note whether a commit of the same files was begun before, which may be the one that the table has."""
        super().__init__(
            f"table {table} has a commit that this one does not follow: another driver of this query has written to the table "
            "meanwhile, or it was rolled back. End the other driver; this one goes on from where the table is."
        )
        self.is_begun = is_begun


#: The id of Delta's transactions whose versions are the sequence numbers of commits; followed by whose rejects they are.
SEQUENCE: Final = "pykafka-wire.sequence"


def new_attempt() -> str:
    """Return a name for one commit."""
    return uuid.uuid4().hex


def stated(landed: Landed, position: Mapping[int, int]) -> Landed:
    """Return what a table holds whose owner states its position: nothing of ours, up to these offsets.

    The sequence number is the time in ms: higher than that of any commit before, none of which may be known.
    """
    return replace(landed, micro_batch=-1, start=position, end=position, sequence=time.time_ns() // 1_000_000)


def position_property(landed: Landed) -> dict[str, str]:
    """Return the property that keeps a position, with the time at which it is recorded."""
    return {POSITION_PROPERTY: json.dumps({**json.loads(landed.to_json()), _AT: int(time.time())})}


def recorded_at(properties: Mapping[str, str]) -> float:
    """Return when the position was recorded in a table's properties, in seconds since the epoch; 0 where it was not."""
    return float(json.loads(properties.get(POSITION_PROPERTY, "{}")).get(_AT, 0))


def lost_position(table: str) -> IngestError:
    """Return the error of a table of this ingest that no longer says up to where it holds its topic."""
    return IngestError(
        f"the table {table} no longer says up to which offsets it holds its topic: its history was cleaned, and an older "
        "version, or an ingest that was killed, had not recorded the position. Rows do not show it, since some may have been "
        "deleted. State it in the [[table]] of the topic, as the next offset of each partition: position = {0 = 1234}. Or drop "
        "the table, to land the topic anew."
    )


def sorted_offsets(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


class IsolatedRecord(NamedTuple):
    """A record that cannot be landed, though the records around it can; ``reason`` is its error's sentence."""

    partition: int
    offset: int
    reason: str
