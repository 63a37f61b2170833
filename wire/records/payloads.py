"""The records of many batches, decompressed, one batch behind the other in one buffer.

Owns that buffer: how large it is made, and which batches are in it. It does not read the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pykafka_wire.wire.errors import CorruptBatchError, WireError
from pykafka_wire.wire.records import batches
from pykafka_wire.wire.records.batch_framing import FramedBatches
from pykafka_wire.wire.records.compression import USUAL_RATIO, Decompressor, codec_of
from pykafka_wire.wire.records.growing_buffer import GrowingBuffer
from pykafka_wire.wire.records.record_scanner import MIN_RECORD_BYTES
from pykafka_wire.wire.records.varints import Ints, Octets

#: Arrow's binary arrays have int32 offsets; one call decodes at most this much, well below.
MAX_BUFFER_BYTES: Final = 2**31 - 2**20


def payloads(
    framed: FramedBatches, rows: Ints, max_bytes: int, budget_bytes: int, *, may_overwrite: bool
) -> tuple[Octets, Ints, Ints]:
    """``(buffer, starts, ends)``: the decompressed records of the batches ``rows``, or of as many of the first as fit into
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
        buffer, ends = _decompressed(framed, rows, codecs, starts, ends, max_bytes, budget_bytes)
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


def _decompressed(
    framed: FramedBatches,
    rows: Ints,
    codecs: Sequence[int],
    starts: Ints,
    ends: Ints,
    max_bytes: int,
    budget_bytes: int,
) -> tuple[Octets, Ints]:
    """``(buffer, ends)`` of the first of the batches, which lie in the frame from ``starts`` to ``ends``. Each is decompressed into
    its place in the buffer. When they were joined at the end, they took twice the memory, new for each response, and much of the
    time went into page faults."""
    sizes = ends - starts
    usual = USUAL_RATIO * int(sizes.sum())
    buffer = GrowingBuffer(min(budget_bytes, usual) + USUAL_RATIO * int(sizes.max(initial=0)))
    decompressor = Decompressor(max_bytes)
    found: list[int] = []
    for row, codec, start, end in zip(rows.tolist(), codecs, starts.tolist(), ends.tolist(), strict=True):
        if buffer.size >= budget_bytes:
            break
        try:
            decompressor.decompress_into(codec_of(codec), framed.frame[start:end], buffer)
        except WireError as error:
            error.offset = int(framed.headers["base_offset"][row])
            raise
        found.append(buffer.size)
    return buffer.written(), np.array(found, dtype=np.int64)
