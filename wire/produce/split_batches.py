"""Divides encoded record batches: into batches that fit, into halves, and into records that no broker takes and the others.

Owns what it takes to decode a batch and encode its records anew, with their rows, codec and level. It knows no broker:
what a broker rejects is :mod:`~pykafka_wire.wire.produce.response_handler`'s. Nothing here runs for batches that are accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pykafka_wire.wire.arrow.arrays import to_arrow, validity
from pykafka_wire.wire.arrow.varints import Ints
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.records import batches
from pykafka_wire.wire.records.batch_framing import RecordSlice
from pykafka_wire.wire.records.batches import EncodedBatch, read_header
from pykafka_wire.wire.records.compression import codec_of
from pykafka_wire.wire.records.decode import Columns, DecodedRecords, decode
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_EVERYTHING: Final = Columns(headers=True, timestamp_type=False)
_NO_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecords:
    """Records that no broker will accept, as columns of `n_records`, and why.

    Attributes:
        error: what would have failed the producer; names the place and the rows.
        reasons: the broker's message for each record, the error's where the broker sent none.
        row: int64[n_records], as :attr:`EncodedBatch.first_row` counts.
        key, value, headers, timestamp: as :func:`~pykafka_wire.wire.records.encode.encode_batches` takes them.
    """

    topic_partition: TopicPartition
    error: BrokerError
    reasons: tuple[str, ...]
    row: Ints
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    timestamp: Ints

    @property
    def n_records(self) -> int:
        return len(self.timestamp)


def split_to_size(encoded: EncodedBatch, max_bytes: int, level: int | None) -> Iterable[EncodedBatch]:
    """Return a batch that compression made larger than its records, as batches that fit; a single record as it is."""
    if len(encoded.data) <= max_bytes or encoded.n_records == 1:
        return (encoded,)
    return (part for half in split_in_half(encoded, level) for part in split_to_size(half, max_bytes, level))


def split_in_half(encoded: EncodedBatch, level: int | None) -> list[EncodedBatch]:
    """Return the records of a batch of two or more, as two batches or more: none has more than about half of the bytes, unless
    one record has, nor more than half of the records.

    Their producer fields are blank. ``level`` is the codec's, as it was.
    """
    records = _decode(encoded)
    n_bytes = sum(int(column.nbytes) for column in (records.key, records.value, records.headers))
    every = np.arange(records.n_records)
    return _encode(encoded, records, every, level, max_bytes=n_bytes // 2, max_records=(records.n_records + 1) // 2)


def take_out(
    tp: TopicPartition, encoded: EncodedBatch, faults: Mapping[int, str | None], error: BrokerError, level: int | None
) -> tuple[RejectedRecords, list[EncodedBatch]]:
    """Return the records of a batch at the indexes in ``faults``, and a batch of the others if there are any.

    ``faults`` has ascending indexes, and the broker's message for each record where it sent one.
    """
    records = _decode(encoded)
    out = np.array(list(faults), dtype=np.int64)
    wanted = to_arrow(out)
    taken = RejectedRecords(
        topic_partition=tp,
        error=error,
        reasons=tuple(words or error.message for words in faults.values()),
        row=encoded.first_row + out,
        key=records.key.take(wanted),
        value=records.value.take(wanted),
        headers=records.headers.take(wanted),
        timestamp=records.timestamp[out],
    )
    rest = np.delete(np.arange(records.n_records), out)
    return taken, _encode(encoded, records, rest, level)


def having_key(encoded: EncodedBatch, indexes: Iterable[int]) -> list[int]:
    """Return the given indexes of records that have a key."""
    has_key = validity(_decode(encoded).key)
    return [index for index in indexes if has_key[index]]


def _decode(encoded: EncodedBatch) -> DecodedRecords:
    batch = RecordSlice(memoryview(encoded.data), 0, encoded.n_records)
    return decode([batch], _EVERYTHING, read_committed=False, check_crc=False)


def _encode(
    encoded: EncodedBatch,
    records: DecodedRecords,
    rows: Ints,
    level: int | None,
    *,
    max_bytes: int = _NO_LIMIT,
    max_records: int | None = None,
) -> list[EncodedBatch]:
    wanted = to_arrow(rows)
    pieces = encode_batches(
        key=records.key.take(wanted),
        value=records.value.take(wanted),
        headers=records.headers.take(wanted),
        timestamp=records.timestamp[rows],
        codec=codec_of(read_header(memoryview(encoded.data)).attributes),
        level=level,
        max_batch_bytes=batches.HEADER_BYTES + max_bytes,
        max_records=max_records,
    )
    for piece in pieces:
        piece.first_row = encoded.first_row + int(rows[piece.first_row])
    return pieces
