"""How far a read has come: one offset range, its position, and what a Fetch response moves it by.

Knows nothing of brokers, errors or decoding. :mod:`~pykafka_wire.wire.fetch.request_size` says how much to ask for,
:mod:`~pykafka_wire.wire.fetch.range_retries` when to ask again, and :mod:`~pykafka_wire.wire.fetch.preferred_read_replica` whom.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykafka_wire.wire.fetch.batch_scan import BatchScan
from pykafka_wire.wire.fetch.preferred_read_replica import PreferredReadReplica
from pykafka_wire.wire.fetch.range_retries import RangeRetries
from pykafka_wire.wire.fetch.request_size import RequestSize
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition


class Position(NamedTuple):
    """How far a topic-partition has been read: the next offset, and the leader epoch of the last batch before it (-1 if
    unknown), by which a truncation of the log is detected (KIP-320)."""

    offset: int
    leader_epoch: int = -1


@dataclass(slots=True, eq=False)
class RangeProgress:
    """One range on its way from start to end.

    Attributes:
        index: its place among the ranges that were asked for.
        position: the next offset to ask for; runs ahead of `delivered` while a response is being decoded.
        delivered: the position up to which records were handed out, with its leader epoch.
        last_served: when it last got records, counted; ranges are asked for in this order, round robin, so that none starves
            (KIP-74).
        read_replica: the broker to read from.
        leader: (node, leader epoch) that the last response came under.
        last_epoch: the leader epoch of the last batch, -1 if unknown.
        size: how many bytes to ask for.
        retries: what keeps the range from moving, and when it is asked for again.
        at_end: whether the last response reached the end of the log; `reports_end`: and it was not reported yet; `is_live`: whether
            any response has reached it.
        retried_offset: the offset of a batch that was corrupt and is being fetched once more.
    """

    index: int
    range: OffsetRange
    position: int = field(init=False)
    delivered: Position = field(init=False)
    topic_partition: TopicPartition = field(init=False)
    last_served: int = 0
    read_replica: PreferredReadReplica = field(default_factory=PreferredReadReplica)
    leader: tuple[int, int] = (-1, -1)
    last_epoch: int = -1
    size: RequestSize = field(default_factory=RequestSize)
    retries: RangeRetries = field(default_factory=RangeRetries)
    at_end: bool = False
    reports_end: bool = False
    is_live: bool = False
    retried_offset: int = -1

    def __post_init__(self) -> None:
        self.position = self.range.start_offset
        self.delivered = Position(self.position, self.last_epoch)
        self.topic_partition = self.range.topic_partition

    @property
    def finished(self) -> bool:
        return self.position >= self.range.end_offset

    @property
    def place(self) -> dict[str, Any]:  # Any: as WireError takes it
        """Return topic, partition and offset, for errors."""
        return {"topic": self.range.topic, "partition": self.range.partition, "offset": self.position}

    def wanted_bytes(self, max_bytes: int) -> int:
        """Return how many bytes to ask for: about what is left of the range; beyond `max_bytes` only for one large batch."""
        n_offsets = self.range.end_offset - self.position
        return self.size.wanted_bytes(n_offsets, max_bytes, is_start=self.position == self.range.start_offset)

    @property
    def may_trail(self) -> bool:
        """Return whether a follower without records is likely to have some soon, as its high watermark trails the leader's
        until its next fetch: the range is read as the log grows, or the leader was asked."""
        return self.is_live or self.read_replica.is_empty

    def advance(self, scan: BatchScan) -> None:
        """Move the position over what was scanned, and with it every sign of trouble away."""
        self.size.learn(scan, self.position)
        self.position = scan.next_offset
        if scan.leader_epoch >= 0:
            self.last_epoch = scan.leader_epoch
        self.at_end = False
        self.read_replica.settle()
        self.retries.recover()

    def serve_from(self, leader: tuple[int, int]) -> None:
        """Note that a response has come under this leader. A new one may trail for as long as the one before."""
        if self.leader != leader:
            self.leader = leader
            self.retries.await_end_anew()

    def take_turn(self, turn: int) -> None:
        """Note that it got records in this turn: the ranges that had theirs earlier are asked for first."""
        self.last_served = turn

    def forget_epoch(self) -> None:
        """Ask without the epoch of the last batch: the leader does not know the epoch, though its log reaches the position."""
        self.last_epoch = -1

    def resume_at(self, position: Position) -> None:
        """Begin at a position that an earlier read has delivered; its epoch is to be checked by the first Fetch."""
        self.delivered = position
        self.last_epoch = position.leader_epoch

    def reach_end(self) -> None:
        """Note that the leader's log ends at the position, for now."""
        self.read_replica.settle()
        if not self.at_end:
            self.at_end = self.reports_end = self.is_live = True

    def leave_end(self, now: float) -> None:
        """Note that the leader's log has grown, if the position was at its end; followers have had no records since then."""
        if self.at_end:
            self.at_end = False
            self.read_replica.expect_records(now)

    def take_reached_end(self) -> bool:
        """Return whether the log's end was reached since the last call, and still is; all records before it were handed out."""
        if not self.reports_end or self.delivered.offset < self.position:
            return False
        self.reports_end = False
        return self.at_end

    def deliver(self, offset: int, leader_epoch: int) -> None:
        """Note that records up to `offset` are handed out; `leader_epoch` is that of the last batch, -1 if there was none."""
        self.delivered = Position(offset, leader_epoch if leader_epoch >= 0 else self.delivered.leader_epoch)

    def fetch_again(self, offset: int) -> bool:
        """Go back to `offset`, where a batch is corrupt. Return False, and stay, where it was fetched once more already."""
        if self.retried_offset == offset:
            return False
        self.retried_offset = self.position = offset
        return True


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """One partition of a request: for which range, from which offset, and the (leader, leader epoch) it was sent under."""

    progress: RangeProgress
    position: int
    leader: tuple[int, int]
