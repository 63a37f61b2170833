"""Protobuf messages to columns, all messages of one type together: what reads a descriptor as an Arrow type, and its parts.

As parsers do: the last value of a singular field counts, a repeated one may be packed or not, and unknown fields are skipped.
What they do with a message that is given in parts, with several members of a oneof and with groups is left to them: such messages
fail, as invalid ones and values that the Arrow type cannot hold do. Fields and types that resist (extensions, values by way of
Protobuf's JSON mapping) are left to the row-by-row conversion (:mod:`~pykafka_wire.values.protobuf.conversion`), whose values are
the reference: messages that have them fail.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pykafka_wire.values.bulk.arrays import (
    Flags,
    Ints,
    bitmap,
    flag_array,
    not_utf8,
    with_duplicate_keys,
    with_validity,
)
from pykafka_wire.values.bulk.reading import Payloads, read_in_groups
from pykafka_wire.values.protobuf.conversion import enum_names, is_by_json, is_plain_struct
from pykafka_wire.values.protobuf.json_mapping import NO_RULES, FieldRules, is_map, is_wrapper
from pykafka_wire.values.protobuf.message_group import (
    FIXED64,
    GROUP,
    LENGTH,
    VARINT,
    GroupBuffer,
    MessageGroup,
    Occurrences,
    scan,
    wire_type_of,
)
from pykafka_wire.values.protobuf.types import (
    DURATION_SECONDS,
    KINDS,
    TIMESTAMP_SECONDS,
    UINT64_TYPE,
    dtype_of,
    scalar_type,
)
from pykafka_wire.wire.arrow.arrays import binary_array, to_arrow, to_numpy, validity
from pykafka_wire.wire.arrow.row_segments import bounds
from pykafka_wire.wire.arrow.varints import Words, to_signed

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

#: Numbers of an enum that are looked up by a table: nearly all.
_MAX_TABLE: Final = 1 << 12


class ProtobufScalar(ABC):
    """Values of one scalar type.

    Attributes:
        type: the Arrow type.
        wire_type: of one value, packed or not.
        default: the varint of a value that is not there.
        item_bytes: what an item of an array may take in memory.
    """

    type: pa.DataType
    wire_type: int
    default: int = 0
    item_bytes: int = 8

    @abstractmethod
    def read(self, data: GroupBuffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[pa.Array, Flags | None]:
        """Return ``(pa.Array, bool[n] | None)``: the values, null where not ``valid``; and which are none of the type.

        Args:
            starts: where length-delimited values start, ascending.
            words: varints and fixed-width values; the sizes of length-delimited values.
        """

    def words(self, data: GroupBuffer, starts: Ints, words: Words) -> Words:
        """Return those that :meth:`read` takes, of values that start at ``starts``; ``words`` is what the scan has of them."""
        return words

    def absent(self, n: int) -> Words:
        """Return those of ``n`` values that are not there."""
        return np.full(n, self.default, dtype=np.uint64)


class ProtobufNumber(ProtobufScalar):
    """Integers and floating point.

    Args:
        kind: ``int32``, ``uint32``, ``sint32``, ``int64``, ``uint64``, ``sint64``, or the NumPy dtype of a fixed-width type.
    """

    def __init__(self, kind: str, wanted: pa.DataType) -> None:
        self.type = wanted
        self._kind = kind
        self.wire_type = wire_type_of(kind)
        self._is_decimal = pa.types.is_decimal(wanted)
        self._limits: tuple[int, int] | None = None
        if pa.types.is_integer(wanted):
            bounds: Any = np.iinfo(dtype_of(kind))
            limits: Any = np.iinfo(wanted.to_pandas_dtype())
            if bounds.min < limits.min or bounds.max > limits.max:
                self._limits = max(int(bounds.min), int(limits.min)), int(limits.max)
        self._dtype = None if self._is_decimal else np.dtype(wanted.to_pandas_dtype())
        self.item_bytes = 16

    def words(self, data: GroupBuffer, starts: Ints, words: Words) -> Words:
        return words if self.wire_type == VARINT else data.numbers(starts, self._kind)

    def absent(self, n: int) -> Words:
        return super().absent(n) if self.wire_type == VARINT else np.zeros(n, dtype=self._kind)

    def read(self, data: GroupBuffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[pa.Array, Flags | None]:
        numbers = _integers(self._kind, words) if self.wire_type == VARINT else words
        wrong = None
        if self._limits is not None:
            lowest, highest = self._limits
            wrong = (numbers < lowest) | (numbers > highest)
            wrong = wrong if wrong.any() else None
        if self._is_decimal:
            wide = np.zeros((len(numbers), 2), dtype=np.uint64)
            wide[:, 0] = numbers
            content = pa.py_buffer(wide)
        else:
            content = pa.py_buffer(np.ascontiguousarray(numbers.astype(self._dtype, copy=False)))
        return pa.Array.from_buffers(self.type, len(numbers), [bitmap(valid), content]), wrong


def _integers(kind: str, words: Words) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any]
    if kind in ("int64", "uint64"):
        is_wide = words.dtype == np.uint64
        numbers = words.view(kind) if is_wide else words.astype(np.int64)
    elif kind == "sint64":
        numbers = to_signed(words)
    else:
        narrow = words.astype(np.uint32)  # the low 32 bits, as all parsers take them
        numbers = narrow.view(dtype_of(kind))
        if kind == "sint32":
            numbers = (narrow >> np.uint32(1)).view(np.int32) ^ -(narrow & np.uint32(1)).view(np.int32)
    return numbers


class ProtobufBoolean(ProtobufScalar):
    type = pa.bool_()
    wire_type = VARINT
    item_bytes = 1

    def read(self, data: GroupBuffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[pa.Array, Flags | None]:
        return flag_array(words != 0, valid), None


class EnumName(ProtobufScalar):
    """An enum's value by its name. A number without a name is its digits where the enum is open, else not a value."""

    type = pa.string()
    wire_type = VARINT

    def __init__(self, names: Mapping[int, str], *, is_closed: bool, default: int = 0) -> None:
        numbers = sorted(names)
        self._numbers = np.array(numbers, dtype=np.int32)
        self._names = [names[number].encode() for number in numbers]
        self._dictionary = binary_array(self._names).view(pa.string())
        self._is_closed = is_closed
        self.default = default % (1 << 64)
        self.item_bytes = 4 + max(map(len, self._names))
        self._table = np.full(_MAX_TABLE if numbers[-1] >= 0 else 1, -1, dtype=np.int32)
        for place, number in enumerate(numbers):
            if 0 <= number < len(self._table):
                self._table[number] = place

    def read(self, data: GroupBuffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[pa.Array, Flags | None]:
        numbers = words.astype(np.uint32).view(np.int32)
        in_table = (numbers >= 0) & (numbers < len(self._table))
        places = self._table.take(numbers, mode="clip")
        others = np.flatnonzero(~in_table | (places < 0))
        dictionary, wrong = self._dictionary, None
        if len(others):
            symbol_places = np.searchsorted(self._numbers, numbers[others]).clip(max=len(self._numbers) - 1)
            is_known = self._numbers[symbol_places] == numbers[others]
            places[others] = symbol_places
            unknown = others[~is_known]
            if len(unknown) and self._is_closed:
                wrong = np.zeros(len(numbers), dtype=np.bool_)
                wrong[unknown] = True
            elif len(unknown):
                distinct, which = np.unique(numbers[unknown], return_inverse=True)
                digits = [str(number).encode() for number in distinct.tolist()]
                dictionary = binary_array([*self._names, *digits]).view(pa.string())
                places[unknown] = len(self._names) + which
        found_names = dictionary.take(to_arrow(places))
        return with_validity(found_names, valid), wrong


@dataclass(frozen=True, slots=True, eq=False)
class StringScalar(ProtobufScalar):
    """``bytes``, or ``string``, which is UTF-8."""

    type: pa.DataType
    wire_type = LENGTH
    item_bytes = 16

    def read(self, data: GroupBuffer, starts: Ints, words: Words, valid: Flags | None) -> tuple[pa.Array, Flags | None]:
        texts = data.slices(starts, words, self.type)
        wrong = not_utf8(texts) if pa.types.is_string(self.type) else None
        return with_validity(texts, valid), wrong


Found = dict[int, list[Occurrences]]

#: Values per group, chosen so that their data fits the cache.
_VALUES_AT_ONCE: Final = 16_384
#: Bytes per group: what is computed of them takes some times as much.
_BYTES_AT_ONCE: Final = 8 << 20
#: Varints of packed fields at a time, likewise.
_VARINTS_AT_ONCE: Final = 1 << 16
#: Messages within messages that are read in columns; each level costs as much as the first, however few messages reach it.
_MAX_DEPTH: Final = 24


class ProtobufField(ABC):
    """One field of a message.

    Attributes:
        tags: those that it may have.
        row_bytes: what each message takes in memory for this field, whether it is set or not.
    """

    tags: tuple[int, ...] = ()
    row_bytes: int = 8
    is_always_set: bool = False

    @abstractmethod
    def read(self, group: MessageGroup, occurrences: Found) -> pa.Array:
        """Return a pa.Array, one element for each message."""

    def check(self, group: MessageGroup, occurrences: Found) -> None:
        """Fail the messages in which the field, which no one wants, is not valid: now, or with all messages of a type."""
        self.read(group, occurrences)


class Messages(ABC):
    """The messages of one type.

    Attributes:
        type: the Arrow type.
    """

    type: pa.DataType

    @property
    def row_bytes(self) -> int:
        """Return what each takes in memory, without the items of its arrays."""
        return 8

    @abstractmethod
    def read(self, group: MessageGroup, valid: Flags | None) -> pa.Array:
        """Return a pa.Array, one element for each message, null where not ``valid``; those messages are empty."""


class ProtobufStruct(Messages):
    """A message as a struct of its fields.

    Attributes (set once, after it is made, since messages may contain themselves):
        fields: in the order of ``type``.
        checked: fields that no one wants, and that must be valid.
        oneofs: the tags of each.
        required: the tags of each required field.

    Args:
        is_entry: whether the message is a map's entry, which parsers ignore if it has unknown fields.
    """

    row_bytes = 0

    def __init__(self, arrow_type: pa.DataType, *, is_entry: bool = False) -> None:
        self.type = arrow_type
        self.is_entry = is_entry
        self.fields: Sequence[ProtobufField] = ()
        self.checked: Sequence[ProtobufField] = ()
        self.oneofs: Sequence[Sequence[int]] = ()
        self.required: Sequence[Sequence[int]] = ()

    def read(self, group: MessageGroup, valid: Flags | None) -> pa.Array:
        tags = {tag for field in (*self.fields, *self.checked) for tag in field.tags}
        tags.update(tag for oneof in (*self.oneofs, *self.required) for tag in oneof)
        occurrences = scan(group, tags, fail_unknown=self.is_entry)
        for oneof in self.oneofs:
            if sum(bool(occurrences[tag]) for tag in oneof) > 1:
                group.failed |= _counts(occurrences, oneof, len(group)) > 1
        for oneof in self.required:
            if not any(occurrence.places is None for tag in oneof for occurrence in occurrences[tag]):
                group.failed |= _counts(occurrences, oneof, len(group)) == 0
        children = [field.read(group, occurrences) for field in self.fields]
        for unwanted in self.checked:
            if unwanted.is_always_set or any(occurrences[tag] for tag in unwanted.tags):
                unwanted.check(group, occurrences)
        for child, field in zip(children, self.type, strict=True):
            if not field.nullable and child.null_count:
                group.failed |= ~validity(child)
        return pa.Array.from_buffers(self.type, len(group), [bitmap(valid)], children=children)


@dataclass(frozen=True, slots=True, eq=False)
class Wrapped(Messages):
    """A wrapper as the value in it."""

    inner: ProtobufStruct
    type: pa.DataType

    @property
    def row_bytes(self) -> int:
        return self.inner.row_bytes

    def read(self, group: MessageGroup, valid: Flags | None) -> pa.Array:
        return with_validity(self.inner.read(group, None).field(0), valid)


@dataclass(frozen=True, slots=True, eq=False)
class Time(Wrapped):
    """``google.protobuf.Timestamp`` or ``Duration``, in microseconds.

    Attributes:
        inner: reads ``seconds`` as int64 and ``nanos`` as int32.
        limits: the lowest and the greatest number of seconds.
        is_signed: whether ``nanos`` has the sign of the seconds.
    """

    limits: tuple[int, int]
    is_signed: bool

    def read(self, group: MessageGroup, valid: Flags | None) -> pa.Array:
        parts = self.inner.read(group, None)
        seconds = to_numpy(parts.field(0), null=0)
        nanos = to_numpy(parts.field(1), null=0).astype(np.int64)
        lowest, highest = self.limits
        wrong = (seconds < lowest) | (seconds > highest) | (nanos > 999_999_999)
        if self.is_signed:
            wrong |= (nanos < -999_999_999) | ((seconds > 0) & (nanos < 0)) | ((seconds < 0) & (nanos > 0))
            micros = np.sign(nanos) * (np.abs(nanos) // 1000)
        else:
            wrong |= nanos < 0
            micros = nanos // 1000
        if wrong.any():
            group.failed |= wrong
        micros_of_all = np.where(wrong, 0, seconds) * 1_000_000 + micros
        return pa.Array.from_buffers(self.type, len(group), [bitmap(valid), pa.py_buffer(micros_of_all)])


@dataclass(frozen=True, slots=True, eq=False)
class LeftOver(Messages):
    """Messages that are not read in columns: all fail."""

    type: pa.DataType

    def read(self, group: MessageGroup, valid: Flags | None) -> pa.Array:
        group.failed |= True if valid is None else valid
        return pa.nulls(len(group), self.type)


@dataclass(frozen=True, slots=True)
class Absent(ProtobufField):
    """A column that the message has no field for, or whose values are always null."""

    type: pa.DataType

    def read(self, group: MessageGroup, occurrences: Found) -> pa.Array:
        return pa.nulls(len(group), self.type)


class SingleScalar(ProtobufField):
    """A singular field; null where it is not set, or its default where the field does not know."""

    def __init__(self, scalar: ProtobufScalar, number: int, *, has_presence: bool) -> None:
        self._scalar = scalar
        self._has_presence = has_presence
        self.tags = (number << 3 | scalar.wire_type,)
        self.row_bytes = scalar.item_bytes

    def read(self, group: MessageGroup, by_tag: Found) -> pa.Array:
        scalar, occurrences = self._scalar, by_tag[self.tags[0]]
        valid = None
        if len(occurrences) == 1 and occurrences[0].places is None:
            _, starts, words = occurrences[0]
            words = scalar.words(group.data, starts, words)
        else:
            is_text = scalar.wire_type == LENGTH  # of one that is given again, only the last would be checked
            absent = np.zeros(len(group), dtype=np.int64) if is_text else scalar.absent(len(group))
            starts, words, valid = _place_last(group, occurrences, absent, scalar, only_once=is_text)
        column, wrong = scalar.read(group.data, starts, words, valid if self._has_presence else None)
        if wrong is not None:
            group.failed |= wrong if valid is None or not self._has_presence else wrong & valid
        return column


def _place_last(
    group: MessageGroup, occurrences: list[Occurrences], words: Words, scalar: ProtobufScalar | None, *, only_once: bool
) -> tuple[Ints, Words, Flags]:
    """Return the start and the word of a field's last value in each message, and which messages have one.

    Args:
        words: those of messages without one; filled.
        scalar: None for messages, whose words are their sizes.
        only_once: whether messages that have several values fail.
    """
    valid = np.zeros(len(group), dtype=np.bool_)
    starts = group.start.copy()
    for places, chunk, lengths in occurrences:
        index = slice(None) if places is None else places
        if only_once:
            group.failed[index] |= valid[index]
        valid[index] = True
        starts[index] = chunk
        words[index] = lengths if scalar is None else scalar.words(group.data, chunk, lengths)
    return starts, words, valid


class SingleMessage(ProtobufField):
    """A message in a message."""

    def __init__(self, messages: Messages, number: int, *, is_always_set: bool = False) -> None:
        self._messages = messages
        self.is_always_set = is_always_set
        self.tags = (number << 3 | LENGTH,)
        self.row_bytes = messages.row_bytes

    def read(self, group: MessageGroup, by_tag: Found) -> pa.Array:
        occurrences = by_tag[self.tags[0]]
        if not occurrences and not self.is_always_set:
            return pa.nulls(len(group), self._messages.type)
        starts, ends, valid = self._parts(group, occurrences)
        inner = _within(group, starts, ends, group.rows)
        is_given = None if self.is_always_set or valid.all() else valid
        column = self._messages.read(inner, is_given)
        group.failed |= inner.failed if is_given is None else inner.failed & valid
        return column

    def check(self, group: MessageGroup, occurrences: Found) -> None:
        starts, ends, valid = self._parts(group, occurrences[self.tags[0]])
        index = np.arange(len(group)) if self.is_always_set else np.flatnonzero(valid)
        group.check_later(self._messages, index, starts[index], ends[index])

    @staticmethod
    def _parts(group: MessageGroup, occurrences: list[Occurrences]) -> tuple[Ints, Ints, Flags]:
        """Return where the field's message starts and ends in each, empty where it has none; and which have one, in one part."""
        sizes = np.zeros(len(group), dtype=np.int64)
        starts, sizes, valid = _place_last(group, occurrences, sizes, None, only_once=True)
        return starts, starts + sizes, valid


class Repeated(ProtobufField):
    """A repeated scalar or message as a list; a map's entries as a map."""

    row_bytes = 16

    def __init__(
        self, items: ProtobufScalar | Messages, number: int, wanted: pa.DataType, wire_type: int = LENGTH
    ) -> None:
        self._items = items
        self._type = wanted
        self._is_map = pa.types.is_map(wanted)
        self.tags = (number << 3 | wire_type,)
        if isinstance(items, ProtobufScalar) and items.wire_type != LENGTH:
            self.tags = (number << 3 | items.wire_type, *self.tags)

    def read(self, group: MessageGroup, occurrences: Found) -> pa.Array:
        items = self._items
        if isinstance(items, ProtobufScalar):
            owner, values = self._scalars(group, occurrences, items)
        else:
            owner, starts, sizes = _keep_items(
                group, *_in_order(occurrences[self.tags[0]], len(group)), items.row_bytes
            )
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

    def check(self, group: MessageGroup, occurrences: Found) -> None:
        items = self._items
        if isinstance(items, ProtobufScalar):
            self.read(group, occurrences)
            return
        owner, starts, sizes = _keep_items(group, *_in_order(occurrences[self.tags[0]], len(group)), items.row_bytes)
        group.check_later(items, owner, starts, starts + sizes)

    def _scalars(self, group: MessageGroup, occurrences: Found, items: ProtobufScalar) -> tuple[Ints, pa.Array]:
        data: GroupBuffer = group.data
        owner, starts, words = _in_order(occurrences[self.tags[0]], len(group))
        if len(self.tags) == 1:
            owner, starts, words = _keep_items(group, owner, starts, words, items.item_bytes)
        elif occurrences[self.tags[1]]:
            blocks = _in_order(occurrences[self.tags[1]], len(group))
            if len(owner):  # of one field, some packed and some not
                group.failed[blocks[0]] = True
            else:
                data, owner, starts, words = _unpack(group, *blocks, items)
        values, wrong = items.read(data, starts, items.words(data, starts, words), None)
        if wrong is not None:
            group.failed[owner[wrong]] = True
        return owner, values


def read_messages(payloads: Payloads, messages: Messages) -> tuple[pa.Array, Flags]:
    """Return ``(pa.Array, bool[n])``: the messages, and which of them were not read in columns; those elements mean nothing."""

    def read(payloads: Payloads) -> tuple[pa.Array, Flags]:
        group = MessageGroup(GroupBuffer(payloads.data), payloads.starts, payloads.ends)
        column = messages.read(group, None)
        _check_unwanted(group)
        return column, group.failed

    return read_in_groups(payloads, messages.type, read, max_values=_VALUES_AT_ONCE, max_bytes=_BYTES_AT_ONCE)


def _check_unwanted(group: MessageGroup) -> None:
    """Fail the rows in which a message that no one wants is not valid. ``group`` are the rows, and have been read.

    All messages of a type are checked together, level by level, however many ways lead to them: messages that hold themselves in
    several fields would else have a way for each combination of these.
    """
    for depth in count(1):
        waiting, group.data.unchecked = group.data.unchecked, {}
        if not waiting:
            return
        for messages, parts in waiting.items():
            starts, ends, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
            if depth > _MAX_DEPTH:
                group.failed[rows] = True
                continue
            if len(parts) > 1:
                order = np.argsort(starts, kind="stable")
                starts, ends, rows = starts[order], ends[order], rows[order]
            if group.failed.any():
                alive = ~group.failed[rows]
                starts, ends, rows = starts[alive], ends[alive], rows[alive]
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
    """Return ``(owner, starts, words)`` of all values, in the order of the data, which is that of the messages."""
    if not occurrences:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)
    owners = [np.arange(n) if occurrence.places is None else occurrence.places for occurrence in occurrences]
    if len(occurrences) == 1:
        return owners[0], occurrences[0].starts, occurrences[0].words
    starts = np.concatenate([occurrence.starts for occurrence in occurrences])
    order = np.argsort(starts, kind="stable")
    words = np.concatenate([occurrence.words for occurrence in occurrences])
    return np.concatenate(owners)[order], starts[order], words[order] if len(words) else words


def _keep_items(
    group: MessageGroup, owner: Ints, starts: Ints, words: Words, item_bytes: int
) -> tuple[Ints, Ints, Words]:
    """Return the items of the messages that may have so many."""
    too_many = group.spend(owner, item_bytes)
    if too_many is None:
        return owner, starts, words
    group.failed |= too_many
    kept = ~too_many[owner]
    return owner[kept], starts[kept], words[kept]


def _counts(occurrences: Found, tags: Sequence[int], n: int) -> Ints:
    """Return int64[n]: how often each message has one of the fields."""
    counts = np.zeros(n, dtype=np.int64)
    for tag in tags:
        for occurrence in occurrences[tag]:
            counts[slice(None) if occurrence.places is None else occurrence.places] += 1
    return counts


def _unpack(
    group: MessageGroup, owner: Ints, starts: Ints, sizes: Ints, items: ProtobufScalar
) -> tuple[GroupBuffer, Ints, Ints, Words]:
    """Return ``(data, owner, starts, words)``: the items of blocks, in a buffer of their own. Messages with an invalid block
    fail.
    """
    if items.wire_type == VARINT:
        last = group.data.buffer.take(starts + sizes - 1, mode="clip")
        wrong = (last > 0x7F) & (sizes > 0)
    else:
        width = 8 if items.wire_type == FIXED64 else 4
        wrong = sizes % width != 0
    if wrong.any():
        group.failed[owner[wrong]] = True
        sizes = np.where(wrong, 0, sizes)
    blocks = group.data.slices(starts, sizes, pa.binary())
    edges = bounds(blocks)
    buffer = np.frombuffer(blocks.buffers()[2] or b"", dtype=np.uint8)[: edges[-1]]
    if items.wire_type == VARINT:
        stops = np.flatnonzero(buffer < 0x80)
        counts = np.diff(np.searchsorted(stops, edges))
        item_starts = np.zeros(len(stops), dtype=np.int64)
        item_starts[1:] = stops[:-1] + 1
    else:
        counts = sizes // width
        item_starts = np.arange(0, len(buffer), width)
    owner, item_starts, _ = _keep_items(group, np.repeat(owner, counts), item_starts, item_starts, items.item_bytes)
    data = GroupBuffer(buffer)
    words: Words = np.zeros(0, dtype=np.uint64)
    if items.wire_type == VARINT:
        words = np.zeros(len(item_starts), dtype=np.uint64)
        for first in range(0, len(item_starts), _VARINTS_AT_ONCE):
            some = slice(first, first + _VARINTS_AT_ONCE)
            words[some], ends = data.varints(item_starts[some])
            beyond = ends > len(buffer)
            if beyond.any():
                group.failed[owner[some][beyond]] = True
    return data, owner, item_starts, words


_TIME_PARTS: Final = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
#: As in :mod:`~pykafka_wire.values.protobuf.conversion`: a message of the library and its place in a list; a field of both.
_MESSAGE_BYTES: Final = 112
_FIELD_BYTES: Final = 24
#: Of fields that a message of the log names.
_MAX_PLACES: Final = 10
#: Each use of a message in a type is a step of its own. More than this is an attack, not a topic's schema.
_MAX_MESSAGES: Final = 2_000

logger = logging.getLogger(__name__)


class _ProtobufNotInColumnsError(Exception):
    """The type cannot be read in columns, whatever the bytes."""


def column_plan(descriptor: Descriptor, wanted: pa.DataType, rules: FieldRules = NO_RULES) -> Messages | None:
    """Return what reads such messages as ``wanted``; None if no row can be read in columns.

    Args:
        rules: as in :func:`~pykafka_wire.values.protobuf.conversion.message_conversion`.
    """
    plan, reader = _ReadPlan(rules), None
    name = descriptor.full_name
    try:
        reader = plan.messages(descriptor, wanted, "")
        plan.complete()
    except _ProtobufNotInColumnsError as error:
        logger.info("Protobuf messages %s are read one by one, not in columns: %s", name, error)
        return None
    if isinstance(reader, LeftOver):
        logger.info("Protobuf messages %s are read one by one, not in columns, as %s", name, wanted)
        return None
    if plan.left:
        places = ", ".join(plan.left[:_MAX_PLACES]) + (", …" if len(plan.left) > _MAX_PLACES else "")
        logger.info("Protobuf messages %s in which these are set are read one by one, not in columns: %s", name, places)
    return reader


class _ReadPlan:
    """Attributes:
    left: the wanted fields that are not read in columns where they are set.
    """

    def __init__(self, rules: FieldRules) -> None:
        self.left: list[str] = []
        self._rules = rules
        self._unwanted: dict[str, ProtobufStruct] = {}
        self._incomplete: list[tuple[ProtobufStruct, Descriptor]] = []
        self._n_messages = 0

    def messages(self, descriptor: Descriptor, wanted: pa.DataType, path: str) -> Messages:
        self._n_messages += 1
        if self._n_messages > _MAX_MESSAGES:
            raise _ProtobufNotInColumnsError(f"more than {_MAX_MESSAGES} messages in messages")
        if descriptor.GetOptions().message_set_wire_format:
            return self._left_over(wanted, path)
        if is_plain_struct(descriptor, wanted):
            return self._struct(descriptor, wanted, path)
        if is_wrapper(descriptor):
            return Wrapped(self._struct(descriptor, pa.struct([pa.field("value", wanted)]), path), wanted)
        if descriptor.full_name == "google.protobuf.Timestamp" and _is_micros(pa.types.is_timestamp, wanted):
            return Time(self._struct(descriptor, _TIME_PARTS, path), wanted, TIMESTAMP_SECONDS, False)
        is_duration = descriptor.full_name == "google.protobuf.Duration"
        if is_duration and (_is_micros(pa.types.is_duration, wanted) or wanted == pa.int64()):
            return Time(self._struct(descriptor, _TIME_PARTS, path), wanted, DURATION_SECONDS, True)
        if is_by_json(descriptor, wanted):
            return self._left_over(wanted, path)
        return self._struct(descriptor, wanted, path)

    def _left_over(self, wanted: pa.DataType, path: str) -> LeftOver:
        self.left.append(path)
        return LeftOver(wanted)

    def _struct(
        self, descriptor: Descriptor, wanted: pa.DataType, path: str, *, is_entry: bool = False
    ) -> ProtobufStruct:
        """Read a struct; ``is_entry`` of a map, whose key and value have their defaults where they are not given."""
        struct = ProtobufStruct(wanted, is_entry=is_entry)
        names = {field.name for field in wanted}
        if len(names) < len(wanted):
            raise _ProtobufNotInColumnsError(f"{path or 'the type'} has a name twice")
        fields: list[ProtobufField] = []
        for wanted_field in wanted:
            field = descriptor.fields_by_name.get(wanted_field.name)
            if field is None:
                fields.append(Absent(wanted_field.type))
            else:
                inner = f"{path}.{wanted_field.name}" if path else wanted_field.name
                fields.append(self._field(field, wanted_field.type, inner, is_entry=is_entry))
        struct.fields = fields
        self._complete(struct, descriptor, names)
        struct.row_bytes += sum(field.row_bytes + _FIELD_BYTES for field in fields)
        return struct

    def _complete(self, struct: ProtobufStruct, descriptor: Descriptor, names: set[str]) -> None:
        """Check what must be checked of a message beside its wanted fields."""
        known = [*descriptor.fields, *descriptor.file.pool.FindAllExtensions(descriptor)]
        struct.row_bytes = _MESSAGE_BYTES + 16 * len(known)
        unwanted = [field for field in known if field.is_extension or field.name not in names]
        struct.checked = [checked for checked in map(self._check, unwanted) if checked is not None]
        struct.required = [[_tag(field)] for field in known if field.is_required]
        oneofs = ([_tag(field) for field in oneof.fields] for oneof in descriptor.oneofs)
        struct.oneofs = [tags for tags in oneofs if len(tags) > 1]

    def _check(self, field: FieldDescriptor) -> ProtobufField | None:
        """Return what fails messages in which a field that no one wants is not valid; None where it always is."""
        if field.type == field.TYPE_GROUP:
            return None  # messages that have one fail whatever is in it
        if field.message_type is not None:
            inner = self._unwanted_message(field.message_type)
            if field.is_repeated:
                return Repeated(inner, field.number, pa.list_(inner.type))
            # An entry of a map without a value has an empty one, in which required fields are missing.
            is_value = field.containing_type.GetOptions().map_entry
            needs_fields = is_value and any(inner_field.is_required for inner_field in field.message_type.fields)
            return SingleMessage(inner, field.number, is_always_set=bool(needs_fields))
        scalar = self._scalar(field, scalar_type(field), field.name)
        if field.is_repeated and (field.type == field.TYPE_STRING or _is_packable(field)):
            return Repeated(scalar, field.number, pa.list_(scalar.type))
        if field.type == field.TYPE_STRING or (field.is_required and field.enum_type is not None):
            return SingleScalar(scalar, field.number, has_presence=True)
        return None

    def _unwanted_message(self, descriptor: Descriptor) -> Messages:
        if descriptor.GetOptions().message_set_wire_format:
            return LeftOver(pa.struct([]))
        known = self._unwanted.get(descriptor.full_name)
        if known is None:
            known = self._unwanted[descriptor.full_name] = ProtobufStruct(pa.struct([]))
            self._incomplete.append((known, descriptor))
        return known

    def complete(self) -> None:
        """Check messages that no one wants. Without recursion: they may lead to any number of others."""
        while self._incomplete:
            struct, descriptor = self._incomplete.pop()
            self._complete(struct, descriptor, set())

    def _field(self, field: FieldDescriptor, wanted: pa.DataType, path: str, *, is_entry: bool) -> ProtobufField:
        is_a = pa.types
        if field.enum_type is not None and field.enum_type.full_name == "google.protobuf.NullValue":
            if field.is_repeated:
                raise _not_in_columns(field, wanted, path)
            return Absent(wanted)
        is_repeated = is_a.is_map if is_map(field) else is_a.is_list
        if field.is_repeated and not is_repeated(wanted):
            raise _not_in_columns(field, wanted, path)
        if is_map(field):
            entry = pa.struct([pa.field("key", wanted.key_type, nullable=False), wanted.item_field.with_name("value")])
            return Repeated(self._struct(field.message_type, entry, path, is_entry=True), field.number, wanted)
        if field.is_repeated:
            inner = wanted.value_type
            if field.type == field.TYPE_GROUP:
                return Repeated(self._left_over(inner, path), field.number, wanted, wire_type=GROUP)
            if field.message_type is not None:
                return Repeated(self.messages(field.message_type, inner, path), field.number, wanted)
            return Repeated(self._scalar(field, inner, path), field.number, wanted)
        if field.message_type is not None:
            if field.type == field.TYPE_GROUP:
                self.left.append(path)
                return Absent(wanted)  # in all messages that do not fail
            return SingleMessage(self.messages(field.message_type, wanted, path), field.number, is_always_set=is_entry)
        has_presence = (
            field.has_presence and (field.containing_type.full_name, field.number) not in self._rules.always_set
        )
        return SingleScalar(self._scalar(field, wanted, path), field.number, has_presence=has_presence and not is_entry)

    def _scalar(self, field: FieldDescriptor, wanted: pa.DataType, path: str) -> ProtobufScalar:
        is_a, kind = pa.types, KINDS.get(field.type)
        if kind is not None and _is_number_of(kind, wanted):
            return ProtobufNumber(kind, wanted)
        if field.type == field.TYPE_BOOL and is_a.is_boolean(wanted):
            return ProtobufBoolean()
        if field.type == field.TYPE_ENUM and is_a.is_string(wanted):
            enum = field.enum_type
            return EnumName(enum_names(enum), is_closed=enum.is_closed, default=int(field.default_value or 0))
        expected = {field.TYPE_STRING: is_a.is_string, field.TYPE_BYTES: is_a.is_binary}.get(field.type)
        if expected is not None and expected(wanted):
            return StringScalar(wanted)
        raise _not_in_columns(field, wanted, path)


def _is_number_of(kind: str, wanted: pa.DataType) -> bool:
    """Return whether numbers of a kind are read as a type in columns."""
    is_a = pa.types
    if kind in ("<f4", "<f8"):
        return bool(is_a.is_float64(wanted) or (is_a.is_float32(wanted) and kind == "<f4"))
    return bool(is_a.is_signed_integer(wanted) or (kind in ("uint64", "<u8") and wanted == UINT64_TYPE))


def _not_in_columns(field: FieldDescriptor, wanted: pa.DataType, path: str) -> _ProtobufNotInColumnsError:
    return _ProtobufNotInColumnsError(
        f"{path} is read as {wanted}, which is not the type of the field {field.full_name}"
    )


def _is_packable(field: FieldDescriptor) -> bool:
    return field.type not in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE, field.TYPE_GROUP)


def _tag(field: FieldDescriptor) -> int:
    """Return the tag of a field that is not repeated."""
    if field.type == field.TYPE_GROUP:
        return int(field.number << 3 | GROUP)
    return int(field.number << 3 | (wire_type_of(KINDS.get(field.type, "")) if _is_packable(field) else LENGTH))


def _is_micros(is_kind: Any, wanted: pa.DataType) -> bool:
    return bool(is_kind(wanted)) and wanted.unit == "us"
