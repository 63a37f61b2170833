"""JSON documents as variants, as :mod:`~pykafka_wire.values.single_json.variant` makes one; those of flat objects together.

:mod:`~pykafka_wire.values.json.flat_objects` finds the members of objects that have them in one order. An object's bytes are a head
(kinds of numbers, ids of keys, offsets) and its members' values one after the other: of all rows with the same members, each is a
few words and the bytes of texts. Rows that this does not read are left: nested values, escapes, exponents, more than 18 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.values.bulk.arrays import Flags, Ints, reassemble
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.json.flat_objects import (
    MemberKind,
    ObjectLayout,
    UnreadableError,
    are_plain,
    layout_of,
    read_flat,
)
from pykafka_wire.values.single_json.text import parse_json
from pykafka_wire.values.single_json.variant import (
    NULL,
    VariantEncoder,
    VariantNumbers,
    field_order,
    variant_metadata,
    variant_of,
)
from pykafka_wire.wire.arrow.arrays import to_arrow, validity
from pykafka_wire.wire.arrow.row_segments import (
    BytesSegment,
    RowSegment,
    WordSegment,
    byte_lengths,
    bytes_segment,
    join_segments,
)

_OPEN, _CLOSE = b"{}"
#: For fewer rows with the same members, all calls of NumPy take more time than one row after the other.
_MIN_ROWS: Final = 256
_MAX_MEMBERS: Final = 255
#: Documents that are looked at for the kind of a member that is null in others.
_SAMPLED: Final = 32
_TYPES: Final = {
    MemberKind.TEXT: pa.string(),
    MemberKind.NUMBER: pa.string(),
    MemberKind.FLAG: pa.bool_(),
    MemberKind.NULL: None,
}
_NUMBER: Final = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_MAX_DIGITS: Final = 18
_SHORT_TEXT: Final = 64
_LAST_DIGIT: Final = ord("9")


@dataclass(frozen=True, slots=True)
class VariantReader:
    """Reads JSON documents as variants: see :class:`~pykafka_wire.values.converter.PayloadReader`.

    Attributes:
        column_type: variant's, as Spark gives it: its fields may be in another order.
        numbers: what numbers become that no decimal holds.
    """

    column_type: pa.DataType
    numbers: VariantNumbers = "double"

    def read_one(self, payload: bytes) -> Any:
        return variant_of(parse_json(payload), self.numbers)

    def read_column(self, payloads: Payloads) -> tuple[pa.Array, Flags]:
        groups, rest = flat_variants(payloads, variant_metadata)
        parts = [
            (rows, self._column(values, pa.repeat(pa.scalar(metadata, pa.binary()), len(rows))))
            for rows, values, metadata in groups
        ]
        encoder, rows = VariantEncoder(self.numbers), np.flatnonzero(rest)
        failed = np.zeros(len(payloads), dtype=np.bool_)
        variants: list[tuple[bytes, bytes]] = []
        for row in rows.tolist():
            try:
                variants.append(encoder.encode(parse_json(payloads[row])))
            except Exception:  # which read_one raises again, for the reason
                variants.append((NULL, NULL))
                failed[row] = True
        columns = (pa.array([variant[nth] for variant in variants], pa.binary()) for nth in (0, 1))
        if len(rows):
            parts.append((rows, self._column(*columns)))
        return reassemble(len(payloads), self.column_type, parts), failed

    def _column(self, values: pa.Array, metadata: pa.Array) -> pa.Array:
        columns = {"value": values, "metadata": metadata}
        return pa.StructArray.from_arrays(
            [columns[field.name] for field in self.column_type], fields=list(self.column_type)
        )


def flat_variants(
    payloads: Payloads, metadata_of: Callable[[tuple[str, ...]], bytes]
) -> tuple[list[tuple[Ints, pa.Array, bytes]], Flags]:
    """Return groups of rows with the same members, as ``(rows, pa.BinaryArray of their values, their metadata)``; bool[n]:
    what is left.

    Args:
        metadata_of: the metadata of keys.
    """
    remaining = np.ones(len(payloads), dtype=np.bool_)
    first = payloads.data.take(payloads.starts, mode="clip") == _OPEN
    last = payloads.data.take(payloads.ends - 1, mode="clip") == _CLOSE
    rows = np.flatnonzero(first & last & (payloads.ends - payloads.starts > 1))
    if len(rows) < _MIN_ROWS:
        return [], remaining
    documents = Payloads.of(payloads.take(rows).array())
    plain = np.flatnonzero(are_plain(documents))
    if len(plain) < _MIN_ROWS:
        return [], remaining
    rows, documents = rows[plain], documents.take(plain)
    layout = _layout(documents)
    if layout is None:
        return [], remaining
    has: dict[str, Flags] = {}
    try:
        columns, unread = read_flat(documents, layout, has)
    except UnreadableError:
        return [], remaining
    groups = []
    for names, index in _same_members(layout, has, ~unread):
        segments, sizes, right = _members(layout, names, {name: columns.get(name) for name in names}, index)
        for size in (1, 2, 3):
            some = np.flatnonzero(right & (_offset_bytes(sizes[-1]) == size))
            if len(some):
                chosen = [_take(segment, some) for segment in segments]
                objects = join_segments([_head(names, sizes[:, some], size), *chosen], len(some))
                groups.append((rows[index[some]], objects, metadata_of(names)))
                remaining[rows[index[some]]] = False
    return groups, remaining


def _layout(documents: Payloads) -> ObjectLayout | None:
    """Return the members of the richest of the first documents; of those that are null in it, the kind that another one shows."""
    layout = layout_of(documents, np.arange(len(documents)), {})
    if layout is None or len(layout.members) > _MAX_MEMBERS:
        return None
    kinds = {member.name: member.kind for member in layout.members}
    if MemberKind.NULL in kinds.values():
        for row in range(_SAMPLED):
            other = layout_of(documents, np.array([row]), {})
            for member in other.members if other is not None else ():
                if kinds.get(member.name) is MemberKind.NULL:
                    kinds[member.name] = member.kind
    members = (replace(member, kind=kinds[member.name], type=_TYPES[kinds[member.name]]) for member in layout.members)
    return replace(layout, members=tuple(members))


def _same_members(layout: ObjectLayout, has: dict[str, Flags], readable: Flags) -> list[tuple[tuple[str, ...], Ints]]:
    """Return the members that rows have in common, and these rows; without those that few have."""
    there = np.stack([has[member.name] for member in layout.members], axis=1)
    index = np.flatnonzero(readable)
    _, patterns = np.unique(np.packbits(there[index], axis=1), axis=0, return_inverse=True)
    patterns = patterns.reshape(-1)  # of NumPy 2.0 it has two dimensions
    groups = []
    for pattern in np.flatnonzero(np.bincount(patterns) >= _MIN_ROWS).tolist():
        some = index[patterns == pattern]
        names = tuple(member.name for nth, member in enumerate(layout.members) if there[some[0], nth])
        if names:
            groups.append((names, some))
    return groups


def _members(
    layout: ObjectLayout, names: Sequence[str], columns: dict[str, pa.Array], index: Ints
) -> tuple[list[RowSegment], Ints, Flags]:
    """Return the values' bytes, int64[members + 1, n] of where each begins and the last ends, and bool[n]: which rows have
    values.
    """
    kinds = {member.name: member.kind for member in layout.members}
    segments: list[RowSegment] = []
    ends = np.zeros((len(names) + 1, len(index)), dtype=np.int64)
    right = np.ones(len(index), dtype=np.bool_)
    for nth, name in enumerate(names):
        column = columns[name]
        values = pa.nulls(len(index), pa.string()) if column is None else column.take(to_arrow(index))
        if kinds[name] is MemberKind.TEXT:
            written = _texts(values)
        elif kinds[name] is MemberKind.NUMBER:
            written, fits = _numbers(values)
            right &= fits
        else:
            flags = np.zeros(len(index), dtype=np.uint64) if column is None else _flags(values)
            written = [WordSegment(flags, 1, 1)]
        segments += written
        ends[nth + 1] = ends[nth] + sum(_sizes(segment) for segment in written)
    return segments, ends, right


def _texts(values: pa.Array) -> list[RowSegment]:
    present = validity(values)
    lengths = np.where(present, byte_lengths(values), 0).astype(np.uint64)
    is_short = lengths < _SHORT_TEXT
    head = np.where(is_short, lengths << np.uint64(2) | np.uint64(1), lengths << np.uint64(8) | np.uint64(0x40))
    sizes = np.where(is_short, 1, 5)
    if not present.all():
        head[~present], sizes[~present] = 0, 1
    return [WordSegment(head, sizes, 5), BytesSegment(values.cast(pa.binary()))]


def _flags(values: pa.Array) -> pa.Array:
    present = validity(values)
    is_true = np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    return np.where(present, np.where(is_true, 4, 8), 0).astype(np.uint64)


def _numbers(texts: pa.Array) -> tuple[list[RowSegment], Flags]:
    """Return integers of 1, 2, 4 or 8 bytes, and decimals of 4 or 8; bool[n]: which of them are written so."""
    present = validity(texts)
    texts = texts.fill_null("0")
    digits_only = (
        int(np.frombuffer(texts.buffers()[2] or b"0", dtype=np.uint8).max()) <= _LAST_DIGIT
    )  # no letters: Arrow reads 0x1
    try:
        if not digits_only:
            raise pa.ArrowInvalid("letters")
        numbers, scales = texts.cast(pa.int64()), np.zeros(len(texts), dtype=np.int64)
        right, is_decimal = np.ones(len(texts), dtype=np.bool_), np.zeros(len(texts), dtype=np.bool_)
    except pa.ArrowInvalid:  # a point, an exponent, or more than 64 bits
        right = np.asarray(pc.match_substring_regex(texts, _NUMBER).to_numpy(zero_copy_only=False))
        texts = pc.if_else(pa.array(right), texts, pa.scalar("0"))
        points = np.asarray(pc.find_substring(texts, ".").to_numpy(zero_copy_only=False), dtype=np.int64)
        is_decimal = points >= 0
        scales = np.where(is_decimal, byte_lengths(texts) - points - 1, 0)
        digits = pc.replace_substring(texts, ".", "")
        is_long = byte_lengths(digits) > _MAX_DIGITS  # of which a sign or zeros may be a part
        if is_long.any():
            right &= ~is_long
            digits = pc.if_else(pa.array(is_long), pa.scalar("0"), digits)
        numbers = digits.cast(pa.int64())
    unscaled = numbers.to_numpy(zero_copy_only=False)
    if not len(unscaled):
        return [], right
    size = np.full(len(unscaled), 8, dtype=np.int64)
    for bits, n_bytes in ((32, 4), (16, 2), (8, 1)):
        size[(unscaled >= -(1 << bits - 1)) & (unscaled < 1 << bits - 1)] = n_bytes
    header = (np.log2(size).astype(np.int64) + 3) << 2
    is_small = (np.abs(unscaled) < 10**9) & (scales <= 9)
    size = np.where(is_decimal, np.where(is_small, 4, 8), size)
    header = np.where(is_decimal, np.where(is_small, 0x20, 0x24) | scales << 8, header)
    header_size, size = np.where(is_decimal, 2, 1), np.where(present, size, 0)
    header, header_size = np.where(present, header, 0), np.where(present, header_size, 1)
    bits = (
        unscaled.view(np.uint64)
        & np.array([0, 0xFF, 0xFFFF, 0, 0xFFFFFFFF, 0, 0, 0, (1 << 64) - 1], dtype=np.uint64)[size]
    )
    return [WordSegment(header.astype(np.uint64), header_size, 2), WordSegment(bits, size, 8)], right


def _head(names: tuple[str, ...], ends: Ints, size: int) -> BytesSegment:
    """Return what stands before an object's values. ``ends`` is int64[members + 1, n]."""
    order = field_order(names)
    start = bytes((0b10 | (size - 1) << 2, len(names), *order))
    head = np.empty((ends.shape[1], len(start) + size * (len(names) + 1)), dtype=np.uint8)
    head[:, : len(start)] = np.frombuffer(start, dtype=np.uint8)
    offsets = ends[[*order, len(names)]].T.astype("<u4")
    head[:, len(start) :] = (
        np.ascontiguousarray(offsets).view(np.uint8).reshape(*offsets.shape, 4)[:, :, :size].reshape(len(head), -1)
    )
    return bytes_segment(np.arange(len(head) + 1, dtype=np.int64) * head.shape[1], head.reshape(-1))


def _offset_bytes(numbers: Ints) -> Ints:
    return 1 + (numbers > 0xFF) + (numbers > 0xFFFF) + (numbers > 0xFFFFFF)


def _sizes(segment: RowSegment) -> Any:
    if isinstance(segment, WordSegment):
        return segment.sizes
    return np.where(validity(segment.array), byte_lengths(segment.array), 0)


def _take(segment: RowSegment, index: Ints) -> RowSegment:
    if isinstance(segment, BytesSegment):
        return segment if len(index) == len(segment.array) else BytesSegment(segment.array.take(to_arrow(index)))
    sizes = segment.sizes if isinstance(segment.sizes, int) else segment.sizes[index]
    return WordSegment(segment.values[index], sizes, segment.max_size)
