"""Columns to Protobuf messages: which step writes an Arrow type as a descriptor's message, what does not fit, and the steps.

A struct's fields are found by name, exactly or in any case; a field that the column lacks is not set. What is written exactly, or
is checked row by row, need not have the type that reading gives (:mod:`~pykafka_wire.values.protobuf.types`): any integer or
decimal for an integer, numbers for enums, timestamps of each unit, a wrapper's value or its struct.

A value step (:class:`Value`) writes the values of one field without their tags; a field step (:class:`FieldStep`) adds the tags,
and leaves out what is not set. https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.values.bulk.writing import (
    PER_SECOND,
    EncodeErrors,
    SegmentWriter,
    binary,
    booleans,
    check_text,
    fixed_width,
    floats,
    items_of,
    matching,
    of_present,
    refuse,
    rescaled,
    sql_name,
    varint,
    within,
)
from pykafka_wire.values.protobuf.json_mapping import is_map, is_wrapper
from pykafka_wire.values.protobuf.message_group import END_GROUP, FIXED32, FIXED64, GROUP, LENGTH, VARINT
from pykafka_wire.values.protobuf.types import DURATION_SECONDS, KINDS, TIMESTAMP_SECONDS
from pykafka_wire.wire.records.arrays import to_arrow, validity
from pykafka_wire.wire.records.row_segments import (
    BytesSegment,
    RowSegment,
    Words,
    WordSegment,
    bounds,
    byte_lengths,
    bytes_segment,
    constant,
    join_segments,
    masked,
    unsigned_varints,
)
from pykafka_wire.wire.records.varints import zigzag


class Value(ABC):
    """Writes the values of a field.

    Attributes:
        wire_type: of a value.
        is_flat: whether a column with nulls is written as it is: what is written for a null means nothing.
    """

    wire_type: int
    is_flat: ClassVar[bool] = True

    @abstractmethod
    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        """The segments of each value, a length before it where it has one; and bool[n]: which are other than zero or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Value):
    """Integers as varints or of fixed width.

    Attributes:
        dtype: NumPy's name of the column's numbers; empty for decimals without a fraction.
        lowest, highest: of the field's type.
    """

    path: str
    wire_type: int
    dtype: str
    lowest: int
    highest: int
    is_zigzag: bool = False

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        words, wrong = self._of_decimals(column) if not self.dtype else self._of_integers(column)
        if column.null_count:
            valid = validity(column)
            wrong &= valid
            words = np.where(valid, words, np.uint64(0))
        if wrong.any():
            errors.add(
                np.flatnonzero(wrong), self.path, f"a number that is not between {self.lowest} and {self.highest}"
            )
        is_set = words != 0
        if self.is_zigzag:
            words = zigzag(words.view(np.int64))
        if self.wire_type == VARINT:
            return [*unsigned_varints(words)], is_set
        if self.wire_type == FIXED64:
            return [WordSegment(words, 8, 8)], is_set
        return [WordSegment(words & np.uint64(0xFFFF_FFFF), 4, 4)], is_set

    def _of_integers(self, column: Any) -> tuple[Words, Flags]:
        numbers = fixed_width(column, self.dtype).astype(np.int64)
        wrong = np.zeros(len(numbers), dtype=np.bool_)
        limits = np.iinfo(self.dtype)
        if int(limits.min) < self.lowest:
            wrong |= numbers < self.lowest
        if int(limits.max) > self.highest:
            wrong |= numbers > self.highest
        return numbers.view(np.uint64), wrong

    def _of_decimals(self, column: Any) -> tuple[Words, Flags]:
        whole = pa.decimal128(38, 0)
        wrong = np.zeros(len(column), dtype=np.bool_)
        if column.type != whole:
            column, places = rescaled(column, whole)
            wrong[places] = True
        halves = fixed_width(column, "<i8", 2)
        low, high = halves[0::2].copy(), halves[1::2]
        if self.lowest:
            wrong |= (low >> 63) != high
            wrong |= (low < self.lowest) | (low > self.highest)
        else:
            wrong |= high != 0
            wrong |= low.view(np.uint64) > self.highest
        return low.view(np.uint64), wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Floating(Value):
    """Attributes:
    dtype: NumPy's name of the column's numbers, which the field's type holds exactly.
    """

    wire_type: int
    dtype: str

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        n_bytes = 8 if self.wire_type == FIXED64 else 4
        words = floats(column, self.dtype, n_bytes)
        return [WordSegment(words, n_bytes, n_bytes)], words != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean(Value):
    wire_type: int = VARINT

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        words = booleans(column)
        return [WordSegment(words, 1, 1)], words != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StringValue(Value):
    """``string`` and ``bytes``."""

    path: str
    is_text: bool
    wire_type: int = LENGTH

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        array = binary(column)
        if self.is_text:
            check_text(array, self.path, errors)
        lengths = byte_lengths(array)
        return [*unsigned_varints(lengths.view(np.uint64)), BytesSegment(array)], lengths != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumName(Value):
    """An enum's values by their names; the digits of a number without a name where the enum is open.

    Attributes:
        names: pa.StringArray of all names.
        numbers: int64[…], theirs.
    """

    path: str
    names: Any
    numbers: Ints
    is_closed: bool
    wire_type: int = VARINT

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        found = pc.index_in(column.cast(pa.string()), value_set=self.names)
        is_known = validity(found)
        numbers = self.numbers[np.where(is_known, fixed_width(found, "int32"), 0)]
        unknown = np.flatnonzero(~is_known & validity(column))
        if len(unknown):
            others = _enum_numbers(column.take(to_arrow(unknown)), self.is_closed)
            numbers[unknown] = [0 if each is None else each for each in others]
            wrong = [place for place, each in zip(unknown.tolist(), others, strict=True) if each is None]
            errors.add(np.array(wrong, dtype=np.int64), self.path, "text that is no name of the enum")
        return [*unsigned_varints(numbers.view(np.uint64))], numbers != 0


def _enum_numbers(texts: Any, is_closed: bool) -> list[int | None]:
    found: list[int | None] = []
    for text in texts.to_pylist():
        is_number = not is_closed and len(text) <= 11 and text.lstrip("-").isdecimal() and text.isascii()
        number = int(text) if is_number and str(int(text)) == text else None
        found.append(number if number is not None and -(1 << 31) <= number < 1 << 31 else None)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumNumber(Value):
    """An enum's values by their numbers.

    Attributes:
        numbers: int64[…], of a closed enum; None for an open one.
    """

    integer: Integer
    numbers: Ints | None
    wire_type: int = VARINT

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        if self.numbers is not None:
            wrong = ~np.isin(fixed_width(column, self.integer.dtype), self.numbers) & validity(column)
            if wrong.any():
                errors.add(np.flatnonzero(wrong), self.integer.path, "a number that the enum does not have")
        return self.integer.write(column, errors)


def enum_name(path: str, names: Mapping[str, int], *, is_closed: bool) -> EnumName:
    numbers = np.array(list(names.values()), dtype=np.int64)
    return EnumName(path=path, names=pa.array(list(names), pa.string()), numbers=numbers, is_closed=is_closed)


class Content(ABC):
    """Writes the content of messages: their bytes without a tag and a length."""

    @abstractmethod
    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        """``column`` has no nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Content):
    """A message out of a struct.

    Attributes:
        fields: in the order of their numbers, and the place of each in the struct.
        oneofs: of each, its path and the places of its members in the struct.
    """

    fields: Sequence[tuple[FieldStep, int]]
    oneofs: Sequence[tuple[str, Sequence[int]]] = ()

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        segments: list[RowSegment] = []
        for step, place in self.fields:
            segments += step.write(column.field(place), errors)
        for path, places in self.oneofs:
            n_set = sum(validity(column.field(place)).astype(np.int64) for place in places)
            several = np.flatnonzero(n_set > 1)
            if len(several):
                errors.add(several, path, "several members of one oneof are set")
        return segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper(Content):
    """A wrapper's message out of its value."""

    field: FieldStep

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return self.field.write(column, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Time(Content):
    """Timestamps and durations.

    Attributes:
        per_second: the column's unit.
        lowest, highest: seconds.
        is_signed: whether the part below a second has the sign of the whole.
    """

    path: str
    message: Message
    per_second: int
    lowest: int
    highest: int
    is_signed: bool

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        units = fixed_width(column, "int64")
        seconds, rest = np.divmod(units, self.per_second)
        if self.is_signed:
            back = (seconds < 0) & (rest > 0)
            seconds, rest = seconds + back, np.where(back, rest - self.per_second, rest)
        wrong = (seconds < self.lowest) | (seconds > self.highest)
        if wrong.any():
            errors.add(np.flatnonzero(wrong), self.path, "a time outside the range that Protobuf has")
        nanos = rest * (10**9 // self.per_second)
        parts = pa.StructArray.from_arrays([to_arrow(seconds), to_arrow(nanos)], names=["seconds", "nanos"])
        return self.message.write(parts, errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText(Content):
    """``google.protobuf.Struct``, ``Value`` and ``ListValue`` out of JSON text, one by one.

    For ``Value``, text that is no JSON is a string, as it is where such a message is read.

    Attributes:
        name: of the message in ``google.protobuf.struct_pb2``.
    """

    path: str
    name: str

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        from google.protobuf import json_format, struct_pb2

        cls: Any = getattr(struct_pb2, self.name)
        found: list[bytes] = []
        for row, text in enumerate(column.to_pylist()):
            message = cls()
            try:
                try:
                    json_format.Parse(text, message)
                except json_format.ParseError:
                    if self.name != "Value":
                        raise
                    message.string_value = text
                found.append(message.SerializeToString(deterministic=True))
            except Exception:  # also RecursionError, and what is no text
                errors.add(np.array([row]), self.path, f"text that is not the JSON of a google.protobuf.{self.name}")
                found.append(b"")
        edges = np.zeros(len(found) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in found], out=edges[1:])
        return [bytes_segment(edges, b"".join(found))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested(Value):
    """Messages in messages; groups have an end in place of a length."""

    content: Content
    end: bytes = b""
    wire_type: int = LENGTH
    is_flat: ClassVar[bool] = False

    def write(self, column: Any, errors: EncodeErrors) -> tuple[list[RowSegment], Flags]:
        n = len(column)
        segments, is_set = self.content.write(column, errors), np.ones(n, dtype=np.bool_)
        if self.wire_type == GROUP:
            return [*segments, *constant(self.end, n)], is_set
        whole = join_segments(segments, n)
        return [*unsigned_varints(byte_lengths(whole).view(np.uint64)), BytesSegment(whole)], is_set


class FieldStep(ABC):
    """Writes a field with its tags, for messages of which each is there."""

    @abstractmethod
    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(FieldStep):
    """A singular field.

    Attributes:
        has_presence: whether zero, and what is empty, is written.
        is_required: whether null is an error; else the field is not set.
    """

    path: str
    value: Value
    number: int
    has_presence: bool
    is_required: bool = False

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        present = validity(column)
        if self.is_required and column.null_count:
            errors.add(np.flatnonzero(~present), self.path, "null, and the field is required")
        if not self.value.is_flat and column.null_count:
            return of_present(column, present, errors, self._write)
        segments, is_set = self.value.write(column, errors)
        if not self.has_presence:
            present = present & is_set
        segments = [*self._tags(column), *segments]
        return segments if present.all() else [masked(segment, present) for segment in segments]

    def _write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return [*self._tags(column), *self.value.write(column, errors)[0]]

    def _tags(self, column: Any) -> list[WordSegment]:
        return constant(tag(self.number, self.value.wire_type), len(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(FieldStep):
    """A repeated field out of a list; null is an empty one."""

    path: str
    value: Value
    number: int
    is_packed: bool

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return of_present(column, validity(column), errors, self._write)

    def _write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        starts, items, inner = items_of(column, column.values, errors)
        n = len(items)
        if items.null_count:
            inner.add(np.flatnonzero(~validity(items)), self.path, "null, which a repeated field does not have")
            if not self.value.is_flat:
                items = _without_nulls(items)
                if items is None:
                    return []
        segments, _ = self.value.write(items, inner)
        if not self.is_packed:
            segments = [*constant(tag(self.number, self.value.wire_type), n), *segments]
        whole = join_segments(segments, n)
        written = bytes_segment(bounds(whole)[starts], whole.buffers()[2] or b"")
        if not self.is_packed:
            return [written]
        lengths = byte_lengths(written.array)
        head = [*constant(tag(self.number, LENGTH), len(column)), *unsigned_varints(lengths.view(np.uint64))]
        return [*(masked(segment, lengths > 0) for segment in head), written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries(FieldStep):
    """A map; its entries in the order of their keys, so that equal maps have the same bytes."""

    path: str
    key: Value
    value: Value
    number: int

    def write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        return of_present(column, validity(column), errors, self._write)

    def _write(self, column: Any, errors: EncodeErrors) -> list[RowSegment]:
        starts, keys, inner = items_of(column, column.keys, errors)
        items = items_of(column, column.items, errors)[1]
        n = len(keys)
        if items.null_count:
            inner.add(np.flatnonzero(~validity(items)), self.path, "null, which a map's value cannot be")
            if not self.value.is_flat:
                items = _without_nulls(items)
                if items is None:
                    return []
        counts = np.diff(starts)
        if n and int(counts.max()) > 1:
            owner = np.repeat(np.arange(len(counts)), counts)
            order = pc.sort_indices(
                pa.table({"owner": to_arrow(owner), "key": keys}),
                sort_keys=[("owner", "ascending"), ("key", "ascending")],
            )
            keys, items = keys.take(order), items.take(order)
            places = fixed_width(order, "uint64").astype(np.int64)
            inner = inner.inside(places.__getitem__)
        segments = [*constant(tag(1, self.key.wire_type), n), *self.key.write(keys, inner)[0]]
        segments += [*constant(tag(2, self.value.wire_type), n), *self.value.write(items, inner)[0]]
        entries = join_segments(segments, n)
        head = [*constant(tag(self.number, LENGTH), n), *unsigned_varints(byte_lengths(entries).view(np.uint64))]
        whole = join_segments([*head, BytesSegment(entries)], n)
        return [bytes_segment(bounds(whole)[starts], whole.buffers()[2] or b"")]


def _without_nulls(items: Any) -> Any:
    """Another item in place of each null, whose row is an error; None where all are null."""
    valid = validity(items)
    if not valid.any():
        return None
    return items.take(to_arrow(np.where(valid, np.arange(len(items)), int(np.argmax(valid)))))


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


_JSON: Final = {f"google.protobuf.{name}": name for name in ("Struct", "Value", "ListValue")}
_LIMITS: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint64": (0, (1 << 64) - 1),
}
#: NumPy's names of the fixed-width integers.
_FIXED: Final = {"<i4": "int32", "<u4": "uint32", "<i8": "int64", "<u8": "uint64"}
#: Integers of so many bits are exact as float and as double.
_EXACT_BITS: Final = {"<f4": 16, "<f8": 32}


def column_writer(descriptor: Any, column_type: pa.DataType, prefix: bytes = b"") -> SegmentWriter:
    """What writes columns of an Arrow type as a message type: the bytes of google.protobuf's serialization.

    Fields are in the order of their numbers, and the entries of a map in that of their keys: the same row has the same bytes.

    Args:
        prefix: the bytes before each value, such as Confluent's frame with the message indexes.

    Raises:
        SchemaError: the message cannot hold such a column.
    """
    plan = WritePlan()
    content = plan.content(descriptor, column_type, "")
    refuse(plan.problems, column_type, "Protobuf")
    assert content is not None
    return SegmentWriter(content, prefix)


class WritePlan:
    """Makes the steps of one message type.

    Attributes:
        problems: what does not fit, field by field; the steps are useless unless it is empty.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def content(self, descriptor: Any, column: pa.DataType, path: str) -> Content | None:
        """What writes ``column`` as the content of such messages; None, and a problem, where nothing does."""
        is_a, name = pa.types, descriptor.full_name
        if is_a.is_timestamp(column) and name == "google.protobuf.Timestamp":
            return self._time(descriptor, column, path, TIMESTAMP_SECONDS, is_signed=False)
        if is_a.is_duration(column) and name == "google.protobuf.Duration":
            return self._time(descriptor, column, path, DURATION_SECONDS, is_signed=True)
        if name in _JSON and (is_a.is_string(column) or is_a.is_large_string(column)):
            return JsonText(path=path, name=_JSON[name])
        if is_a.is_struct(column):
            return self._message(descriptor, column, path)
        if is_wrapper(descriptor):
            field = self._field(descriptor.fields_by_name["value"], column, path)
            return None if field is None else Wrapper(field=field)
        self._refuse(path, column, f"the message {name}", "make it a struct of the message's fields")
        return None

    def _message(self, descriptor: Any, column: pa.DataType, path: str) -> Content | None:
        fields: list[tuple[int, FieldStep, int]] = []
        places: dict[str, int] = {}
        known = len(self.problems)
        for place, each in enumerate(column):
            field = descriptor.fields_by_name.get(matching(each.name, list(descriptor.fields_by_name)) or "")
            inner = within(path, each.name)
            if field is None:
                names = ", ".join(one.name for one in descriptor.fields) or "none"
                self.problems.append(
                    f"field {inner} is not in the message {descriptor.full_name}, whose fields are {names}: drop it, or rename it"
                )
            elif field.name in places:
                self.problems.append(f"field {inner} is there twice, in another case")
            else:
                places[field.name] = place
                if not pa.types.is_null(each.type):
                    step = self._field(field, each.type, inner)
                    if step is not None:
                        fields.append((field.number, step, place))
        for field in descriptor.fields:
            place = places.get(field.name, -1)
            if field.is_required and (place < 0 or pa.types.is_null(column.field(place).type)):
                self.problems.append(
                    f"field {within(path, field.name)} is required in the message {descriptor.full_name}: add it to the column"
                )
        if len(self.problems) > known:
            return None
        oneofs = []
        for oneof in descriptor.oneofs:
            members = [places[each.name] for each in oneof.fields if each.name in places]
            if len(members) > 1:
                oneofs.append((within(path, oneof.name), members))
        fields.sort(key=lambda each: each[0])
        return Message(fields=tuple((step, place) for _, step, place in fields), oneofs=tuple(oneofs))

    def _field(self, field: Any, column: pa.DataType, path: str) -> FieldStep | None:
        is_a = pa.types
        if is_map(field):
            if not is_a.is_map(column):
                self._refuse(path, column, "a map", "make it a map")
                return None
            entry = field.message_type.fields_by_name
            key = self._value(entry["key"], column.key_type, f"{path}{{key}}")
            item = self._value(entry["value"], column.item_type, f"{path}{{}}")
            if key is None or item is None:
                return None
            return Entries(path=f"{path}{{}}", key=key, value=item, number=field.number)
        if field.is_repeated:
            if not (is_a.is_list(column) or is_a.is_large_list(column)):
                self._refuse(path, column, "repeated", "make it an array")
                return None
            value = self._value(field, column.value_type, f"{path}[]")
            if value is None:
                return None
            return Repeated(path=f"{path}[]", value=value, number=field.number, is_packed=field.is_packed)
        value = self._value(field, column, path)
        if value is None:
            return None
        return Single(
            path=path,
            value=value,
            number=field.number,
            has_presence=field.has_presence,
            is_required=field.is_required,
        )

    def _value(self, field: Any, column: pa.DataType, path: str) -> Value | None:
        if field.message_type is not None:
            content = self.content(field.message_type, column, path)
            if content is None:
                return None
            if field.type == field.TYPE_GROUP:
                end = tag(field.number, END_GROUP)
                return Nested(content=content, end=end, wire_type=GROUP)
            return Nested(content=content, wire_type=LENGTH)
        found = self._scalar(field, column, path)
        if found is None:
            self._refuse(path, column, _kind(field), "cast the column, or change the schema")
        return found

    def _scalar(self, field: Any, column: pa.DataType, path: str) -> Value | None:
        is_a, kind = pa.types, KINDS.get(field.type)
        is_text, is_bytes = (is_a.is_string, is_a.is_large_string), (is_a.is_binary, is_a.is_large_binary)
        if kind in _EXACT_BITS:
            is_exact = is_a.is_floating(column) and column.bit_width <= int(kind[2]) * 8
            if is_exact or (is_a.is_signed_integer(column) and column.bit_width <= _EXACT_BITS[kind]):
                wire_type = FIXED64 if kind == "<f8" else FIXED32
                return Floating(wire_type=wire_type, dtype=str(np.dtype(column.to_pandas_dtype())))
        elif kind is not None:
            return self._integer(kind, column, path)
        elif field.type == field.TYPE_BOOL:
            return Boolean() if is_a.is_boolean(column) else None
        elif field.type == field.TYPE_ENUM:
            return self._enum(field.enum_type, column, path)
        elif any(each(column) for each in (is_text if field.type == field.TYPE_STRING else is_bytes)):
            return StringValue(path=path, is_text=field.type == field.TYPE_STRING)
        return None

    def _integer(self, kind: str, column: pa.DataType, path: str) -> Integer | None:
        is_decimal = pa.types.is_decimal(column) and column.bit_width == 128
        if not is_decimal and not pa.types.is_signed_integer(column):
            return None
        lowest, highest = _LIMITS[_FIXED.get(kind, kind.replace("sint", "int"))]
        wire_type = VARINT if kind not in _FIXED else FIXED64 if kind.endswith("8") else FIXED32
        return Integer(
            path=path,
            wire_type=wire_type,
            dtype="" if is_decimal else f"int{column.bit_width}",
            lowest=lowest,
            highest=highest,
            is_zigzag=kind.startswith("sint"),
        )

    def _enum(self, enum: Any, column: pa.DataType, path: str) -> Value | None:
        if pa.types.is_string(column) or pa.types.is_large_string(column):
            return enum_name(path, {each.name: each.number for each in enum.values}, is_closed=enum.is_closed)
        if not pa.types.is_signed_integer(column):
            return None
        integer = self._integer("int32", column, path)
        assert integer is not None
        numbers = np.array(list(enum.values_by_number), dtype=np.int64) if enum.is_closed else None
        return EnumNumber(integer=integer, numbers=numbers)

    def _time(
        self, descriptor: Any, column: pa.DataType, path: str, limits: tuple[int, int], *, is_signed: bool
    ) -> Content:
        parts = pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])
        message = self._message(descriptor, parts, path)
        assert isinstance(message, Message)
        return Time(
            path=path,
            message=message,
            per_second=PER_SECOND[column.unit],
            lowest=limits[0],
            highest=limits[1],
            is_signed=is_signed,
        )

    def _refuse(self, path: str, column: pa.DataType, kind: str, remedy: str) -> None:
        where = f"field {path}" if path else "the column"
        self.problems.append(f"{where} is {sql_name(column)} and the schema's type is {kind}: {remedy}")


def _kind(field: Any) -> str:
    if field.enum_type is not None:
        return f"the enum {field.enum_type.full_name}"
    names = {
        field.TYPE_BOOL: "bool",
        field.TYPE_STRING: "string",
        field.TYPE_BYTES: "bytes",
        field.TYPE_FLOAT: "float",
        field.TYPE_DOUBLE: "double",
        field.TYPE_FIXED32: "fixed32",
        field.TYPE_FIXED64: "fixed64",
        field.TYPE_SFIXED32: "sfixed32",
        field.TYPE_SFIXED64: "sfixed64",
    }
    return names.get(field.type) or KINDS[field.type]
