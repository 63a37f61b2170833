"""How far a read has come: one offset range, its position, and what a Fetch response moves it by.

Owns the arithmetic of a range: scanning whole batches by their headers, the end, and how many bytes to ask for
next. It does no I/O, knows nothing of brokers, errors or decoding, and never looks inside a batch.

What is scanned is the head of a record batch, https://kafka.apache.org/documentation/#recordbatch:

=====================  ======  =======  ==========================================================
field                  type    at byte  note
=====================  ======  =======  ==========================================================
baseOffset             int64   0        magic 0 and 1: the offset of the message (the last inner one)
batchLength            int32   8        bytes that follow it
partitionLeaderEpoch   int32   12       magic 0 and 1: here is the CRC
magic                  int8    16       the same place in every format
crc                    uint32  17
attributes             int16   21
lastOffsetDelta        int32   23       kept by compaction, so that a batch's end never moves
=====================  ======  =======  ==========================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

from pykafka_wire.wire.cluster.retries import GracePeriods
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.fetch.preferred_read_replica import PreferredReadReplica
from pykafka_wire.wire.records.batches import LOG_OVERHEAD, MAGIC, complete_batches, min_length
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

_HEAD: Final = Struct(">qiiB")
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_MAX_OFFSET: Final = 2**63 - 1

#: The size of a record, batch overhead included, where no batch of the partition is known; it only has to be about right, since
#: it bounds how much is fetched beyond the end of a short range.
_FIRST_BYTES_PER_OFFSET: Final = 1024
#: Headroom over this estimate, and what is added to it: asking for too little costs one more round trip, and 64 KiB is four
#: batches as Java's producer makes them (batch.size 16 KiB).
_HEADROOM: Final = 1.25
_MIN_FETCH_BYTES: Final = 65_536


class Position(NamedTuple):
    """How far a topic-partition has been read: the next offset, and the leader epoch of the last batch before it (-1 if
    unknown), by which a truncation of the log is detected (KIP-320)."""

    offset: int
    leader_epoch: int = -1


class BatchScan(NamedTuple):
    """What scanning the batches of one partition's records found.

    Attributes:
        n_bytes: length of the whole batches that belong to the range, counted from the first byte.
        next_offset: the position after them; at least the range's end once a batch beyond it was seen.
        leader_epoch: of the last batch stepped over, -1 if there was none or its format has none.
        needed_bytes: the size of the first batch when it did not fit into the response, else 0.
        batch_starts: where each of them begins, and one whose length is invalid.
        first_offset: the base offset of the first of them, -1 if there is none.
    """

    n_bytes: int
    next_offset: int
    leader_epoch: int
    needed_bytes: int
    batch_starts: Sequence[int]
    first_offset: int = -1


class BatchSize(NamedTuple):
    """How large batches are: for each offset, and the largest of them."""

    bytes_per_offset: float
    batch_bytes: int


def scan_batches(
    records: memoryview, position: int, end_offset: int, batch_starts: list[int] | None = None
) -> BatchScan:
    """Step over the batches of `records` from `position` until a batch lies beyond `end_offset` or is cut short.

    Only lengths are read, and the headers of the last batches, since offsets ascend: a malformed batch, or one whose offsets
    do not, is rejected by the decoder. One whose length is invalid ends the scan with the rest counted in, so that the decoder
    gets it.

    Args:
        batch_starts: where the batches begin, if it is known that all are complete; is changed.
    """
    starts, n_bytes = complete_batches(records) if batch_starts is None else (batch_starts, len(records))
    if not starts:
        return BatchScan(0, position, -1, _needed_bytes(records), starts)
    # A response holds little beyond the range: it is looked at from its end.
    n_batches = len(starts)
    while n_batches > 1 and _read(records, starts[n_batches - 2]).next_offset >= end_offset:
        n_batches -= 1
    last = _read(records, starts[n_batches - 1])
    is_beyond = last.magic >= MAGIC and last.next_offset > 0 and last.base_offset >= end_offset
    if is_beyond:
        n_batches -= 1
    if n_batches < len(starts):
        n_bytes = starts[n_batches]
        del starts[n_batches:]
    next_offset = max(position, end_offset) if is_beyond else position
    leader_epoch = -1
    for start in reversed(starts):
        head = _read(records, start)
        if head.next_offset > 0:
            next_offset = max(next_offset, head.next_offset)
            leader_epoch = head.leader_epoch
            break
    first_offset = _read(records, starts[0]).base_offset if starts else -1
    return BatchScan(n_bytes, next_offset, leader_epoch, 0, starts, first_offset)


def consumed_bytes(records: memoryview, scan: BatchScan, position: int, end_offset: int) -> int:
    """Return how many of the scanned bytes belong to the offsets from `position` up to `end_offset`: of the first and of the
    last batch the share of their offsets that are in the range.
    """
    n_bytes = scan.n_bytes
    for start, end in {scan.batch_starts[0]: (*scan.batch_starts, n_bytes)[1], scan.batch_starts[-1]: n_bytes}.items():
        head = _read(records, start)
        first, last = max(head.base_offset, position), min(head.next_offset, end_offset)
        if head.next_offset > head.base_offset:
            n_bytes -= (
                (end - start)
                * max(0, head.next_offset - head.base_offset - max(0, last - first))
                // (head.next_offset - head.base_offset)
            )
    return n_bytes


def next_offset_of(records: memoryview, start: int) -> int:
    """Return the offset after the batch that begins at `start`; 0 for one whose length is invalid."""
    return _read(records, start).next_offset


def leader_epoch_before(records: memoryview, batch_starts: Sequence[int], position: int) -> int:
    """Return the leader epoch of the last batch that ends at or before `position`, -1 if there is none or it has none."""
    for start in reversed(batch_starts):
        head = _read(records, start)
        if 0 < head.next_offset <= position:
            return head.leader_epoch
    return -1


class _Head(NamedTuple):
    """What the scan reads of a batch.

    Attributes:
        next_offset: the offset after it; 0 for what has none: a batch whose length is invalid, or whose offsets exceed an int64,
            and the filler message of a down-converted response, whose offset is -1.
        leader_epoch: -1 where the format has none.
    """

    base_offset: int
    next_offset: int
    leader_epoch: int
    magic: int


def _read(records: memoryview, start: int) -> _Head:
    base_offset, length, epoch, magic = _HEAD.unpack_from(records, start)
    if length < min_length(magic):
        return _Head(base_offset, 0, -1, magic)
    if magic < MAGIC:
        return _Head(base_offset, base_offset + 1, -1, magic)
    (last_offset_delta,) = _LAST_OFFSET_DELTA.unpack_from(records, start + _LAST_OFFSET_DELTA_AT)
    next_offset = base_offset + last_offset_delta + 1
    # No CRC covers the base offset.
    return _Head(base_offset, next_offset if next_offset <= _MAX_OFFSET else 0, epoch, magic)


def _needed_bytes(records: memoryview) -> int:
    """Return how long the first batch is, which was cut short; at least so much of it that its length can be read."""
    if len(records) < _HEAD.size:
        return _HEAD.size if records else 0
    _, length, _, _ = _HEAD.unpack_from(records, 0)
    return LOG_OVERHEAD + int(length)


@dataclass(slots=True, eq=False)
class RangeProgress:
    """One range on its way from start to end.

    Attributes:
        index: its place among the ranges that were asked for.
        position: the next offset to ask for; runs ahead of `delivered` while a response is being decoded.
        delivered: the position up to which records were handed out, with its leader epoch.
        last_served: when it last got records, counted; ranges are asked for in this order, round robin, so that none starves
            (KIP-74).
        min_bytes: a floor for what is asked for, raised when a batch did not fit.
        read_replica: the broker to read from.
        leader: (node, leader epoch) that the last response came under.
        last_epoch: the leader epoch of the last batch, -1 if unknown.
        not_before: time before which it is not to be asked for again.
        stalled_since: when it began to give nothing, None while it moves.
        end_missing_since: since when its leader serves less than the range's end.
        grace_periods: how long each error code may go on to be met, counted anew when the range moves.
        failures: how many in a row; `last_error` is what the last one was.
        at_end: whether the last response reached the end of the log; `reports_end`: and it was not reported yet; `is_live`: whether
            any response has reached it.
        retried_offset: the offset of a batch that was corrupt and is being fetched once more.
        batch_size: of the last batches of the range; before there were any, of those that were read before it, None if unknown.
        read_ahead_bytes: a floor for what is asked for where later ranges are expected to begin with what is beyond the end.
    """

    index: int
    range: OffsetRange
    position: int = field(init=False)
    delivered: Position = field(init=False)
    topic_partition: TopicPartition = field(init=False)
    last_served: int = 0
    min_bytes: int = 0
    read_replica: PreferredReadReplica = field(default_factory=PreferredReadReplica)
    leader: tuple[int, int] = (-1, -1)
    last_epoch: int = -1
    not_before: float = 0.0
    stalled_since: float | None = None
    end_missing_since: float | None = None
    grace_periods: GracePeriods = field(default_factory=GracePeriods)
    failures: int = 0
    last_error: WireError | None = None
    at_end: bool = False
    reports_end: bool = False
    is_live: bool = False
    retried_offset: int = -1
    batch_size: BatchSize | None = None
    read_ahead_bytes: int = 0

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
        if self.batch_size is None:
            n_bytes = int(n_offsets * _FIRST_BYTES_PER_OFFSET * _HEADROOM) + _MIN_FETCH_BYTES
        else:
            # Batches come whole: the last one, and the first one of a range that begins inside of it.
            n_more = 1 + (self.position == self.range.start_offset)
            n_bytes = int(n_offsets * self.batch_size.bytes_per_offset) + n_more * self.batch_size.batch_bytes
        return max(self.min_bytes, min(max(n_bytes, self.read_ahead_bytes), max_bytes))

    def stalled_s(self, now: float) -> float:
        """Return for how many seconds it has given nothing."""
        return 0.0 if self.stalled_since is None else now - self.stalled_since

    @property
    def may_trail(self) -> bool:
        """Return whether a follower without records is likely to have some soon, as its high watermark trails the leader's
        until its next fetch: the range is read as the log grows, or the leader was asked."""
        return self.is_live or self.read_replica.is_empty

    def advance(self, scan: BatchScan) -> None:
        """Move the position over what was scanned, and with it every sign of trouble away."""
        if scan.n_bytes:
            n_offsets = max(1, scan.next_offset - min(scan.first_offset, self.position))
            starts = (*scan.batch_starts, scan.n_bytes)
            batch_bytes = max(after - start for start, after in itertools.pairwise(starts))
            self.batch_size = BatchSize(scan.n_bytes / n_offsets, batch_bytes)
        self.position = scan.next_offset
        if scan.leader_epoch >= 0:
            self.last_epoch = scan.leader_epoch
        self.min_bytes = 0
        self.at_end = False
        self.read_replica.settle()
        self.recover()

    def recover(self) -> None:
        """Note that nothing is wrong with it any more."""
        self.stalled_since = self.end_missing_since = None
        self.grace_periods.clear()
        self.failures, self.last_error = 0, None

    def stall(self, now: float) -> None:
        """Note that it gives nothing now."""
        if self.stalled_since is None:
            self.stalled_since = now

    def serve_from(self, leader: tuple[int, int]) -> None:
        """Note that a response has come under this leader. A new one may trail for as long as the one before."""
        if self.leader != leader:
            self.leader, self.end_missing_since = leader, None

    def fail(self, error: WireError | None = None) -> None:
        """Count one more try that gave nothing; `error` is why, None where the broker says nothing is wrong."""
        self.failures += 1
        if error is not None:
            self.last_error = error

    def pause_until(self, not_before: float) -> None:
        """Ask for it again from this time on."""
        self.not_before = not_before

    def take_turn(self, turn: int) -> None:
        """Note that it got records in this turn: the ranges that had theirs earlier are asked for first."""
        self.last_served = turn

    def enlarge(self, needed_bytes: int) -> bool:
        """Ask for the whole of a batch that did not fit. Return whether more is asked for now than before."""
        if self.min_bytes >= needed_bytes:
            return False
        self.min_bytes = needed_bytes
        return True

    def know_batch_size(self, size: BatchSize | None) -> None:
        """Take how large the batches before the range were, None if unknown."""
        self.batch_size = size

    def read_ahead(self, n_bytes: int) -> None:
        """Ask for at least `n_bytes`: later ranges are expected to begin with what is beyond the end."""
        self.read_ahead_bytes = n_bytes

    def forget_epoch(self) -> None:
        """Ask without the epoch of the last batch: the leader does not know the epoch, though its log reaches the position."""
        self.last_epoch = -1

    def resume_at(self, position: Position) -> None:
        """Begin at a position that an earlier read has delivered; its epoch is to be checked by the first Fetch."""
        self.delivered = position
        self.last_epoch = position.leader_epoch

    def watch_end(self, now: float, *, at_end: bool | None) -> None:
        """Note whether the leader's log ends at the position, below the range's end; None: only a follower has responded."""
        if at_end is False:
            self.end_missing_since = None
        elif at_end and self.end_missing_since is None:
            self.end_missing_since = now

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
