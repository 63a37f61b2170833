"""The whole batches of a Fetch response, in one piece of memory, their headers read at once.

Owns what frames a batch: its length, its format, its CRC. What is inside is :mod:`~pykafka_wire.wire.records.decode`'s.
Messages of magic 0 and 1 become batches here (:mod:`~pykafka_wire.wire.records.legacy`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from pykafka_wire.wire.errors import CorruptBatchError, UnsupportedVersionError
from pykafka_wire.wire.records import batches, legacy
from pykafka_wire.wire.records.varints import Ints

_HEAD: Final = struct.Struct(">qi4xb")


@dataclass(frozen=True, slots=True)
class RecordSlice:
    """The record bytes that a Fetch response holds for one topic-partition.

    Attributes:
        records: batches one after the other; the last one may be cut short.
        start_offset, end_offset: records outside of ``[start_offset, end_offset)`` are dropped.
        aborted: ``(producer id, first offset)`` of each aborted transaction, as the response lists them.
        batch_starts: where the batches of `records` begin, if they were scanned already; else None.
            See :func:`~pykafka_wire.wire.records.batches.whole_batches`.
    """

    records: memoryview
    start_offset: int
    end_offset: int
    aborted: Sequence[tuple[int, int]] = ()
    batch_starts: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class FramedBatches:
    """The whole batches of all slices, in order, in one frame; arrays of one element a batch.

    Attributes:
        is_copy: whether they were copied into `frame`, and are not where they came in.
        starts, ends: int64, where each batch begins and ends in `frame`.
        slice_indexes: int32, which slice each is of.
        headers: of :data:`~pykafka_wire.wire.records.batches.HEADER_DTYPE`.
    """

    frame: memoryview
    is_copy: bool
    starts: Ints
    ends: Ints
    slice_indexes: npt.NDArray[np.int32]
    headers: Any


def frame_batches(slices: Sequence[RecordSlice], *, check_crc: bool, max_bytes: int) -> FramedBatches:
    """The whole batches of all slices: where they lie, if that is one frame without old messages, else copied into one.

    Raises:
        CorruptBatchError: a length is invalid, or old messages are corrupt.
        UnsupportedVersionError: a batch of an unknown format, or old messages of an unknown codec.
    """
    each = [
        batches.whole_batches(piece.records)[0] if piece.batch_starts is None else piece.batch_starts
        for piece in slices
    ]
    counts = [len(starts) for starts in each]
    frame = _common_frame(slices)
    if frame is not None:
        starts = np.array([start for starts in each for start in starts], dtype=np.int64)
        starts += np.repeat(_origins(slices, frame), counts)
        octets = np.frombuffer(frame, dtype=np.uint8)
        is_batch = octets.take(starts + batches.MAGIC_AT) == batches.MAGIC
        if is_batch.all() and int(starts.max(initial=0)) + batches.HEADER_BYTES <= len(octets):
            return _located(frame, starts, counts, is_copy=False)
    copied: list[memoryview] = []
    for nth, (piece, places) in enumerate(zip(slices, each, strict=True)):
        made = [_batch(piece.records, place, check_crc, max_bytes) for place in places]
        copied += (batch for batch in made if len(batch))
        counts[nth] = sum(len(batch) > 0 for batch in made)
    sizes = np.array([len(batch) for batch in copied], dtype=np.int64)
    return _located(memoryview(b"".join(copied)), np.cumsum(sizes) - sizes, counts, is_copy=True)


def _batch(records: memoryview, start: int, check_crc: bool, max_bytes: int) -> memoryview:
    """One batch; old messages as one batch, and a filler message, which holds no record, as nothing."""
    base_offset, length, magic = _HEAD.unpack_from(records, start)
    if magic not in (0, 1, batches.MAGIC):
        raise UnsupportedVersionError(
            f"a record batch of magic {magic}, which no Kafka release writes", offset=base_offset
        )
    if length < batches.least_length(magic):
        raise _too_short(length, base_offset)
    entry = records[start : start + batches.LOG_OVERHEAD + length]
    if magic == batches.MAGIC:
        return entry
    return legacy.convert(entry, check_crc=check_crc, max_bytes=max_bytes) or memoryview(b"")


def _located(frame: memoryview, starts: Ints, counts: Sequence[int], *, is_copy: bool) -> FramedBatches:
    """The batches that begin at ``starts``, all laid out as magic 2; ``counts`` of each slice."""
    if len(starts):
        n_places = len(frame) - batches.HEADER_BYTES + 1
        octets = np.ndarray((n_places,), f"V{batches.HEADER_BYTES}", frame, strides=(1,))
        headers = octets[starts].view(batches.HEADER_DTYPE)
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
    """What all slices are views of, if that is one and the same."""
    frames = {id(piece.records.obj): piece.records.obj for piece in slices if len(piece.records)}
    return memoryview(next(iter(frames.values()))) if len(frames) == 1 else None


def _origins(slices: Sequence[RecordSlice], frame: memoryview) -> Ints:
    """Where each slice begins in the frame."""
    first = _address(frame)
    return np.array([_address(piece.records) - first if len(piece.records) else 0 for piece in slices], dtype=np.int64)


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
