"""What the bounded reads of one process leave for those after them: batches that came beyond a range's end, and sizes of batches.

Batches come whole, and a broker that is asked for a range sends some of what follows. A stream whose micro-batches are small would
receive that again with each of them; JVM consumers keep it in their fetch buffers. Owns this memory, its bound, and the rule when
batches may be read from it: by a range of the same topic id, partition and isolation level whose leader epoch, as it was planned,
is the one that they were fetched under. So a log that was truncated, or a recreated topic, is never read from here. It sends
nothing and decodes nothing; CRCs are checked where batches are decoded.
"""

from __future__ import annotations

import bisect
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykafka_wire.wire.fetch.batch_scan import BatchScan, next_offset_of, scan_batches
from pykafka_wire.wire.fetch.request_size import BatchSize
from pykafka_wire.wire.records.batches import complete_batches
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition

#: In a process for each client's settings. A Python worker's peak is some 200 MB.
MAX_BYTES: Final = 8 * 1024 * 1024
#: Of one partition, unless a single batch is larger.
_MAX_PARTITION_BYTES: Final = 1024 * 1024
#: A partition whose batches were of use here is asked for about so much at a time, where its ranges are smaller.
_READ_AHEAD_BYTES: Final = 256 * 1024
#: Sizes of batches are known of so many partitions.
_MAX_SIZES: Final = 10_000


class _Log(NamedTuple):
    """Which log batches are from, and how it was read."""

    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    read_committed: bool


@dataclass(slots=True)
class _Batches:
    """Whole batches of a log, which hold all of its records from `start_offset` up to `next_offset`."""

    records: memoryview
    starts: Sequence[int]
    start_offset: int
    next_offset: int
    leader: tuple[int, int]


class CachedBatches(NamedTuple):
    """Batches that begin a range: read-only, to be decoded as if they had just been received.

    Attributes:
        is_next: whether the range begins where the one before in this process has ended.
        leader: (node, leader epoch) that they were fetched under.
    """

    records: memoryview
    scan: BatchScan
    is_next: bool
    leader: tuple[int, int]


class BatchCache:
    """Batches and their sizes, by log; threads may share it. What was not used for longest makes room."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._batches: dict[_Log, _Batches] = {}
        self._n_bytes = 0
        self._sizes: dict[TopicPartition, BatchSize] = {}
        self._lock = threading.Lock()

    def size_of(self, tp: TopicPartition) -> BatchSize | None:
        """Return the size of batches that were last read of a partition."""
        return self._sizes.get(tp)

    def record_size(self, tp: TopicPartition, size: BatchSize) -> None:
        with self._lock:
            self._sizes.pop(tp, None)
            self._sizes[tp] = size
            if len(self._sizes) > _MAX_SIZES:
                del self._sizes[next(iter(self._sizes))]

    def read_ahead_bytes(self, n_ranges: int) -> int:
        """Return how much to ask for of each of `n_ranges` at least, so that all of it can be kept."""
        return min(_READ_AHEAD_BYTES, self._max_bytes // 2 // max(1, n_ranges))

    def keep(self, range_: OffsetRange, leader: tuple[int, int], *, read_committed: bool, records: memoryview) -> None:
        """Keep a copy of what `records` hold beyond the range's end: whole batches as fetched under `leader`, a node and its epoch,
        none of them of an aborted transaction; the first may be one that the end is in."""
        log = _log_of(range_, leader[1], read_committed)
        if log is None:
            return
        starts, n_bytes = complete_batches(records)
        n_kept = max(1, bisect.bisect_right([*starts[1:], n_bytes], _MAX_PARTITION_BYTES))
        if n_kept < len(starts):
            n_bytes = starts[n_kept]
        next_offset = next_offset_of(records, starts[n_kept - 1]) if starts else 0
        if not starts or n_bytes > self._max_bytes or next_offset <= range_.end_offset:
            return
        kept = _Batches(memoryview(bytes(records[:n_bytes])), starts[:n_kept], range_.end_offset, next_offset, leader)
        with self._lock:
            self._forget(log)
            self._batches[log] = kept
            self._n_bytes += n_bytes
            while self._n_bytes > self._max_bytes:
                self._forget(next(iter(self._batches)))

    def take(self, range_: OffsetRange, *, read_committed: bool) -> CachedBatches | None:
        """Return the batches that `range_` begins with, None if there are none. What it needs no more is forgotten: the range
        is read from its broker if it is read again.
        """
        log = _log_of(range_, range_.leader_epoch, read_committed)
        with self._lock:
            batches = self._batches.get(log) if log is not None else None
            if log is None or batches is None or not batches.start_offset <= range_.start_offset < batches.next_offset:
                return None
            is_next = batches.start_offset == range_.start_offset
            first = bisect.bisect_right(
                batches.starts, range_.start_offset, key=lambda start: next_offset_of(batches.records, start)
            )
            starts = list(batches.starts[first:])
            origin = starts[0]
            records = batches.records[origin:]
            scan = scan_batches(records, range_.start_offset, range_.end_offset, [start - origin for start in starts])
            if batches.next_offset <= range_.end_offset:
                self._forget(log)
            else:
                n_used = len(scan.batch_starts)
                straddles = n_used > 0 and next_offset_of(records, scan.batch_starts[-1]) > range_.end_offset
                batches.starts = starts[n_used - straddles :]
                batches.start_offset = range_.end_offset
                self._batches[log] = self._batches.pop(log)  # used last
            return CachedBatches(records, scan, is_next, batches.leader)

    def _forget(self, log: _Log) -> None:
        forgotten = self._batches.pop(log, None)
        if forgotten is not None:
            self._n_bytes -= len(forgotten.records)


def _log_of(range_: OffsetRange, leader_epoch: int, read_committed: bool) -> _Log | None:
    """Return None where a recreated topic, or a truncated log, could not be detected."""
    if range_.topic_id == ZERO_UUID or leader_epoch < 0:
        return None
    return _Log(range_.topic_id, range_.partition, leader_epoch, read_committed)
