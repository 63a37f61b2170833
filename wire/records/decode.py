"""Record batches to columns: all batches of a Fetch response at once, without a Python object per record.

Owns the selection of batches (no control batches, no offsets outside the range, none of aborted transactions) and the decoding
of their records.
:mod:`~pykafka_wire.wire.records.batch_framing` owns the framing and the CRC. This module knows no brokers and no requests.
https://kafka.apache.org/documentation/#record

How: all headers are read at once, and all records are in one buffer: the received frame, or what the batches decompress to, one
behind the other. :mod:`~pykafka_wire.wire.records.record_scanner` finds where each record begins. Everything else is NumPy over all
records: one field's varints after the other, then keys and values as columns (:mod:`~pykafka_wire.wire.arrow.arrays`).
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.wire.arrow.arrays import binary_column, bitmap, value_column
from pykafka_wire.wire.arrow.varints import ByteBuffer, FieldReader, Ints, read_varints
from pykafka_wire.wire.errors import CorruptBatchError, WireError
from pykafka_wire.wire.records import batches
from pykafka_wire.wire.records.aborted_transactions import aborted_batches
from pykafka_wire.wire.records.batch_framing import FramedBatches, RecordSlice, check_crcs, frame_batches
from pykafka_wire.wire.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    USUAL_RATIO,
    Decompressor,
    GrowingBuffer,
    codec_of,
)
from pykafka_wire.wire.records.record_scanner import MIN_RECORD_BYTES, record_bounds

_logger = logging.getLogger(__name__)

#: Arrow's binary arrays have int32 offsets; one call decodes at most this much, well below.
MAX_BUFFER_BYTES: Final = 2**31 - 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns to decode; a False one costs nothing. Offsets are always decoded."""

    key: bool = True
    value: bool = True
    headers: bool = False
    timestamp: bool = True
    timestamp_type: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecords:
    """Columns of the decoded records, grouped by slice, in offset order within each. All are copies: they keep no input in memory.
    Only large values may be in the input's own memory, if that may be overwritten.

    Attributes:
        slice_index: int32[n_records]: the slice that each record is from.
        offset, timestamp: int64[n_records]; timestamps in ms since the epoch.
        timestamp_type: int32[n_records], 0 create time, 1 log append time, -1 none (magic 0; the timestamp is -1 then).
        key, value: pa.BinaryArray with nulls, None if not selected.
        headers: pa.ListArray of struct<key: string, value: binary>, null if a record has none; None if not selected.
            Invalid UTF-8 in a header's key becomes U+FFFD, so that the record is not lost.
        next_offsets: int64[n_slices], the position after the last complete batch of each slice.
        unfinished: the slices that did not fit into the budget: decode the rest from their next offset.
    """

    n_records: int
    slice_index: npt.NDArray[np.int32]
    offset: Ints
    timestamp: Ints
    timestamp_type: npt.NDArray[np.int32]
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    next_offsets: Ints
    unfinished: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _SelectedBatches:
    """The selected batches, and the buffer with their records: writable if it is not needed any more. Arrays have one element a
    batch."""

    buffer: ByteBuffer
    starts: Ints
    ends: Ints
    headers: pa.Array
    counts: Ints
    base_offsets: Ints
    slice_indexes: npt.NDArray[np.int32]
    #: Which batches have records outside their slice's range.
    is_clipped: npt.NDArray[np.bool_]


def decode(
    slices: Sequence[RecordSlice],
    columns: Columns,
    *,
    read_committed: bool,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    budget_bytes: int = MAX_BUFFER_BYTES,
    budget_records: int | None = None,
    may_overwrite: bool = False,
) -> DecodedRecords:
    """Return the records of all slices as columns.

    Args:
        max_decompressed_bytes: maximum decompressed size of one batch.
        budget_bytes: decoding stops once batches have this decompressed size: see ``unfinished``. Messages of magic 0 and 1,
            which brokers since 4.0 no longer accept, are decompressed before and do not count.
        budget_records: it stops before batches exceed this number of records, but for the first one: records take memory, however
            few bytes they have.
        may_overwrite: the memory of the slices, and between them in the same buffer, is not needed after they are decoded.
            After an error it is as it was.

    Raises:
        CorruptBatchError: a CRC, a length or compressed data is invalid; the error has the batch's base offset.
        UnsupportedVersionError: a batch of an unknown format or codec.
    """
    framed = frame_batches(slices, check_crc=check_crc, max_bytes=max_decompressed_bytes)
    headers, slice_indexes = framed.headers, framed.slice_indexes
    start_offsets = np.array([part.start_offset for part in slices], dtype=np.int64)
    end_offsets = np.array([part.end_offset for part in slices], dtype=np.int64)
    if check_crc:
        check_crcs(framed)

    base_offsets = headers["base_offset"].astype(np.int64)
    last_offsets = base_offsets + headers["last_offset_delta"]
    counts = headers["records_count"].astype(np.int64)
    # An offset above an int64 comes out negative: no CRC covers the base offset.
    wrong = np.flatnonzero((counts < 0) | (headers["last_offset_delta"] < 0) | (last_offsets < base_offsets))
    if len(wrong):
        raise CorruptBatchError(
            f"a batch of {counts[wrong[0]]} records up to offset delta {headers['last_offset_delta'][wrong[0]]}",
            offset=int(base_offsets[wrong[0]]),
        )
    back = np.flatnonzero((base_offsets[1:] <= last_offsets[:-1]) & (slice_indexes[1:] == slice_indexes[:-1])) + 1
    if len(back):
        raise CorruptBatchError(
            f"a batch of offsets from {base_offsets[back[0]]} follows one up to {last_offsets[back[0] - 1]}",
            offset=int(base_offsets[back[0]]),
        )
    next_offsets = start_offsets.copy()
    np.maximum.at(next_offsets, slice_indexes, last_offsets + 1)

    attributes = headers["attributes"].astype(np.int64)
    wanted = (counts > 0) & (attributes & batches.CONTROL == 0)
    wanted &= (last_offsets >= start_offsets[slice_indexes]) & (base_offsets < end_offsets[slice_indexes])
    if read_committed:
        wanted &= ~aborted_batches(framed, slices)
    rows = np.flatnonzero(wanted)
    fitting = rows
    if budget_records is not None and len(rows) > 1:
        fitting = rows[: max(1, int(counts[rows].cumsum().searchsorted(budget_records, side="right")))]
    # What does not fit is in the same memory.
    may_overwrite = may_overwrite and len(fitting) == len(rows)
    buffer, starts, ends = _payloads(framed, fitting, max_decompressed_bytes, budget_bytes, may_overwrite=may_overwrite)
    rows, remaining = rows[: len(starts)], rows[len(starts) :]
    unfinished, firsts = np.unique(slice_indexes[remaining], return_index=True)
    next_offsets[unfinished] = np.maximum(base_offsets[remaining[firsts]], start_offsets[unfinished])
    row_slices = slice_indexes[rows]
    selected = _SelectedBatches(
        buffer=buffer,
        starts=starts,
        ends=ends,
        headers=headers[rows],
        counts=counts[rows],
        base_offsets=base_offsets[rows],
        slice_indexes=row_slices,
        is_clipped=(base_offsets[rows] < start_offsets[row_slices]) | (last_offsets[rows] >= end_offsets[row_slices]),
    )
    decoded = _decode_records(selected, columns, start_offsets, end_offsets, next_offsets)
    return replace(decoded, unfinished=frozenset(unfinished.tolist())) if len(remaining) else decoded


def _decode_records(
    selected: _SelectedBatches, columns: Columns, start_offsets: Ints, end_offsets: Ints, next_offsets: Ints
) -> DecodedRecords:
    buffer, counts = selected.buffer, selected.counts
    fields, ends = record_bounds(buffer, selected.starts, selected.ends, counts, selected.base_offsets.tolist())

    fields.skip(1)  # a record's attributes: Kafka uses none so far
    timestamp_delta = fields.varints()
    offset_delta = fields.varints()
    if columns.key or columns.value or columns.headers:
        key_start, key_size = _bytes_field(fields, selected)
        value_start, value_size = _bytes_field(fields, selected)
        headers_at = fields.position
        if (headers_at >= ends).any():
            raise _invalid_field(headers_at >= ends, selected)
    else:
        key_start = key_size = value_start = value_size = headers_at = fields.position

    offset = np.repeat(selected.base_offsets, counts)
    offset += offset_delta
    keep = None
    if selected.is_clipped.any():
        first = np.repeat(start_offsets[selected.slice_indexes], counts)
        last = np.repeat(end_offsets[selected.slice_indexes], counts)
        keep = np.flatnonzero((offset >= first) & (offset < last))
        offset, timestamp_delta = offset[keep], timestamp_delta[keep]
        key_start, key_size = key_start[keep], key_size[keep]
        value_start, value_size = value_start[keep], value_size[keep]
        headers_at, ends = headers_at[keep], ends[keep]

    def per_record(values: npt.NDArray[pa.Array]) -> npt.NDArray[Any]:
        repeated: npt.NDArray[Any] = np.repeat(values, counts)
        return repeated if keep is None else repeated[keep]

    timestamp, timestamp_type = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    batch_headers = selected.headers
    appended = batch_headers["attributes"] & batches.TIMESTAMP_TYPE != 0
    if columns.timestamp:
        timestamp = per_record(batch_headers["base_timestamp"].astype(np.int64))
        timestamp += timestamp_delta
        if appended.any():
            max_timestamps = batch_headers["max_timestamp"].astype(np.int64)
            timestamp = np.where(per_record(appended), per_record(max_timestamps), timestamp)
    if columns.timestamp_type:
        timestamp_type = per_record(np.where(batch_headers["magic"] == 0, -1, appended).astype(np.int32))
    key = binary_column(buffer, key_start, key_size) if columns.key else None
    headers = _headers(buffer, headers_at, ends) if columns.headers else None
    # The last one, since it may overwrite the buffer.
    value = value_column(buffer, value_start, value_size) if columns.value else None
    return DecodedRecords(
        n_records=len(offset),
        slice_index=per_record(selected.slice_indexes),
        offset=offset,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        key=key,
        value=value,
        headers=headers,
        next_offsets=next_offsets,
    )


def _bytes_field(fields: FieldReader, selected: _SelectedBatches) -> tuple[Ints, Ints]:
    """Return ``(start, size)`` of the key or value of each record; the size of null is -1.

    Damaged data may have any length. A position may lie behind its record, and even behind the buffer, but not so far that it
    overflows: what is read there leads even further, and the caller compares the last position with the record's end.
    """
    size = fields.varints()
    start = fields.position
    minimum, maximum = int(size.min(initial=0)), int(size.max(initial=0))
    if minimum < -1 or maximum > len(selected.buffer):
        raise _invalid_field((size < -1) | (size > len(selected.buffer)), selected)
    if maximum > 0:  # a topic may have no keys
        fields.jump(size if minimum >= 0 else np.maximum(size, 0))
    return start, size


def _invalid_field(wrong: npt.NDArray[np.bool_], selected: _SelectedBatches) -> CorruptBatchError:
    batch = int(np.searchsorted(np.cumsum(selected.counts), np.argmax(wrong), side="right"))
    return CorruptBatchError("a record's fields exceed its length", offset=int(selected.base_offsets[batch]))


# --- headers ----------------------------------------------------------------------------------------------------------


_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _headers(buffer: ByteBuffer, positions: Ints, ends: Ints) -> pa.Array:
    """Return a pa.ListArray of each record's headers; null for a record without headers, as in Spark's own connector.

    The first header of every record is read at once, then the second of those that have one, and so on.
    """
    n_records = len(positions)
    if (ends - positions == 1).all() and not buffer[positions].any():  # all counts are 0, as in most topics
        return pa.nulls(n_records, _HEADERS)
    counts, position = read_varints(buffer, positions)
    if n_records and (int(counts.min()) < 0 or (counts > (ends - position) // 2).any()):
        raise CorruptBatchError("a record's header count does not fit its length")
    offsets = np.zeros(n_records + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    key_start, key_size, value_start, value_size = np.empty((4, int(offsets[-1])), dtype=np.int64)

    def read(slots: Any, position: Ints, last: Ints) -> Ints:  # Any: a NumPy index
        """Read the header at each position into its slot; returns the positions after them."""
        if (position >= last).any():
            raise CorruptBatchError("a record has fewer headers than its count")
        key_size[slots], key_start[slots] = size, start = read_varints(buffer, position)
        if ((size < 0) | (size >= last - start)).any():
            raise CorruptBatchError("a header's key does not fit its record")
        value_size[slots], value_start[slots] = size, start = read_varints(buffer, start + size)
        if ((size < -1) | (size > last - start)).any():
            raise CorruptBatchError("a header's value does not fit its record")
        return start + np.maximum(size, 0)

    maximum = int(counts.max(initial=0))
    if maximum and int(counts.min()) == maximum:
        for nth in range(maximum):
            position = read(slice(nth, None, maximum), position, ends)
    elif maximum:
        record = np.flatnonzero(counts)
        position, last, n_left, slot = position[record], ends[record], counts[record], offsets[record]
        while len(slot):
            position = read(slot, position, last)
            more = np.flatnonzero(n_left > 1)
            position, last, n_left, slot = position[more], last[more], n_left[more] - 1, slot[more] + 1
    entries = pa.StructArray.from_arrays(
        [_text(binary_column(buffer, key_start, key_size)), binary_column(buffer, value_start, value_size)],
        names=["key", "value"],
    )
    return pa.Array.from_buffers(
        pa.list_(entries.type),
        n_records,
        [bitmap(counts > 0), pa.py_buffer(offsets.astype(np.int32))],
        children=[entries],
    )


def _text(array: pa.Array) -> pa.Array:
    """Return header keys as text. Invalid UTF-8 becomes U+FFFD, as in Java's client: the record must not be lost."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        # Few distinct keys occur many times: only the distinct ones are decoded.
        encoded = array.dictionary_encode()
        texts = [key.decode("utf-8", "replace") for key in encoded.dictionary.to_pylist()]
        _warn_of_invalid_keys(os.getpid())
        return pa.array(texts, pa.string()).take(encoded.indices)


@functools.cache  # once a process, not for each response
def _warn_of_invalid_keys(pid: int) -> None:
    _logger.warning("Header keys that are not valid UTF-8 were read: their invalid bytes become U+FFFD")


def _payloads(
    framed: FramedBatches, rows: Ints, max_bytes: int, budget_bytes: int, *, may_overwrite: bool
) -> tuple[ByteBuffer, Ints, Ints]:
    """Return ``(buffer, starts, ends)``: the decompressed records of the batches ``rows``, or of as many of the first as fit into
    the budget.

    If all are uncompressed and not copied yet, the buffer is the frame, a view, which is writable if it may be overwritten;
    otherwise a copy. Old messages are already decompressed, whatever their size.

    Raises:
        CorruptBatchError: a batch cannot be decompressed, or is too short for its number of records.
    """
    headers = framed.headers
    codecs = (headers["attributes"][rows] & 0x07).tolist()
    starts, ends = framed.starts[rows] + batches.HEADER_BYTES, framed.ends[rows]
    if not any(codecs) and not framed.is_copy:
        buffer = np.frombuffer(framed.frame if may_overwrite else framed.frame.toreadonly(), dtype=np.uint8)
    else:
        buffer, ends = _decompress_batches(framed, rows, codecs, starts, ends, max_bytes, budget_bytes)
        rows = rows[: len(ends)]
        starts = np.append(0, ends[:-1]) if len(ends) else ends
    sizes = ends - starts
    short = np.flatnonzero(headers["records_count"][rows] * np.int64(MIN_RECORD_BYTES + 1) > sizes)
    if len(short):
        header = headers[rows[short[0]]]
        raise CorruptBatchError(
            f"a batch claims {header['records_count']} records in {sizes[short[0]]} bytes",
            offset=int(header["base_offset"]),
        )
    if len(buffer) > MAX_BUFFER_BYTES:
        raise CorruptBatchError(f"{len(buffer)} bytes of records in one response, more than one call can decode")
    return buffer, starts, ends


def _decompress_batches(
    framed: FramedBatches,
    rows: Ints,
    codecs: Sequence[int],
    starts: Ints,
    ends: Ints,
    max_bytes: int,
    budget_bytes: int,
) -> tuple[ByteBuffer, Ints]:
    """Return ``(buffer, ends)`` of the first of the batches, which lie in the frame from ``starts`` to ``ends``. Each is
    decompressed into its place in the buffer. When they were joined at the end, they took twice the memory, new for each
    response, and much of the time went into page faults.
    """
    sizes = ends - starts
    usual = USUAL_RATIO * int(sizes.sum())
    buffer = GrowingBuffer(min(budget_bytes, usual) + USUAL_RATIO * int(sizes.max(initial=0)))
    decompressor = Decompressor(max_bytes)
    ends_in_buffer: list[int] = []
    for row, codec, start, end in zip(rows.tolist(), codecs, starts.tolist(), ends.tolist(), strict=True):
        if buffer.size >= budget_bytes:
            break
        try:
            decompressor.decompress_into(codec_of(codec), framed.frame[start:end], buffer)
        except WireError as error:
            error.offset = int(framed.headers["base_offset"][row])
            raise
        ends_in_buffer.append(buffer.size)
    return buffer.written(), np.array(ends_in_buffer, dtype=np.int64)
