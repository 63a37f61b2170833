"""The complete batches of a Fetch response in one buffer, and all their headers in one array.

Owns the framing of a batch: its length, its format and its CRC. :mod:`~pykafka_wire.wire.records.decode` reads the records
inside. Messages of magic 0 and 1 are converted to batches here (:mod:`~pykafka_wire.wire.records.legacy`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from pykafka_wire.wire.arrow.varints import Ints
from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError
from pykafka_wire.wire.records import batches, legacy

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD: Final = struct.Struct(">qi4xb")


@dataclass(frozen=True, slots=True)
class RecordSlice:
    """The record bytes that a Fetch response holds for one topic-partition.

    Attributes:
        records: consecutive batches; the last one may be incomplete.
        start_offset, end_offset: the range to read; other records are dropped.
        aborted: ``(producer id, first offset)`` of each aborted transaction, as the response lists them.
        batch_starts: where each batch of `records` begins, if that is known already; else None.
            See :func:`~pykafka_wire.wire.records.batches.complete_batches`.
    """

    records: memoryview
    start_offset: int
    end_offset: int
    aborted: Sequence[tuple[int, int]] = ()
    batch_starts: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class FramedBatches:
    """The complete batches of all slices, in order, in one buffer. Arrays have one element a batch.

    Attributes:
        is_copy: whether `frame` is a copy, not the response's own memory.
        starts, ends: int64: where each batch begins and ends in `frame`.
        slice_indexes: int32: the slice that each batch is from.
        headers: of :data:`~pykafka_wire.wire.records.batches.HEADER_DTYPE`.
    """

    frame: memoryview
    is_copy: bool
    starts: Ints
    ends: Ints
    slice_indexes: npt.NDArray[np.int32]
    headers: pa.Array


def frame_batches(slices: Sequence[RecordSlice], *, check_crc: bool, max_bytes: int) -> FramedBatches:
    """Return the complete batches of all slices: a view if all are in one buffer and of magic 2, else a copy.

    Raises:
        CorruptBatchError: a length is invalid, or old messages are corrupt.
        UnsupportedVersionError: a batch of an unknown format, or old messages of an unknown codec.
    """
    starts_by_slice = [
        batches.complete_batches(part.records)[0] if part.batch_starts is None else part.batch_starts for part in slices
    ]
    counts = [len(starts) for starts in starts_by_slice]
    frame = _common_frame(slices)
    if frame is not None:
        starts = np.array([start for starts in starts_by_slice for start in starts], dtype=np.int64)
        starts += np.repeat(_origins(slices, frame), counts)
        buffer = np.frombuffer(frame, dtype=np.uint8)
        is_batch = buffer.take(starts + batches.MAGIC_AT) == batches.MAGIC
        if is_batch.all() and int(starts.max(initial=0)) + batches.HEADER_BYTES <= len(buffer):
            return _read_headers(frame, starts, counts, is_copy=False)
    copied: list[memoryview] = []
    for nth, (part, places) in enumerate(zip(slices, starts_by_slice, strict=True)):
        made = [_as_batch(part.records, place, check_crc, max_bytes) for place in places]
        copied += (batch for batch in made if len(batch))
        counts[nth] = sum(len(batch) > 0 for batch in made)
    sizes = np.array([len(batch) for batch in copied], dtype=np.int64)
    return _read_headers(memoryview(b"".join(copied)), np.cumsum(sizes) - sizes, counts, is_copy=True)


def _as_batch(records: memoryview, start: int, check_crc: bool, max_bytes: int) -> memoryview:
    """Return one batch. Old messages become one batch; a filler message, which has no record, becomes empty."""
    base_offset, length, magic = _HEAD.unpack_from(records, start)
    if magic not in (0, 1, batches.MAGIC):
        raise UnsupportedVersionError(f"a record batch of magic {magic}, an unknown format", offset=base_offset)
    if length < batches.min_length(magic):
        raise _too_short(length, base_offset)
    batch = records[start : start + batches.LOG_OVERHEAD + length]
    if magic == batches.MAGIC:
        return batch
    return legacy.convert(batch, check_crc=check_crc, max_bytes=max_bytes) or memoryview(b"")


def _read_headers(frame: memoryview, starts: Ints, counts: Sequence[int], *, is_copy: bool) -> FramedBatches:
    """Return the batches that begin at ``starts``, all in the layout of magic 2; ``counts`` is the number of batches per slice."""
    if len(starts):
        n_places = len(frame) - batches.HEADER_BYTES + 1
        buffer = np.ndarray((n_places,), f"V{batches.HEADER_BYTES}", frame, strides=(1,))
        headers = buffer[starts].view(batches.HEADER_DTYPE)
    else:
        headers = np.empty(0, dtype=batches.HEADER_DTYPE)
    lengths = headers["batch_length"].astype(np.int64)
    wrong = np.flatnonzero(lengths < batches.MIN_LENGTH)
    if len(wrong):
        raise _too_short(int(lengths[wrong[0]]), int(headers["base_offset"][wrong[0]]))
    return FramedBatches(
        frame=frame,
        is_copy=is_copy,
        starts=starts,
        ends=starts + batches.LOG_OVERHEAD + lengths,
        slice_indexes=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        headers=headers,
    )


def _too_short(length: int, offset: int) -> CorruptBatchError:
    return CorruptBatchError(f"a batch of {length} bytes is shorter than its header", offset=offset)


def _common_frame(slices: Sequence[RecordSlice]) -> memoryview | None:
    """Return the buffer that all slices are views of, None if there are several."""
    frames = {id(part.records.obj): part.records.obj for part in slices if len(part.records)}
    return memoryview(next(iter(frames.values()))) if len(frames) == 1 else None


def _origins(slices: Sequence[RecordSlice], frame: memoryview) -> Ints:
    """Return the position of each slice in the frame; int64[n_slices]."""
    first = _address(frame)
    return np.array([_address(part.records) - first if len(part.records) else 0 for part in slices], dtype=np.int64)


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])


def check_crcs(framed: FramedBatches) -> None:
    """Check the CRC of every batch.

    Raises:
        CorruptBatchError: one does not match.
    """
    frame = framed.frame
    covered = (framed.starts + batches.CRC_COVERS_FROM).tolist()
    for nth, (start, end, crc) in enumerate(
        zip(covered, framed.ends.tolist(), framed.headers["crc"].tolist(), strict=True)
    ):
        if crc32c(frame[start:end]) != crc:
            raise batches.crc_error(crc, crc32c(frame[start:end]), int(framed.headers["base_offset"][nth]))
