"""Which record batches belong to aborted transactions: a ``read_committed`` reader drops them.

A Fetch response names the aborted transactions of its range, each with its producer and its first offset; a control batch in the
log, the marker, ends each. https://kafka.apache.org/documentation/#controlbatch
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pykafka_wire.wire.arrow.varints import read_varints
from pykafka_wire.wire.errors import CorruptBatchError
from pykafka_wire.wire.records import batches
from pykafka_wire.wire.records.batch_framing import FramedBatches, RecordSlice

#: A control record's key: a version and a type.
_CONTROL_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0


def aborted_batches(framed: FramedBatches, slices: Sequence[RecordSlice]) -> npt.NDArray[np.bool_]:
    """Return bool[n_batches]: which batches belong to aborted transactions: transactional batches of a producer between the first
    offset of its aborted transaction and the abort marker.
    """
    aborted = np.zeros(len(framed.headers), dtype=bool)
    if not any(part.aborted for part in slices):
        return aborted
    index = -1
    rest: list[tuple[int, int]] = []
    aborting: set[int] = set()
    for nth, (slice_index, header) in enumerate(zip(framed.slice_indexes.tolist(), framed.headers, strict=True)):
        if slice_index != index:
            index = slice_index
            rest = sorted(slices[slice_index].aborted, key=lambda transaction: transaction[1], reverse=True)
            aborting = set()
        last_offset = int(header["base_offset"]) + int(header["last_offset_delta"])
        while rest and rest[-1][1] <= last_offset:
            aborting.add(rest.pop()[0])
        producer_id, attributes = int(header["producer_id"]), int(header["attributes"])
        if attributes & batches.CONTROL:
            records = framed.frame[int(framed.starts[nth]) + batches.HEADER_BYTES : int(framed.ends[nth])]
            # The log cleaner may remove the marker from its batch: the empty batch ends the transaction too.
            if producer_id in aborting and (
                not header["records_count"] or _is_abort(records, int(header["base_offset"]))
            ):
                aborting.discard(producer_id)
        elif attributes & batches.TRANSACTIONAL and producer_id in aborting:
            aborted[nth] = True
    return aborted


def _is_abort(records: memoryview, offset: int) -> bool:
    """Return whether a control batch is an abort marker: its record's key is a version and a type."""
    payload = np.frombuffer(records, dtype=np.uint8)
    start = size = np.zeros(1, dtype=np.int64)
    if len(payload):
        _, position = read_varints(payload, start)
        position = position + 1  # attributes
        for _ in range(2):
            _, position = read_varints(payload, position)
        size, start = read_varints(payload, position)
    if not _CONTROL_KEY.size <= int(size[0]) <= len(payload) - int(start[0]):
        raise CorruptBatchError("a control batch has no valid type", offset=offset)
    _, kind = _CONTROL_KEY.unpack_from(records, int(start[0]))
    return bool(kind == _ABORT)
