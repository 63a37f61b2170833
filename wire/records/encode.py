"""Columns to record batches, magic 2: NumPy encodes all varints at once, and Arrow joins them with keys and
values (:mod:`~pykafka_wire.wire.arrow.row_segments`).

Owns the layout of records and the division of rows into batches. It knows no brokers; producer fields are not set (-1) until
:func:`~pykafka_wire.wire.records.batches.stamp_producer` writes them. https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.wire.arrow.arrays import to_numpy, validity
from pykafka_wire.wire.arrow.row_segments import (
    BytesSegment,
    RowSegment,
    bounds,
    bytes_segment,
    constant,
    join_segments,
    varints,
)
from pykafka_wire.wire.arrow.varints import Ints, n_varint_bytes, zigzag
from pykafka_wire.wire.records import batches
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec, compressor

__all__ = ["EncodedBatch", "encode_batches", "encode_parts"]

#: Rows are encoded in groups of about this size, since Arrow's binary arrays hold less than 2 GiB, and of so many rows, whose
#: columns of numbers fit into a processor's cache: 70,000 short records at once take a tenth longer.
_GROUP_BYTES: Final = 64 * 1024 * 1024
_GROUP_ROWS: Final = 32_768
#: The header count of a record without headers.
_NO_HEADERS: Final = b"\0"
#: A record's attributes, none of which is in use.
_NO_ATTRIBUTES: Final = b"\0"


def encode_batches(
    *,
    key: pa.Array,
    value: pa.Array,
    headers: pa.Array,
    timestamp: Ints,
    codec: Codec,
    level: int | None = None,
    max_batch_bytes: int,
    max_records: int | None = None,
) -> list[EncodedBatch]:
    """Return rows as record batches, in order.

    Args:
        key, value: pa.BinaryArray with nulls, one element a row; ``key`` and ``value`` may be None for all null.
        headers: pa.ListArray of struct<key: string, value: binary>, null or empty for no headers; None if no row has any.
        timestamp: int64[n_rows], ms since the epoch.
        level: the codec's level, None for its default.
        max_batch_bytes: maximum size of a batch before compression, unless a single row is larger.
        max_records: maximum number of records in a batch.
    """
    parts = encode_parts(
        key=key,
        value=value,
        headers=headers,
        timestamp=timestamp,
        part_sizes=[len(timestamp)],
        codec=codec,
        level=level,
        max_batch_bytes=max_batch_bytes,
        max_records=max_records,
    )
    return [batch for _, batches in parts for batch in batches]


@dataclass(frozen=True, slots=True)
class _Rows:
    """What rows are encoded from. Each is of as many elements as there are rows.

    Attributes:
        key, value: pa.BinaryArray; None for all null.
        headers: pa.BinaryArray, as records hold them; None if no row has any.
        key_size, value_size: int64, in bytes, -1 for null.
        content: int64, the bytes of key, value and headers together.
        timestamp: int64, ms since the epoch.
    """

    key: pa.Array
    value: pa.Array
    headers: pa.Array
    key_size: Ints
    value_size: Ints
    content: Ints
    timestamp: Ints

    @classmethod
    def of(cls, key: pa.Array, value: pa.Array, headers: pa.Array, timestamp: Ints) -> _Rows:
        n_rows = len(timestamp)
        key, value = _as_binary(key), _as_binary(value)
        key_size, value_size = _sizes(key, n_rows), _sizes(value, n_rows)
        encoded = None if headers is None else _encode_headers(headers)
        header_size = np.ones(n_rows, dtype=np.int64) if encoded is None else _sizes(encoded, n_rows)
        content = np.maximum(key_size, 0) + np.maximum(value_size, 0) + header_size
        return cls(key, value, encoded, key_size, value_size, content, timestamp)

    def sliced(self, some: slice) -> _Rows:
        """Return views of some of the rows."""
        key, value, headers = (
            None if column is None else column[some] for column in (self.key, self.value, self.headers)
        )
        return _Rows(
            key, value, headers, self.key_size[some], self.value_size[some], self.content[some], self.timestamp[some]
        )

    def max_overhead(self) -> int:
        """Return the maximum size of a record beside its key, value and headers: its length, attributes, deltas, two lengths."""
        deltas = [int(self.timestamp.max()) - int(self.timestamp.min()), len(self.timestamp)]
        sizes = [int(size.max()) for size in (self.key_size, self.value_size)]
        largest = np.array([[*deltas, *sizes, int(self.content.max()) + 64]], dtype=np.int64)[0]
        return 1 + int(n_varint_bytes(zigzag(largest)).sum())


def encode_parts(  # noqa: PLR0913
    *,
    key: pa.Array,
    value: pa.Array,
    headers: pa.Array,
    timestamp: Ints,
    part_sizes: Sequence[int],
    codec: Codec,
    level: int | None = None,
    max_batch_bytes: int,
    max_records: int | None = None,
) -> Iterator[tuple[int, list[EncodedBatch]]]:
    """Yield ``(part, its batches)`` of rows that are one part behind the other, such as those of topic-partitions. They are
    encoded together: a call for each of many small parts takes several times as long.

    The batches of a part are in order, and counted from its first row. Those of a large part come in several lists.

    Args:
        part_sizes: how many rows each part has, at least one.
        others: as :func:`encode_batches` takes them.
    """
    n_rows = len(timestamp)
    if n_rows == 0:
        return
    rows = _Rows.of(key, value, headers, timestamp)
    compress = None if codec is Codec.NONE else compressor(codec, level)
    total = np.cumsum(rows.content + rows.max_overhead())
    part_ends = np.cumsum(part_sizes)
    part_starts = part_ends - part_sizes
    max_bytes = max_batch_bytes - batches.HEADER_BYTES
    first_rows = np.array(
        [
            row
            for start, end in zip(part_starts.tolist(), part_ends.tolist(), strict=True)
            for row in _first_rows(total, start, end, max_bytes, max_records)
        ],
        dtype=np.int64,
    )
    for first, last, group in _groups(total, first_rows):
        encoded = _encode_group(rows.sliced(slice(first, last)), group - first, codec, compress)
        part_of = part_starts.searchsorted(group, side="right") - 1
        for batch, first_row in zip(encoded, (group - part_starts[part_of]).tolist(), strict=True):
            batch.first_row = first_row
        for part, some in groupby(zip(part_of.tolist(), encoded, strict=True), key=itemgetter(0)):
            yield part, [batch for _, batch in some]


def _groups(total: Ints, first_rows: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Yield ``(first row, end, first rows of the batches)`` of each group of complete batches."""
    ends = np.append(first_rows[1:], len(total))
    bytes_before = total[ends - 1]
    nth = 0
    while nth < len(first_rows):
        first = int(first_rows[nth])
        before = int(total[first - 1]) if first else 0
        fitting = bytes_before.searchsorted(before + _GROUP_BYTES, side="right")
        after = max(nth + 1, min(int(fitting), int(ends.searchsorted(first + _GROUP_ROWS, side="right"))))
        yield first, int(ends[after - 1]), first_rows[nth:after]
        nth = after


def _encode_group(
    rows: _Rows, first_rows: Ints, codec: Codec, compress: Callable[[memoryview], bytes] | None
) -> list[EncodedBatch]:
    timestamp = rows.timestamp
    n_rows = np.diff(np.append(first_rows, len(timestamp)))
    records = _encode_records(rows, np.repeat(first_rows, n_rows))
    _, offsets, data = records.buffers()
    payload = memoryview(data)
    ends = np.frombuffer(offsets, dtype=np.int32)[np.append(first_rows, len(timestamp))].tolist()
    encoded = []
    for nth, (first, n_records, base_timestamp, max_timestamp) in enumerate(
        zip(
            first_rows.tolist(),
            n_rows.tolist(),
            timestamp[first_rows].tolist(),
            np.maximum.reduceat(timestamp, first_rows).tolist(),
            strict=True,
        )
    ):
        body = payload[ends[nth] : ends[nth + 1]]
        encoded.append(
            EncodedBatch(
                data=_batch(
                    body if compress is None else compress(body), codec, n_records, base_timestamp, max_timestamp
                ),
                n_records=n_records,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                first_row=first,
            )
        )
    return encoded


def _first_rows(total: Ints, first: int, end: int, max_bytes: int, max_records: int | None) -> Iterator[int]:
    """Yield the first row of each batch of the rows from ``first`` to ``end``; ``total`` is the cumulative size of all rows, in
    bytes.
    """
    while first < end:
        yield first
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(total.searchsorted(before + max_bytes, side="right")))
        first = last if max_records is None else min(last, first + max_records)


def _encode_records(rows: _Rows, batch_start: Ints) -> pa.BinaryArray:
    """Return a pa.BinaryArray of each row as a record; ``batch_start`` is the first row of each row's batch, int64[n_rows]."""
    n = len(rows.timestamp)
    timestamp_delta = varints(rows.timestamp - rows.timestamp[batch_start])
    offset_delta = varints(np.arange(n, dtype=np.int64) - batch_start)
    key_length, value_length = varints(rows.key_size), varints(rows.value_size)
    n_bytes = rows.content + 1
    for word in (*timestamp_delta, *offset_delta, *key_length, *value_length):
        n_bytes += word.sizes
    segments: list[RowSegment] = [
        *varints(n_bytes),
        *constant(_NO_ATTRIBUTES, n),
        *timestamp_delta,
        *offset_delta,
        *key_length,
    ]
    if rows.key is not None:
        segments.append(BytesSegment(rows.key))
    segments += value_length
    if rows.value is not None:
        segments.append(BytesSegment(rows.value))
    segments += constant(_NO_HEADERS, n) if rows.headers is None else [BytesSegment(rows.headers)]
    return join_segments(segments, n)


def _batch(
    body: bytes | memoryview, codec: Codec, n_records: int, base_timestamp: int, max_timestamp: int
) -> bytearray:
    """Return header and records of one batch; its producer fields are not set."""
    length = batches.HEADER_BYTES - batches.LOG_OVERHEAD + len(body)
    header = batches.HEADER.pack(
        0, length, -1, batches.MAGIC, 0, codec, n_records - 1, base_timestamp, max_timestamp, -1, -1, -1, n_records
    )
    data = bytearray().join((header, body))
    batches.write_crc(data)
    return data


def _encode_headers(headers: pa.Array) -> pa.BinaryArray:
    """Return a pa.BinaryArray of each row's headers as a record holds them: their count, then keys and values with lengths."""
    n_rows = len(headers)
    counts = to_numpy(pc.list_value_length(headers), null=0).astype(np.int64)
    entries = headers.flatten()
    if entries.null_count:  # its fields may have any bytes
        raise ValueError("a header is null")
    keys = _as_binary(entries.field("key").cast(pa.binary()))
    values = _as_binary(entries.field("value"))
    if keys.null_count:
        raise ValueError("a header has a null key")
    n_entries = len(entries)
    key_size, value_size = _sizes(keys, n_entries), _sizes(values, n_entries)
    encoded = join_segments(
        [*varints(key_size), BytesSegment(keys), *varints(value_size), BytesSegment(values)], n_entries
    )
    # A row's entries are adjacent, so the boundaries of rows are boundaries of entries.
    entry_offsets = np.zeros(n_entries + 1, dtype=np.int64)
    np.cumsum(_sizes(encoded, n_entries), out=entry_offsets[1:])
    row_entries = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(counts, out=row_entries[1:])
    rows = bytes_segment(entry_offsets[row_entries] + int(bounds(encoded)[0]), encoded.buffers()[2] or b"")
    return join_segments([*varints(counts), rows], n_rows)


def _as_binary(array: pa.Array) -> pa.BinaryArray:
    """Return the same values as one pa.BinaryArray."""
    if array is None:
        return None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def _sizes(array: pa.Array, n_rows: int) -> Ints:
    """Return bytes of each element, -1 for null; int64[n_rows]."""
    if array is None:
        return np.full(n_rows, -1, dtype=np.int64)
    sizes: Ints = np.diff(bounds(array)).astype(np.int64)
    if array.null_count:
        sizes[~validity(array)] = -1
    return sizes
