"""Where the records of many batches begin and end: the only step of decoding that depends on the previous record.

Owns that scan only. A record's length gives the beginning of the next one, so no later beginning is certain. This module does
not read the fields of a record. https://kafka.apache.org/documentation/#record

How: where all records of a batch have the same size but for their deltas, their places follow from the batch's size
(:func:`_regular_ends`), and are only checked. Else it guesses, every 16 to 64 records, a position
that looks like the beginning of a record (an *anchor*). From all anchors at once, NumPy runs parallel *scans*, one record of
each scan per step. If a scan ends exactly at the next anchor, that anchor is a record's beginning: the first scan begins at the
batch's first record, which is certain, so by induction all joined scans are correct. If a scan misses the next anchor, a plain
loop scans from there until it reaches an anchor. The result is checked as a whole (:func:`record_bounds`), so a wrong guess
costs only time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pykafka_wire.wire.arrow.varints import ByteBuffer, FieldReader, Ints
from pykafka_wire.wire.errors import CorruptBatchError

#: The shortest record: attributes, two deltas, two lengths and the header count take a byte each.
MIN_RECORD_BYTES: Final = 6

#: With fewer records than this, or more bytes a record, the plain loop (about 0.1 us a record) is faster than a few hundred
#: NumPy calls, or the difference is negligible.
_MIN_RECORDS_FOR_PARALLEL: Final = 1500
_MAX_RECORD_BYTES_FOR_PARALLEL: Final = 4096
#: So many batches show whether records are of one size.
_SAMPLED_BATCHES: Final = 8
#: Records per scan: shorter scans mean fewer steps, but more guesses.
_MIN_RECORDS_PER_SCAN: Final = 16
_MAX_RECORDS_PER_SCAN: Final = 64
#: If batches hold no more records than this on average, each is a scan: no guess is needed.
_RECORDS_PER_SHORT_BATCH: Final = 32
#: A step over fewer scans than this costs more than the plain loop.
_MIN_SCANS: Final = 48
_MAX_LENGTH_BYTES: Final = 5
#: A guess searches windows of at least this size, and this many of them.
_WINDOW_BYTES: Final = 64
_WINDOWS: Final = 4
#: The offsets of neighbouring records differ by 1, after compaction by more: a larger gap than this does not look like one.
_MAX_OFFSET_GAP: Final = 1_000
#: From this number on a delta takes a second byte: varints are zigzag numbers.
_TWO_BYTES: Final = 64

Words16 = npt.NDArray[np.uint16]


def _steps() -> Words16:
    """Return, for each possible first two bytes of a record, its size with the length field; 0 if two bytes are not enough."""
    word = np.arange(1 << 16)
    first, second = word & 0xFF, word >> 8
    two = first >> 7
    length = np.where(two == 1, second << 7 | first & 0x7F, first)
    unclear = (two & second >> 7 == 1) | (length & 1 == 1) | (length < 2 * MIN_RECORD_BYTES)
    sizes: Words16 = np.where(unclear, 0, 1 + two + (length >> 1)).astype(np.uint16)
    return sizes


_STEPS: Final = _steps()


def record_bounds(
    buffer: ByteBuffer, batch_starts: Ints, batch_ends: Ints, counts: Ints, base_offsets: Sequence[int]
) -> tuple[FieldReader, Ints]:
    """Return ``(fields, ends)``: a reader of the records' fields, which begin behind their lengths, and int64[n_records], where
    each ends.

    Args:
        buffer: has the records of all batches, in order, with or without gaps between batches.
        batch_starts, batch_ends: int64[n_batches], where the records of each batch begin and end in it.
        counts: int64[n_batches], records in each, at least one.
        base_offsets: of each batch, for error texts.

    Raises:
        CorruptBatchError: the lengths of a batch's records do not add up to the batch.
    """
    n_records = int(counts.sum())
    if n_records == 0:
        return FieldReader(buffer, np.empty(0, dtype=np.int64)), np.empty(0, dtype=np.int64)
    # Records that are larger than a producer's batches have a batch each.
    ends = batch_ends if n_records == len(counts) else None
    n_bytes = int((batch_ends - batch_starts).sum())
    if ends is None and n_records >= _MIN_RECORDS_FOR_PARALLEL and n_bytes < n_records * _MAX_RECORD_BYTES_FOR_PARALLEL:
        regular = _regular_bounds(buffer, batch_starts, batch_ends, counts)
        if regular is not None:
            return regular
        ends = _scan_in_parallel(buffer, batch_starts, batch_ends, counts)
    if ends is None:
        ends = _scan_one_by_one(buffer, batch_starts, batch_ends, counts, base_offsets)
    fields, starts, other = _fields(buffer, batch_starts, counts, ends)
    if len(other):  # lengths of three bytes and more, or invalid ones
        body = fields.position
        length, body[other] = _lengths(buffer, starts[other])
        fields = FieldReader(buffer, body)
        wrong = (length < MIN_RECORD_BYTES) | (body[other] + length != ends[other])
        if wrong.any():
            batch = int(np.searchsorted(np.cumsum(counts), other[np.argmax(wrong)], side="right"))
            raise CorruptBatchError(
                "a record's length is negative, too short, or not that of its batch", offset=base_offsets[batch]
            )
    return fields, ends


def _fields(buffer: ByteBuffer, batch_starts: Ints, counts: Ints, ends: Ints) -> tuple[FieldReader, Ints, Ints]:
    """Return ``(fields, starts, others)`` of records with these ends; others are the numbers of those whose length, as far as
    two bytes tell it, does not lead to their end.
    """
    starts = np.empty(len(ends), dtype=np.int64)
    starts[1:] = ends[:-1]
    starts[np.cumsum(counts) - counts] = batch_starts
    fields = FieldReader(buffer, starts)
    length = fields.pairs()
    other = np.flatnonzero(starts + _STEPS.take(length) != ends)
    fields.skip((length >> 7 & 1).astype(np.uint8) + np.uint8(1))
    return fields, starts, other


def _regular_bounds(
    buffer: ByteBuffer, batch_starts: Ints, batch_ends: Ints, counts: Ints
) -> tuple[FieldReader, Ints] | None:
    """Return what :func:`record_bounds` does where records differ in size by their deltas only; else None, mostly after a few
    batches.

    Every length is compared with its guess, so the guesses are right if all agree: from the batch's start to its end.
    """
    first_sizes = _STEPS.take(_words(buffer, batch_starts, batch_starts + 1)).astype(np.int64)
    if not first_sizes.all():
        return None
    bounds = None
    sampled = -(-len(counts) // _SAMPLED_BATCHES)
    for nth in (sampled, 1) if sampled > 1 else (1,):
        some = slice(None, None, nth)
        ends = _regular_ends(first_sizes[some], batch_starts[some], batch_ends[some], counts[some])
        if ends is None:
            return None
        fields, _, other = _fields(buffer, batch_starts[some], counts[some], ends)
        if len(other):
            return None
        bounds = fields, ends
    return bounds


def _words(buffer: ByteBuffer, position: Ints, following: Ints) -> Words16:
    """Return the bytes at each position and at the following one, as :func:`_steps` has them. Beyond the buffer its last byte
    is read.

    NumPy reads two single bytes in 3.0 ns, and a number of two bytes that is not aligned in 4.8.
    """
    words: Words16 = buffer.take(following, mode="clip").astype(np.uint16)
    words <<= 8
    words |= buffer.take(position, mode="clip")
    return words


def _scan_one_by_one(
    buffer: ByteBuffer, batch_starts: Ints, batch_ends: Ints, counts: Ints, base_offsets: Sequence[int]
) -> Ints:
    """Return the end of each record, one at a time; int64[n_records]."""
    data = buffer.data
    starts: list[int] = []
    add = starts.append
    for count, position, limit, base_offset in zip(
        counts.tolist(), batch_starts.tolist(), batch_ends.tolist(), base_offsets, strict=True
    ):
        try:
            for _ in range(count):
                byte = data[position]
                if byte < 0x80:
                    position += 1 + (byte >> 1)
                else:
                    second = data[position + 1]
                    if second < 0x80:
                        position += 2 + ((byte & 0x7F | second << 7) >> 1)
                    else:
                        position = _skip_long(data, position)
                add(position)
        except IndexError:
            position = -1
        if position != limit:
            raise CorruptBatchError(f"the lengths of {count} records do not add up to their batch", offset=base_offset)
    return np.array(starts, dtype=np.int64)


def _skip_long(data: memoryview, position: int) -> int:
    """Return the end of the record at ``position``, whose length takes three bytes or more."""
    value = shift = 0
    for n_bytes in range(1, _MAX_LENGTH_BYTES + 1):
        byte = data[position + n_bytes - 1]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position + n_bytes + (value >> 1)
        shift += 7
    raise IndexError


# --- in parallel --------------------------------------------------------------------------------------------------------


def _scan_in_parallel(buffer: ByteBuffer, batch_starts: Ints, batch_ends: Ints, counts: Ints) -> Ints | None:
    """Return what :func:`_scan_one_by_one` does; None if the batches do not add up, or scans would not be faster."""
    n_records = int(counts.sum())
    start, first_scans = _scans(buffer, batch_starts, batch_ends, counts)
    stop = np.append(start[1:], 0)
    stop[np.append(first_scans[1:], len(start)) - 1] = batch_ends
    n_scans = len(start)
    if n_scans < _MIN_SCANS:
        return None
    taken = np.zeros(n_scans, dtype=np.int64)  # number of steps of each scan
    final = np.zeros(n_scans, dtype=np.int64)  # the position of each scan at its end, or when the loop ends
    steps: list[tuple[Any, Ints]] = []  # the scans of each step (an index, or all), and the ends they found
    scans: Any = slice(None)
    position, limit = start, stop
    while True:
        position = _next(buffer, position, limit)
        steps.append((scans, position))
        going = position < limit
        if going.all():
            continue
        final[scans] = position
        taken[scans] = len(steps)
        unfinished = np.flatnonzero(going)
        scans = unfinished if isinstance(scans, slice) else scans[unfinished]
        if len(unfinished) < _MIN_SCANS:
            break
        position, limit = position[unfinished], limit[unfinished]

    missed = np.flatnonzero(final != stop)
    extra = _scan_missed(buffer, start, stop, final, taken, missed) if len(missed) else {}
    if extra is None:
        return None
    slots = taken.copy()
    for scan, more in extra.items():
        slots[scan] += len(more)
    slot = np.cumsum(slots) - slots
    if not (np.diff(np.append(slot[first_scans], slots.sum())) == counts).all():
        return None
    ends = np.empty(n_records, dtype=np.int64)
    for step, (scans, position) in enumerate(steps):
        if len(missed):  # some scans did not begin at a record, or were scanned again
            valid = np.flatnonzero(taken[scans] > step)
            position = position[valid]
            scans = valid if isinstance(scans, slice) else scans[valid]
        ends[slot[scans] + step] = position
    for scan, more in extra.items():
        first = int(slot[scan] + taken[scan])
        ends[first : first + len(more)] = more
    return ends


def _next(buffer: ByteBuffer, position: Ints, limit: Ints) -> Ints:
    """Return the ends of the records at ``position``; beyond ``limit`` for an invalid record."""
    step = _STEPS.take(_words(buffer, position, position + 1))
    ends = position + step
    if step.all():
        return ends
    other = np.flatnonzero(step == 0)
    length, body = _lengths(buffer, position[other])
    ends[other] = np.where(length < MIN_RECORD_BYTES, limit[other] + 1, body + length)
    return ends


def _lengths(buffer: ByteBuffer, position: Ints) -> tuple[Ints, Ints]:
    """Return ``(lengths, positions behind them)`` of records, -1 for an invalid length."""
    last = len(buffer) - 1
    value = np.zeros(len(position), dtype=np.int64)
    going = np.ones(len(position), dtype=bool)
    for nth in range(_MAX_LENGTH_BYTES):
        byte = np.where(going, buffer.take(np.minimum(position, last)), 0).astype(np.int64)
        value |= (byte & 0x7F) << 7 * nth
        position = position + going
        going &= byte > 0x7F
    return np.where(going | (value & 1).astype(bool), -1, value >> 1), position


def _scan_missed(
    buffer: ByteBuffer, start: Ints, stop: Ints, final: Ints, taken: Ints, missed: Ints
) -> dict[int, list[int]] | None:
    """Return the ends that the plain loop finds for the scans that missed the next anchor; None if the data is invalid.

    Sets ``taken`` to zero for scans that do not begin at a record, and for those that are scanned again.
    """
    data = buffer.data
    starts, stops = start.tolist(), stop.tolist()
    extra: dict[int, list[int]] = {}
    reached = -1  # the last scan that is complete
    for scan in missed.tolist():
        if scan <= reached:
            continue  # it begins inside a record
        position = int(final[scan])
        if position > stops[scan]:  # one of the two scans is wrong
            position = starts[scan]
            taken[scan] = 0
        true_ends: list[int] = []
        reached = scan
        try:
            while position != stops[reached]:
                byte = data[position]
                second = data[position + 1]
                if byte < 0x80:
                    position += 1 + (byte >> 1)
                elif second < 0x80:
                    position += 2 + ((byte & 0x7F | second << 7) >> 1)
                else:
                    position = _skip_long(data, position)
                true_ends.append(position)
                while stops[reached] < position:
                    reached += 1
        except IndexError:
            return None
        taken[scan + 1 : reached + 1] = 0
        extra[scan] = true_ends
    return extra


def _scans(buffer: ByteBuffer, batch_starts: Ints, batch_ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return where scans begin, ascending, and which of them are the first of each batch; int64 both."""
    n_records = int(counts.sum())
    per_scan = min(max(math.isqrt(n_records) // 4, _MIN_RECORDS_PER_SCAN), _MAX_RECORDS_PER_SCAN)
    if n_records <= _RECORDS_PER_SHORT_BATCH * len(counts):
        per_scan = max(per_scan, _RECORDS_PER_SHORT_BATCH)
    n_scans = -(-counts // per_scan)
    sizes = batch_ends - batch_starts
    batch = np.repeat(np.arange(len(counts)), n_scans)
    nth = np.arange(len(batch)) - np.repeat(np.cumsum(n_scans) - n_scans, n_scans)
    start = batch_starts[batch] + nth * (sizes // n_scans)[batch]
    guessed = np.flatnonzero(nth)
    if len(guessed):
        window = max(_WINDOW_BYTES, int(sizes.sum()) // n_records * 3 // 2)
        start[guessed] = _anchors(buffer, start[guessed], batch_ends[batch[guessed]], window)
        distinct = np.flatnonzero((start >= 0) & np.append(True, start[1:] != start[:-1]))
        start, nth = start[distinct], nth[distinct]
    return start, np.flatnonzero(nth == 0)


def _anchors(buffer: ByteBuffer, target: Ints, limit: Ints, size: int) -> Ints:
    """Return a position at or after each target that looks like the beginning of a record, or -1; int64[n_targets]."""
    matches = np.full(len(target), -1, dtype=np.int64)
    n_bytes = size + 1  # the zero after the last one
    if len(buffer) < n_bytes:
        return matches
    windows = np.lib.stride_tricks.as_strided(buffer, (len(buffer) - size, n_bytes), (1, 1), writeable=False)
    pending = np.arange(len(target))
    for nth in range(_WINDOWS):
        candidate = target[pending] + nth * size
        base = np.minimum(candidate, len(buffer) - n_bytes)
        window = windows[base]
        # The last byte of a length is 1 to 0x7F.
        hit = np.flatnonzero((window[:, 1:] == 0) & (window[:, :-1] - np.uint8(1) < 0x7F))
        row = hit // size
        last = base[row] + (hit - row * size)  # the last byte of a length
        keep = np.flatnonzero(last >= np.maximum(candidate, target[pending] + 2)[row])
        row, start = _plausible(buffer, row[keep], last[keep], limit[pending])
        earliest = np.flatnonzero(np.append(True, row[1:] != row[:-1])) if len(row) else row
        matches[pending[row[earliest]]] = start[earliest]
        pending = pending[matches[pending] < 0]
        if not len(pending):
            break
    return matches


def _plausible(buffer: ByteBuffer, row: Ints, last: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """Return ``(rows, starts)`` of those positions that end a plausible length.

    A record begins with its length and a zero (its attributes, of which Kafka uses none so far). A length is plausible if it
    leads to another such position with a higher offset, or to the end of its batch, ``limits[row]``. In a row where some lead
    to the very next offset, the others are dropped: compacted batches alone have gaps.

    Args:
        last: the last byte of each length, before a zero.
    """
    third, second, first = (buffer.take(last - nth) for nth in range(3))
    two = second >> 7
    three = two & first >> 7
    length = third.astype(np.int64)
    more = np.flatnonzero(two)
    length[more] = length[more] << 7 | second[more] & 0x7F
    more = np.flatnonzero(three)
    length[more] = length[more] << 7 | first[more] & 0x7F
    end = last + 1
    end += length >> 1
    keep = np.flatnonzero((length & 1 == 0) & (length >= 2 * MIN_RECORD_BYTES) & (end <= limits[row]))
    row, last, end = row[keep], last[keep], end[keep]
    start = last - two[keep] - three[keep]
    is_end = end == limits[row]
    size8, second8 = buffer.take(end, mode="clip"), buffer.take(end + 1, mode="clip")
    attributes_at = end + 1 + (size8 >> 7) + (size8 >> 7 & second8 >> 7)
    keep = np.flatnonzero(is_end | (buffer.take(attributes_at, mode="clip") == 0) & (size8 & 1 == 0))
    row, start = row[keep], start[keep]
    gap = _offset_deltas(buffer, attributes_at[keep]) - _offset_deltas(buffer, last[keep] + 1)
    likely = is_end[keep] | (gap == 1)
    has_likely = np.zeros(len(limits), dtype=np.bool_)
    has_likely[row[likely]] = True
    keep = np.flatnonzero(likely | (gap > 1) & (gap <= _MAX_OFFSET_GAP) & ~has_likely[row])
    return row[keep], start[keep]


def _offset_deltas(buffer: ByteBuffer, attributes_at: Ints) -> Ints:
    """Return the offset deltas of what may be records, whose attributes are at these positions; meaningless where they are
    none.
    """
    position = attributes_at + 1
    for _ in range(_MAX_LENGTH_BYTES - 1):
        position += buffer.take(position, mode="clip") >> 7  # the timestamp's delta, up to its last byte
    position += 1
    first, second, third = (buffer.take(position + nth, mode="clip").astype(np.int64) for nth in range(3))
    delta = first & 0x7F
    delta |= (first >> 7) * (second & 0x7F) << 7
    delta |= (first >> 7 & second >> 7) * (third & 0x7F) << 14
    delta >>= 1
    return delta


def _regular_ends(first_sizes: Ints, batch_starts: Ints, batch_ends: Ints, counts: Ints) -> Ints | None:
    """Return the end of each record if a batch's records differ in size by their deltas only, as those of sensor readings,
    counters and markers; int64[n_records]. None where the size of a batch rules that out. It is a guess, which has to be
    checked.

    Offset deltas are 0, 1, 2 and so on. Timestamp deltas grow, too: from which record on they take a second byte follows from
    the size of the batch.

    Args:
        first_sizes: int64[n_batches], the size of each batch's first record, with its length.
        batch_starts, batch_ends, counts: as :func:`record_bounds` takes them.
    """
    n_long_offsets = np.maximum(counts - _TWO_BYTES, 0)
    n_long_timestamps = batch_ends - batch_starts - counts * first_sizes - n_long_offsets
    if ((n_long_timestamps < 0) | (n_long_timestamps > counts)).any():
        return None
    shorter = counts - np.maximum(n_long_offsets, n_long_timestamps)
    longest = np.minimum(n_long_offsets, n_long_timestamps)
    runs = np.stack([shorter, counts - shorter - longest, longest], axis=1).ravel()
    sizes = np.repeat((first_sizes[:, None] + np.arange(3)).ravel(), runs)
    # The first record of a batch begins behind the gap between two batches.
    sizes[np.cumsum(counts) - counts] += batch_starts - np.append(0, batch_ends[:-1])
    ends: Ints = np.cumsum(sizes)
    return ends
