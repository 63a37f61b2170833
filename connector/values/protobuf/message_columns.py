"""Protobuf messages as Arrow arrays, all messages of one type together, with their fields: singular, repeated, maps, oneofs.

As parsers do: the last value of a singular field counts, a repeated one may be packed or not, and unknown fields are skipped.
What they do with a message that is given in parts, with several members of a oneof and with groups is left to them: such messages
fail, as invalid ones do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import Flags, Ints, bitmap, with_duplicate_keys, with_validity
from pykafka_wire.values.bulk.reading import Payloads, read_in_groups
from pykafka_wire.values.protobuf.field_scan import FIXED64, LENGTH, VARINT, Occurrences, scan
from pykafka_wire.values.protobuf.message_group import Buffer, MessageGroup
from pykafka_wire.values.protobuf.scalar_columns import Scalar
from pykafka_wire.wire.records.arrays import to_numpy, validity
from pykafka_wire.wire.records.row_segments import bounds
from pykafka_wire.wire.records.varints import Words

Found = dict[int, list[Occurrences]]

#: Values per group, chosen so that their data fits the cache.
_VALUES_AT_ONCE: Final = 16_384
#: Bytes per group: what is computed of them takes some times as much.
_BYTES_AT_ONCE: Final = 8 << 20
#: Varints of packed fields at a time, likewise.
_VARINTS_AT_ONCE: Final = 1 << 16
#: Messages within messages that are read in columns; each level costs as much as the first, however few messages reach it.
_MAX_DEPTH: Final = 24


class Field(ABC):
    """One field of a message.

    Attributes:
        tags: those that it may have.
        row_bytes: what each message takes in memory for this field, whether it is set or not.
    """

    tags: tuple[int, ...]
    row_bytes: int
    is_always_set: bool = False

    @abstractmethod
    def read(self, group: MessageGroup, found: Found) -> Any:
        """pa.Array, one element for each message."""

    def check(self, group: MessageGroup, found: Found) -> None:
        """Fails the messages in which the field, which no one wants, is not valid: now, or with all messages of a type."""
        self.read(group, found)


class Messages(ABC):
    """The messages of one type.

    Attributes:
        type: the Arrow type.
        row_bytes: what each takes in memory, without the items of its arrays.
    """

    type: pa.DataType
    row_bytes: int

    @abstractmethod
    def read(self, group: MessageGroup, valid: Flags | None) -> Any:
        """pa.Array, one element for each message, null where not ``valid``; those messages are empty."""


class Struct(Messages):
    """A message as a struct of its fields.

    Attributes (set once, after it is made, since messages may contain themselves):
        fields: in the order of ``type``.
        checked: fields that no one wants, and that must be valid.
        oneofs: the tags of each.
        required: the tags of each required field.

    Args:
        is_entry: whether the message is a map's entry, which parsers ignore if it has unknown fields.
    """

    def __init__(self, arrow_type: pa.DataType, *, is_entry: bool = False) -> None:
        self.type = arrow_type
        self.is_entry = is_entry
        self.fields: Sequence[Field] = ()
        self.checked: Sequence[Field] = ()
        self.oneofs: Sequence[Sequence[int]] = ()
        self.required: Sequence[Sequence[int]] = ()
        self.row_bytes = 0

    def read(self, group: MessageGroup, valid: Flags | None) -> Any:
        tags = {tag for each in (*self.fields, *self.checked) for tag in each.tags}
        tags.update(tag for each in (*self.oneofs, *self.required) for tag in each)
        found = scan(group, tags, fail_unknown=self.is_entry)
        for each in self.oneofs:
            if sum(bool(found[tag]) for tag in each) > 1:
                group.failed |= _counts(found, each, len(group)) > 1
        for each in self.required:
            if not any(occurrence.places is None for tag in each for occurrence in found[tag]):
                group.failed |= _counts(found, each, len(group)) == 0
        children = [each.read(group, found) for each in self.fields]
        for unwanted in self.checked:
            if unwanted.is_always_set or any(found[tag] for tag in unwanted.tags):
                unwanted.check(group, found)
        for child, field in zip(children, self.type, strict=True):
            if not field.nullable and child.null_count:
                group.failed |= ~validity(child)
        return pa.Array.from_buffers(self.type, len(group), [bitmap(valid)], children=children)


class Wrapped(Messages):
    """A wrapper as the value in it."""

    def __init__(self, inner: Struct) -> None:
        self._inner = inner
        self.type = inner.type.field(0).type
        self.row_bytes = inner.row_bytes

    def read(self, group: MessageGroup, valid: Flags | None) -> Any:
        return with_validity(self._inner.read(group, None).field(0), valid)


class Time(Messages):
    """``google.protobuf.Timestamp`` or ``Duration``, in microseconds.

    Args:
        inner: reads ``seconds`` as int64 and ``nanos`` as int32.
        limits: the least and the greatest number of seconds.
        is_signed: whether ``nanos`` has the sign of the seconds.
    """

    def __init__(self, inner: Struct, wanted: pa.DataType, limits: tuple[int, int], *, is_signed: bool) -> None:
        self._inner = inner
        self.type = wanted
        self._limits = limits
        self._is_signed = is_signed
        self.row_bytes = inner.row_bytes

    def read(self, group: MessageGroup, valid: Flags | None) -> Any:
        parts = self._inner.read(group, None)
        seconds = to_numpy(parts.field(0), null=0)
        nanos = to_numpy(parts.field(1), null=0).astype(np.int64)
        least, most = self._limits
        wrong = (seconds < least) | (seconds > most) | (nanos > 999_999_999)
        if self._is_signed:
            wrong |= (nanos < -999_999_999) | ((seconds > 0) & (nanos < 0)) | ((seconds < 0) & (nanos > 0))
            micros = np.sign(nanos) * (np.abs(nanos) // 1000)
        else:
            wrong |= nanos < 0
            micros = nanos // 1000
        if wrong.any():
            group.failed |= wrong
        found = np.where(wrong, 0, seconds) * 1_000_000 + micros
        return pa.Array.from_buffers(self.type, len(group), [bitmap(valid), pa.py_buffer(found)])


class LeftOver(Messages):
    """Messages that are not read in columns: all fail."""

    def __init__(self, wanted: pa.DataType) -> None:
        self.type = wanted
        self.row_bytes = 8

    def read(self, group: MessageGroup, valid: Flags | None) -> Any:
        group.failed |= True if valid is None else valid
        return pa.nulls(len(group), self.type)


class Absent(Field):
    """A column that the message has no field for, or whose values are always null."""

    tags = ()

    def __init__(self, wanted: pa.DataType) -> None:
        self._type = wanted
        self.row_bytes = 8

    def read(self, group: MessageGroup, found: Found) -> Any:
        return pa.nulls(len(group), self._type)


class SingleScalar(Field):
    """A singular field; null where it is not set, or its default where the field does not know."""

    def __init__(self, scalar: Scalar, number: int, *, has_presence: bool) -> None:
        self._scalar = scalar
        self._has_presence = has_presence
        self.tags = (number << 3 | scalar.wire_type,)
        self.row_bytes = scalar.item_bytes

    def read(self, group: MessageGroup, found: Found) -> Any:
        scalar, occurrences = self._scalar, found[self.tags[0]]
        valid = None
        if len(occurrences) == 1 and occurrences[0].places is None:
            _, starts, words = occurrences[0]
            words = scalar.words(group.data, starts, words)
        else:
            starts, words, valid = self._scatter(group, occurrences)
        column, wrong = scalar.read(group.data, starts, words, valid if self._has_presence else None)
        if wrong is not None:
            group.failed |= wrong if valid is None or not self._has_presence else wrong & valid
        return column

    def _scatter(self, group: MessageGroup, occurrences: list[Occurrences]) -> tuple[Ints, Words, Flags]:
        n, is_text = len(group), self._scalar.wire_type == LENGTH
        valid = np.zeros(n, dtype=np.bool_)
        starts = group.start.copy()
        words: npt.NDArray[Any] = np.zeros(n, dtype=np.int64) if is_text else self._scalar.absent(n)
        for occurrence in occurrences:
            index = slice(None) if occurrence.places is None else occurrence.places
            if is_text:  # a text that is given again, and of which only the last would be checked
                group.failed[index] |= valid[index]
            valid[index] = True
            starts[index] = occurrence.starts
            words[index] = self._scalar.words(group.data, occurrence.starts, occurrence.words)
        return starts, words, valid


class SingleMessage(Field):
    """A message in a message."""

    def __init__(self, messages: Messages, number: int, *, is_always_set: bool = False) -> None:
        self._messages = messages
        self.is_always_set = is_always_set
        self.tags = (number << 3 | LENGTH,)
        self.row_bytes = messages.row_bytes

    def read(self, group: MessageGroup, found: Found) -> Any:
        occurrences = found[self.tags[0]]
        if not occurrences and not self.is_always_set:
            return pa.nulls(len(group), self._messages.type)
        starts, ends, valid = self._parts(group, occurrences)
        inner = _within(group, starts, ends, group.rows)
        is_given = None if self.is_always_set or valid.all() else valid
        column = self._messages.read(inner, is_given)
        group.failed |= inner.failed if is_given is None else inner.failed & valid
        return column

    def check(self, group: MessageGroup, found: Found) -> None:
        starts, ends, valid = self._parts(group, found[self.tags[0]])
        index = np.arange(len(group)) if self.is_always_set else np.flatnonzero(valid)
        group.check_later(self._messages, index, starts[index], ends[index])

    @staticmethod
    def _parts(group: MessageGroup, occurrences: list[Occurrences]) -> tuple[Ints, Ints, Flags]:
        """Where the field's message starts and ends in each, empty where it has none; and which have one."""
        starts, ends = group.start.copy(), group.start.copy()
        valid = np.zeros(len(group), dtype=np.bool_)
        for occurrence in occurrences:
            index = slice(None) if occurrence.places is None else occurrence.places
            group.failed[index] |= valid[index]  # a second part of the message
            valid[index] = True
            starts[index] = occurrence.starts
            ends[index] = occurrence.starts + occurrence.words
        return starts, ends, valid


class Repeated(Field):
    """A repeated scalar or message as a list; a map's entries as a map."""

    def __init__(self, items: Scalar | Messages, number: int, wanted: pa.DataType, wire_type: int = LENGTH) -> None:
        self._items = items
        self._type = wanted
        self._is_map = pa.types.is_map(wanted)
        self.row_bytes = 16
        self.tags = (number << 3 | wire_type,)
        if isinstance(items, Scalar) and items.wire_type != LENGTH:
            self.tags = (number << 3 | items.wire_type, *self.tags)

    def read(self, group: MessageGroup, found: Found) -> Any:
        items = self._items
        if isinstance(items, Scalar):
            owner, values = self._scalars(group, found, items)
        else:
            owner, starts, sizes = self._kept(group, *_in_order(found[self.tags[0]], len(group)), items.row_bytes)
            values = pa.nulls(0, items.type)
            if len(owner):
                inner = _within(group, starts, starts + sizes, group.rows_of(owner))
                values = items.read(inner, None)
                group.failed[owner[inner.failed]] = True
        offsets = np.zeros(len(group) + 1, dtype=np.int32)
        np.cumsum(np.bincount(owner, minlength=len(group)), out=offsets[1:])
        if self._is_map:
            group.failed |= with_duplicate_keys(owner, values.field(0), len(group))
        return pa.Array.from_buffers(self._type, len(group), [None, pa.py_buffer(offsets)], children=[values])

    def check(self, group: MessageGroup, found: Found) -> None:
        items = self._items
        if isinstance(items, Scalar):
            self.read(group, found)
            return
        owner, starts, sizes = self._kept(group, *_in_order(found[self.tags[0]], len(group)), items.row_bytes)
        group.check_later(items, owner, starts, starts + sizes)

    def _scalars(self, group: MessageGroup, found: Found, items: Scalar) -> tuple[Ints, Any]:
        data: Buffer = group.data
        owner, starts, words = _in_order(found[self.tags[0]], len(group))
        if len(self.tags) == 1:
            owner, starts, words = self._kept(group, owner, starts, words, items.item_bytes)
        elif found[self.tags[1]]:
            blocks = _in_order(found[self.tags[1]], len(group))
            if len(owner):  # of one field, some packed and some not
                group.failed[blocks[0]] = True
            else:
                data, owner, starts, words = _unpacked(group, *blocks, items)
        values, wrong = items.read(data, starts, items.words(data, starts, words), None)
        if wrong is not None:
            group.failed[owner[wrong]] = True
        return owner, values

    @staticmethod
    def _kept(
        group: MessageGroup, owner: Ints, starts: Ints, words: Words, item_bytes: int
    ) -> tuple[Ints, Ints, Words]:
        """The items of the messages that may have so many."""
        too_many = group.spend(owner, item_bytes)
        if too_many is None:
            return owner, starts, words
        group.failed |= too_many
        kept = ~too_many[owner]
        return owner[kept], starts[kept], words[kept]


def read_messages(payloads: Payloads, messages: Messages) -> tuple[Any, Flags]:
    """``(pa.Array, bool[n])``: the messages, and which of them were not read in columns; those elements mean nothing."""

    def read(payloads: Payloads) -> tuple[Any, Flags]:
        group = MessageGroup(Buffer(payloads.data), payloads.starts, payloads.ends)
        column = messages.read(group, None)
        _check_unwanted(group)
        return column, group.failed

    return read_in_groups(payloads, messages.type, read, max_values=_VALUES_AT_ONCE, max_bytes=_BYTES_AT_ONCE)


def _check_unwanted(group: MessageGroup) -> None:
    """Fails the rows in which a message that no one wants is not valid. ``group`` are the rows, and have been read.

    All messages of a type are checked together, level by level, however many ways lead to them: messages that hold themselves in
    several fields would else have a way for each combination of these.
    """
    for depth in count(1):
        waiting, group.data.unchecked = group.data.unchecked, {}
        if not waiting:
            return
        for messages, parts in waiting.items():
            starts, ends, rows = (np.concatenate(each) for each in zip(*parts, strict=True))
            if depth > _MAX_DEPTH:
                group.failed[rows] = True
                continue
            if len(parts) > 1:
                order = np.argsort(starts, kind="stable")
                starts, ends, rows = starts[order], ends[order], rows[order]
            if group.failed.any():
                left = ~group.failed[rows]
                starts, ends, rows = starts[left], ends[left], rows[left]
            inner = MessageGroup(group.data, starts, ends, rows=rows)
            messages.read(inner, None)
            group.failed[rows[inner.failed]] = True


def _within(group: MessageGroup, starts: Ints, ends: Ints, rows: Ints | None) -> MessageGroup:
    inner = MessageGroup(group.data, starts, ends, group.depth + 1, rows)
    if inner.depth > _MAX_DEPTH:
        inner.failed[:] = True
        inner.end = inner.start
    return inner


def _in_order(occurrences: list[Occurrences], n: int) -> tuple[Ints, Ints, Words]:
    """``(owner, starts, words)`` of all values, in the order of the data, which is that of the messages."""
    if not occurrences:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)
    owners = [np.arange(n) if occurrence.places is None else occurrence.places for occurrence in occurrences]
    if len(occurrences) == 1:
        return owners[0], occurrences[0].starts, occurrences[0].words
    starts = np.concatenate([occurrence.starts for occurrence in occurrences])
    order = np.argsort(starts, kind="stable")
    words = np.concatenate([occurrence.words for occurrence in occurrences])
    return np.concatenate(owners)[order], starts[order], words[order] if len(words) else words


def _counts(found: Found, tags: Sequence[int], n: int) -> Ints:
    """int64[n]: how often each message has one of the fields."""
    counts = np.zeros(n, dtype=np.int64)
    for tag in tags:
        for occurrence in found[tag]:
            counts[slice(None) if occurrence.places is None else occurrence.places] += 1
    return counts


def _unpacked(
    group: MessageGroup, owner: Ints, starts: Ints, sizes: Ints, items: Scalar
) -> tuple[Buffer, Ints, Ints, Words]:
    """``(data, owner, starts, words)``: the items of blocks, in a buffer of their own. Messages with an invalid block fail."""
    if items.wire_type == VARINT:
        last = group.data.octets.take(starts + sizes - 1, mode="clip")
        wrong = (last > 0x7F) & (sizes > 0)
    else:
        width = 8 if items.wire_type == FIXED64 else 4
        wrong = sizes % width != 0
    if wrong.any():
        group.failed[owner[wrong]] = True
        sizes = np.where(wrong, 0, sizes)
    blocks = group.data.slices(starts, sizes, pa.binary())
    edges = bounds(blocks)
    octets = np.frombuffer(blocks.buffers()[2] or b"", dtype=np.uint8)[: edges[-1]]
    if items.wire_type == VARINT:
        stops = np.flatnonzero(octets < 0x80)
        counts = np.diff(np.searchsorted(stops, edges))
        item_starts = np.zeros(len(stops), dtype=np.int64)
        item_starts[1:] = stops[:-1] + 1
    else:
        counts = sizes // width
        item_starts = np.arange(0, len(octets), width)
    owner = np.repeat(owner, counts)
    too_many = group.spend(owner, items.item_bytes)
    if too_many is not None:
        group.failed |= too_many
        kept = ~too_many[owner]
        owner, item_starts = owner[kept], item_starts[kept]
    data = Buffer(octets)
    words: Words = np.zeros(0, dtype=np.uint64)
    if items.wire_type == VARINT:
        words = np.zeros(len(item_starts), dtype=np.uint64)
        for first in range(0, len(item_starts), _VARINTS_AT_ONCE):
            some = slice(first, first + _VARINTS_AT_ONCE)
            words[some], ends = data.varints(item_starts[some])
            beyond = ends > len(octets)
            if beyond.any():
                group.failed[owner[some][beyond]] = True
    return data, owner, item_starts, words
