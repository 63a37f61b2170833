"""Which record batches of a response belong to a range, by their headers alone.

Never looks inside a batch: decoding is of :mod:`~pykafka_wire.wire.records`. What is scanned is the head of a record batch,
https://kafka.apache.org/documentation/#recordbatch:

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

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from pykafka_wire.wire.records.batches import LOG_OVERHEAD, MAGIC, complete_batches, min_length

_HEAD: Final = Struct(">qiiB")
_LAST_OFFSET_DELTA: Final = Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23
_MAX_OFFSET: Final = 2**63 - 1


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


def bytes_before_epochs(records: memoryview, scan: BatchScan, first: int, last: int) -> int:
    """Return how long the scanned batches are before the first one of a leader epoch from `first` to `last`; all, if none is."""
    starts = (start for start in scan.batch_starts if first <= _read(records, start).leader_epoch <= last)
    return next(starts, scan.n_bytes)


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
