"""Record batches to columns: every batch of a Fetch response at once, with no Python object per record.

Owns what stands inside a batch, and which batches count: CRC, control batches, aborted transactions, offsets outside the
range. It knows no brokers and no requests. https://kafka.apache.org/documentation/#record

How: batch headers are read one by one; the records of all batches then lie in one buffer. Where each record begins is
:mod:`~pykafka_wire.wire.boundaries`' matter. Everything else is NumPy over all records: the varints of each field in turn,
then keys and values as one Arrow array over all boundaries, of which ``take`` picks the pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pykafka_wire.wire import batches
from pykafka_wire.wire.batches import BatchHeader
from pykafka_wire.wire.boundaries import MIN_RECORD_BYTES, record_bounds
from pykafka_wire.wire.compression import MAX_DECOMPRESSED_BYTES, Codec, codec_of, decompress
from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError, WireError
from pykafka_wire.wire.varints import PADDING, Ints, Octets, read_varints

#: Arrow's binary arrays have int32 offsets; what one call decodes stays well below.
_MAX_BUFFER_BYTES: Final = 2**31 - 2**20
_ABORT: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns to decode; what is False costs nothing. Offsets come always."""

    key: bool = True
    value: bool = True
    headers: bool = False
    timestamp: bool = True
    timestamp_type: bool = True


@dataclass(frozen=True, slots=True)
class RecordSlice:
    """The record bytes that a Fetch response holds for one topic-partition.

    Attributes:
        records: batches one after the other; the last one may be cut short.
        start_offset, end_offset: records outside of ``[start_offset, end_offset)`` are dropped.
        aborted: ``(producer id, first offset)`` of each aborted transaction, as the response lists them.
    """

    records: memoryview
    start_offset: int
    end_offset: int
    aborted: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecords:
    """Columns of the decoded records, grouped by slice, in offset order within each. All are copies: no input is pinned.

    Attributes:
        slice_index: int32[n_records], which slice each record is of.
        offset, timestamp: int64[n_records]; timestamps in ms since the epoch.
        timestamp_type: int32[n_records], 0 create time, 1 log append time.
        key, value: pa.BinaryArray with nulls, None if not asked for.
        headers: pa.ListArray of struct<key: string, value: binary>, null where a record has none; None if not asked for.
            Bytes of a header's key that are no UTF-8 appear as U+FFFD: the record is not lost for them.
        next_offsets: int64[n_slices], the position after the last complete batch of each slice.
    """

    n_records: int
    slice_index: npt.NDArray[np.int32]
    offset: Ints
    timestamp: Ints
    timestamp_type: npt.NDArray[np.int32]
    key: Any
    value: Any
    headers: Any
    next_offsets: Ints


@dataclass(slots=True)
class _Batches:
    """The batches to decode, field by field, their records in ``payloads``."""

    payloads: list[bytes | bytearray | memoryview] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    base_offsets: list[int] = field(default_factory=list)
    base_timestamps: list[int] = field(default_factory=list)
    append_times: list[int] = field(default_factory=list)
    slice_indexes: list[int] = field(default_factory=list)
    #: Whether some batch reaches beyond its slice's range.
    clipped: bool = False


def decode(
    slices: Sequence[RecordSlice],
    columns: Columns,
    *,
    read_committed: bool,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> DecodedRecords:
    """The records of all slices as columns.

    Raises:
        CorruptBatchError: a CRC, a length or compressed data does not hold; names the slice's batch by its base offset.
        UnsupportedVersionError: a batch of another format than magic 2, or of an unknown codec.
    """
    chosen = _Batches()
    next_offsets = np.array([s.start_offset for s in slices], dtype=np.int64)
    for index, piece in enumerate(slices):
        next_offsets[index] = _choose(chosen, index, piece, read_committed, check_crc, max_decompressed_bytes)
    return _decode_records(chosen, slices, columns, next_offsets)


def _choose(
    chosen: _Batches, index: int, piece: RecordSlice, read_committed: bool, check_crc: bool, max_bytes: int
) -> int:
    """Add the batches of one slice that count; the position after its last complete batch."""
    view = piece.records
    size = len(view)
    at = 0
    position = piece.start_offset
    aborted = sorted(piece.aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    while size - at > batches.MAGIC_AT:
        length = int.from_bytes(view[at + 8 : at + 12], "big", signed=True)
        magic = view[at + batches.MAGIC_AT]
        end = at + batches.LOG_OVERHEAD + length
        if magic != 2:
            base_offset = int.from_bytes(view[at : at + 8], "big", signed=True)
            _refuse_format(magic, base_offset)
        if length < batches.HEADER_BYTES - batches.LOG_OVERHEAD:
            base_offset = int.from_bytes(view[at : at + 8], "big", signed=True)
            raise CorruptBatchError(f"a batch of {length} bytes is shorter than its header", offset=base_offset)
        if end > size:
            break  # the last batch of a response may be cut short
        batch = view[at:end]
        at = end
        header = batches.read_header(batch)
        if check_crc:
            batches.check_crc(batch, header)
        if header.last_offset_delta < 0 or header.records_count < 0:
            raise CorruptBatchError(
                f"a batch of {header.records_count} records up to offset delta {header.last_offset_delta}",
                offset=header.base_offset,
            )
        position = max(position, header.last_offset + 1)
        if read_committed:
            while aborted and aborted[-1][1] <= header.last_offset:
                aborting.add(aborted.pop()[0])
        if header.attributes & batches.CONTROL:
            if read_committed and _is_abort(batch, header):
                aborting.discard(header.producer_id)
            continue
        if header.attributes & batches.TRANSACTIONAL and header.producer_id in aborting:
            continue
        if (
            header.records_count == 0
            or header.last_offset < piece.start_offset
            or header.base_offset >= piece.end_offset
        ):
            continue
        _add(chosen, index, piece, batch, header, max_bytes)
    return position


def _refuse_format(magic: int, offset: int) -> None:
    if magic in (0, 1):
        raise UnsupportedVersionError(
            f"records in the message format of magic {magic}, from before Kafka 0.11, cannot be read",
            offset=offset,
            remedy="Write the topic anew with message format 2, or read it with another client.",
        )
    raise UnsupportedVersionError(f"a record batch of magic {magic}, which no Kafka release writes", offset=offset)


def _add(
    chosen: _Batches, index: int, piece: RecordSlice, batch: memoryview, header: BatchHeader, max_bytes: int
) -> None:
    try:
        codec = codec_of(header.attributes)
        payload = decompress(codec, batch[batches.HEADER_BYTES :], max_bytes)
    except WireError as error:
        error.offset = header.base_offset
        raise
    if header.records_count * MIN_RECORD_BYTES > len(payload):
        raise CorruptBatchError(
            f"{header.records_count} records in {len(payload)} bytes ({Codec(codec).name.lower()})",
            offset=header.base_offset,
        )
    chosen.payloads.append(payload)
    chosen.sizes.append(len(payload))
    chosen.counts.append(header.records_count)
    chosen.base_offsets.append(header.base_offset)
    chosen.base_timestamps.append(header.base_timestamp)
    chosen.append_times.append(header.max_timestamp if header.attributes & batches.TIMESTAMP_TYPE else -1)
    chosen.slice_indexes.append(index)
    if header.base_offset < piece.start_offset or header.last_offset >= piece.end_offset:
        chosen.clipped = True


def _is_abort(batch: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch ends its transaction by aborting it: the key of its record is a version and a type."""
    payload = np.frombuffer(bytes(batch[batches.HEADER_BYTES :]) + bytes(PADDING), dtype=np.uint8)
    position = np.array([0], dtype=np.int64)
    _, position = read_varints(payload, position)
    position = position + 1  # attributes
    for _ in range(2):
        _, position = read_varints(payload, position)
    key_size, position = read_varints(payload, position)
    start = int(position[0])
    if key_size[0] < _CONTROL_KEY.size or start + _CONTROL_KEY.size > len(payload) - PADDING:
        raise CorruptBatchError("a control batch without a type", offset=header.base_offset)
    _, kind = _CONTROL_KEY.unpack_from(payload.data, start)
    return bool(kind == _ABORT)


def _decode_records(
    chosen: _Batches, slices: Sequence[RecordSlice], columns: Columns, next_offsets: Ints
) -> DecodedRecords:
    data = b"".join([*chosen.payloads, bytes(PADDING)])
    if len(data) > _MAX_BUFFER_BYTES:
        raise CorruptBatchError(f"{len(data)} bytes of records in one response, more than can be decoded at once")
    buffer = np.frombuffer(data, dtype=np.uint8)
    counts = np.array(chosen.counts, dtype=np.int64)
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(chosen.sizes, out=bounds[1:])
    position, ends = record_bounds(data, buffer, bounds, counts, chosen.base_offsets)

    position += 1  # the record's own attributes say nothing yet
    timestamp_delta, position = read_varints(buffer, position)
    offset_delta, position = read_varints(buffer, position)
    if columns.key or columns.value or columns.headers:
        key_start, key_size, position = _piece(buffer, position, ends, chosen, counts)
        value_start, value_size, headers_at = _piece(buffer, position, ends, chosen, counts)
        if (headers_at >= ends).any():
            raise _torn(headers_at >= ends, chosen, counts)
    else:
        key_start = key_size = value_start = value_size = headers_at = position

    offset = np.repeat(np.array(chosen.base_offsets, dtype=np.int64), counts) + offset_delta
    keep = _keep(offset, chosen, counts, slices) if chosen.clipped else None
    if keep is not None:
        offset, timestamp_delta = offset[keep], timestamp_delta[keep]
        key_start, key_size = key_start[keep], key_size[keep]
        value_start, value_size = value_start[keep], value_size[keep]
        headers_at, ends = headers_at[keep], ends[keep]

    def per_record(values: list[int], dtype: type) -> npt.NDArray[Any]:
        repeated: npt.NDArray[Any] = np.repeat(np.array(values, dtype=dtype), counts)
        return repeated if keep is None else repeated[keep]

    n_records = len(offset)
    append_time = per_record(chosen.append_times, np.int64) if any(t >= 0 for t in chosen.append_times) else None
    timestamp = np.empty(0, dtype=np.int64)
    timestamp_type = np.zeros(n_records if columns.timestamp_type else 0, dtype=np.int32)
    if columns.timestamp:
        timestamp = per_record(chosen.base_timestamps, np.int64) + timestamp_delta
        if append_time is not None:
            timestamp = np.where(append_time >= 0, append_time, timestamp)
    if append_time is not None and columns.timestamp_type:
        timestamp_type = (append_time >= 0).astype(np.int32)
    arrow_buffer = pa.py_buffer(data)
    return DecodedRecords(
        n_records=n_records,
        slice_index=per_record(chosen.slice_indexes, np.int32),
        offset=offset,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        key=_binary(arrow_buffer, key_start, key_size) if columns.key else None,
        value=_binary(arrow_buffer, value_start, value_size) if columns.value else None,
        headers=_headers(buffer, arrow_buffer, headers_at, ends) if columns.headers else None,
        next_offsets=next_offsets,
    )


def _piece(buffer: Octets, position: Ints, ends: Ints, chosen: _Batches, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """``(start, size, position behind it)`` of a key or value in each record; -1 is the size of null.

    Lengths may be anything in damaged data: positions are checked before they are read from.
    """
    if (position >= ends).any():
        raise _torn(position >= ends, chosen, counts)
    size, start = read_varints(buffer, position)
    wrong = (size < -1) | (size > ends - start)
    if wrong.any():
        raise _torn(wrong, chosen, counts)
    return start, size, start + np.maximum(size, 0)


def _torn(wrong: npt.NDArray[np.bool_], chosen: _Batches, counts: Ints) -> CorruptBatchError:
    batch = int(np.searchsorted(np.cumsum(counts), np.argmax(wrong), side="right"))
    return CorruptBatchError("a record's fields reach beyond its length", offset=chosen.base_offsets[batch])


def _keep(offset: Ints, chosen: _Batches, counts: Ints, slices: Sequence[RecordSlice]) -> Ints:
    """Indices of the records inside their slice's range."""
    first = np.array([slices[i].start_offset for i in chosen.slice_indexes], dtype=np.int64)
    last = np.array([slices[i].end_offset for i in chosen.slice_indexes], dtype=np.int64)
    return np.flatnonzero((offset >= np.repeat(first, counts)) & (offset < np.repeat(last, counts)))


# --- Arrow ------------------------------------------------------------------------------------------------------------


def _binary(data: Any, starts: Ints, sizes: Ints) -> Any:
    """pa.BinaryArray of the pieces of ``data``, null where the size is -1; a copy.

    Pieces are in order and do not overlap, so all their boundaries are the offsets of one array over ``data``; every
    second element of it is a piece.
    """
    n = len(starts)
    bounds = np.empty(2 * n + 1, dtype=np.int32)
    bounds[0:-1:2] = starts
    np.add(starts, np.maximum(sizes, 0), out=bounds[1::2], casting="unsafe")
    bounds[-1] = bounds[-2] if n else 0
    every = pa.Array.from_buffers(pa.binary(), 2 * n, [None, pa.py_buffer(bounds), data])
    picked = every.take(pa.array(np.arange(0, 2 * n, 2, dtype=np.int32)))
    valid = sizes >= 0
    if valid.all():
        return picked
    _, offsets, content = picked.buffers()
    return pa.Array.from_buffers(pa.binary(), n, [_bitmap(valid), offsets, content])


def _bitmap(valid: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _headers(buffer: Octets, data: Any, positions: Ints, ends: Ints) -> Any:
    """pa.ListArray of each record's headers; records without any are null, as Spark's own connector has it."""
    n_records = len(positions)
    counts, position = read_varints(buffer, positions)
    if n_records and (int(counts.min()) < 0 or (counts > ends - position).any()):
        raise CorruptBatchError("a record's header count does not fit its length")
    record = np.flatnonzero(counts)
    position = position[record]
    left = counts[record].copy()
    last = ends[record]
    found: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    while len(record):
        key_size, key_start = read_varints(buffer, position)
        value_at = key_start + key_size
        if (key_size < 0).any() or (value_at >= last).any():
            raise CorruptBatchError("a header's key does not fit its record")
        value_size, value_start = read_varints(buffer, value_at)
        position = value_start + np.maximum(value_size, 0)
        if (value_size < -1).any() or (position > last).any():
            raise CorruptBatchError("a header's value does not fit its record")
        found.append((record, key_start, key_size, value_start, value_size))
        left -= 1
        more = (left > 0) & (position < last)
        if (left[~more] > 0).any():
            raise CorruptBatchError("a record has fewer headers than it says")
        record, position, left, last = record[more], position[more], left[more], last[more]
    empty = np.empty(0, dtype=np.int64)
    records, key_start, key_size, value_start, value_size = (
        (np.concatenate(parts) for parts in zip(*found, strict=True)) if found else (empty,) * 5
    )
    order = np.argsort(records, kind="stable")
    entries = pa.StructArray.from_arrays(
        [
            _text(_binary(data, key_start[order], key_size[order])),
            _binary(data, value_start[order], value_size[order]),
        ],
        names=["key", "value"],
    )
    offsets = np.zeros(n_records + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    with_nulls = pa.array(offsets, mask=np.append(counts == 0, False)) if n_records else pa.array(offsets)
    return pa.ListArray.from_arrays(with_nulls, entries)


def _text(array: Any) -> Any:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:  # a client that is not Java's wrote bytes that are no UTF-8
        return pa.array([key.decode("utf-8", "replace") for key in array.to_pylist()], pa.string())
