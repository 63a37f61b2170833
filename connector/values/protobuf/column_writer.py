"""Columns to Protobuf messages: what writes an Arrow type as a descriptor's message, what does not fit, and how it is written.

A struct's fields are found by name, exactly or in any case; a field that the column lacks is not set. What is written exactly, or
is checked row by row, need not have the type that reading gives (:mod:`~pykafka_wire.values.protobuf.types`): any integer or
decimal for an integer, numbers for enums, timestamps of each unit, a wrapper's value or its struct.

A :class:`Value` writes the values of one field without their tags. What writes a whole field (:func:`_single`,
:func:`_write_repeated`, :func:`_entries`) adds the tags, and leaves out what is not set. https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import ENVIRONMENT_ERRORS
from pykafka_wire.values.bulk.arrays import Flags, Ints
from pykafka_wire.values.bulk.writing import (
    PER_SECOND,
    EncodeErrors,
    Problems,
    SegmentWriter,
    Write,
    binary,
    booleans,
    floats,
    halves_of,
    is_bytes,
    is_list,
    is_text,
    items_of,
    numbers_of,
    of_present,
    places_in,
    rescale,
    texts_of,
    varint,
    whole_numbers,
    within,
)
from pykafka_wire.values.protobuf.json_mapping import is_map, is_wrapper
from pykafka_wire.values.protobuf.message_group import END_GROUP, FIXED64, GROUP, LENGTH, VARINT, wire_type_of
from pykafka_wire.values.protobuf.types import DURATION_SECONDS, KINDS, TIMESTAMP_SECONDS, dtype_of
from pykafka_wire.wire.arrow.arrays import binary_array, to_arrow, validity
from pykafka_wire.wire.arrow.row_segments import (
    BytesSegment,
    RowSegment,
    Words64,
    WordSegment,
    bounds,
    byte_lengths,
    bytes_segment,
    constant,
    join_segments,
    mask_segment,
    unsigned_varints,
)
from pykafka_wire.wire.arrow.varints import zigzag

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

#: The segments of each value, a length before it where it has one; and bool[n]: which are other than zero or empty.
Written = tuple[list[RowSegment], Flags]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Writes the values of a field.

    Attributes:
        is_flat: whether a column with nulls is written as it is: what is written for a null means nothing.
    """

    write: Callable[[Any, EncodeErrors], Written]
    wire_type: int
    is_flat: bool = True


def _integers(
    column: pa.Array,
    errors: EncodeErrors,
    *,
    path: str,
    wire_type: int,
    lowest: int,
    highest: int,
    is_zigzag: bool = False,
) -> Written:
    """Encode integers, or decimals without a fraction, as varints or of fixed width; ``lowest`` and ``highest`` are the
    field's."""
    if pa.types.is_decimal(column.type):
        words, wrong = _of_decimals(column, lowest, highest)
    else:
        numbers, wrong = whole_numbers(column, lowest, highest)
        words = numbers.view(np.uint64)
    errors.add(wrong, path, f"a number that is not between {lowest} and {highest}", column)
    is_set = words != 0
    if is_zigzag:
        words = zigzag(words.view(np.int64))
    if wire_type == VARINT:
        return [*unsigned_varints(words)], is_set
    if wire_type == FIXED64:
        return [WordSegment(words, 8, 8)], is_set
    return [WordSegment(words & np.uint64(0xFFFF_FFFF), 4, 4)], is_set


def _of_decimals(column: pa.Array, lowest: int, highest: int) -> tuple[Words64, Flags]:
    whole = pa.decimal128(38, 0)
    wrong = np.zeros(len(column), dtype=np.bool_)
    if column.type != whole:
        column, wrong = rescale(column, whole)
    low, high = halves_of(column)
    if lowest:
        numbers = low.view(np.int64)
        wrong |= (numbers >> 63) != high.view(np.int64)
        wrong |= (numbers < lowest) | (numbers > highest)
    else:
        wrong |= (high != 0) | (low > highest)
    return low, wrong


def _floating(column: pa.Array, errors: EncodeErrors, *, n_bytes: int) -> Written:
    """Encode numbers that the field's type holds exactly."""
    words = floats(column, n_bytes)
    return [WordSegment(words, n_bytes, n_bytes)], words != 0


def _booleans(column: pa.Array, errors: EncodeErrors) -> Written:
    words = booleans(column)
    return [WordSegment(words, 1, 1)], words != 0


def _strings(column: pa.Array, errors: EncodeErrors, *, path: str) -> Written:
    """Encode ``string`` and ``bytes``."""
    return _with_lengths(texts_of(column, path, errors))


def _with_lengths(array: pa.Array) -> Written:
    lengths = byte_lengths(array)
    return [*unsigned_varints(lengths.view(np.uint64)), BytesSegment(array)], lengths != 0


def _enum_names(
    column: pa.Array, errors: EncodeErrors, *, path: str, names: pa.Array, numbers: Ints, is_closed: bool
) -> Written:
    """Return an enum's values by their names; the digits of a number without a name where the enum is open.

    Args:
        names: pa.StringArray of all names.
        numbers: int64[…], theirs.
    """
    places, wrong = places_in(column, names)
    numbers_of_names = numbers[places]
    if not is_closed and wrong.any():
        rows = np.flatnonzero(wrong & validity(column))
        read = [_enum_number(text) for text in binary(column.take(to_arrow(rows))).to_pylist()]
        wrong[rows] = [number is None for number in read]
        numbers_of_names[rows] = [number or 0 for number in read]
    errors.add(wrong, path, "text that is no name of the enum", column)
    return [*unsigned_varints(numbers_of_names.view(np.uint64))], numbers_of_names != 0


def _enum_number(text: bytes) -> int | None:
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and -(1 << 31) <= number < 1 << 31 else None


def _closed_enum(column: pa.Array, errors: EncodeErrors, *, path: str, numbers: Ints, integers: Value) -> Written:
    """Return an enum's values by their numbers, of which others are errors."""
    errors.add(~np.isin(numbers_of(column), numbers), path, "a number that the enum does not have", column)
    return integers.write(column, errors)


def _message(
    column: pa.Array,
    errors: EncodeErrors,
    *,
    fields: Sequence[tuple[Write, int]],
    oneofs: Sequence[tuple[str, Sequence[int]]] = (),
) -> list[RowSegment]:
    """Return a message out of a struct.

    Args:
        fields: in the order of their numbers, and the place of each in the struct.
        oneofs: of each, its path and the places of its members in the struct.
    """
    segments: list[RowSegment] = []
    for write, place in fields:
        segments += write(column.field(place), errors)
    for path, places in oneofs:
        n_set = np.zeros(len(column), dtype=np.int64)
        for place in places:
            n_set += validity(column.field(place))
        errors.add(n_set > 1, path, "several members of one oneof are set")
    return segments


def _time(
    column: pa.Array, errors: EncodeErrors, *, path: str, message: Write, limits: tuple[int, int], is_signed: bool
) -> list[RowSegment]:
    """Encode timestamps and durations.

    Args:
        limits: the lowest and the highest number of seconds.
        is_signed: whether the part below a second has the sign of the whole.
    """
    per_second = PER_SECOND[column.type.unit]
    seconds, rest = np.divmod(numbers_of(column), per_second)
    if is_signed:
        back = (seconds < 0) & (rest > 0)
        seconds, rest = seconds + back, np.where(back, rest - per_second, rest)
    wrong = (seconds < limits[0]) | (seconds > limits[1])
    errors.add(wrong, path, "a time outside the range that Protobuf has")
    nanos = rest * (10**9 // per_second)
    parts = pa.StructArray.from_arrays([to_arrow(seconds), to_arrow(nanos)], names=["seconds", "nanos"])
    return message(parts, errors)


def _json_text(column: pa.Array, errors: EncodeErrors, *, path: str, name: str) -> list[RowSegment]:
    """Encode ``google.protobuf.Struct``, ``Value`` and ``ListValue`` out of JSON text, one by one.

    For ``Value``, text that is no JSON is a string, as it is where such a message is read.

    Args:
        name: of the message in ``google.protobuf.struct_pb2``.
    """
    from google.protobuf import json_format, struct_pb2

    cls: Any = getattr(struct_pb2, name)
    encoded: list[bytes] = []
    wrong = np.zeros(len(column), dtype=np.bool_)
    for row, text in enumerate(column.to_pylist()):
        message = cls()
        try:
            try:
                json_format.Parse(text, message)
            except json_format.ParseError:
                if name != "Value":
                    raise
                message.string_value = text
            encoded.append(message.SerializeToString(deterministic=True))
        except ENVIRONMENT_ERRORS:
            raise
        except Exception:  # also RecursionError, and what is no text
            encoded.append(b"")
            wrong[row] = True
    errors.add(wrong, path, f"text that is not the JSON of a google.protobuf.{name}")
    return [BytesSegment(binary_array(encoded))]


def _write_nested(column: pa.Array, errors: EncodeErrors, *, content: Write) -> Written:
    """Encode messages in messages."""
    segments, _ = _with_lengths(join_segments(content(column, errors), len(column)))
    return segments, np.ones(len(column), dtype=np.bool_)


def _group(column: pa.Array, errors: EncodeErrors, *, content: Write, end: bytes) -> Written:
    """Encode messages that have an end in place of a length."""
    return [*content(column, errors), *constant(end, len(column))], np.ones(len(column), dtype=np.bool_)


def _single(
    column: pa.Array,
    errors: EncodeErrors,
    *,
    path: str,
    value: Value,
    number: int,
    has_presence: bool,
    no_null: str = "",
) -> list[RowSegment]:
    """Return a singular field.

    Args:
        has_presence: whether zero, and what is empty, is written.
        no_null: why a null is an error; without it, the field is not set.
    """
    present, own_tag = validity(column), tag(number, value.wire_type)
    if no_null:
        errors.add(~present, path, f"null, {no_null}")
    if not value.is_flat and column.null_count:
        return of_present(column, present, errors, partial(_tag_segments, value=value, tag=own_tag))
    segments, is_set = value.write(column, errors)
    if not has_presence:
        present = present & is_set
    segments = [*constant(own_tag, len(column)), *segments]
    return segments if present.all() else [mask_segment(segment, present) for segment in segments]


def _tag_segments(column: pa.Array, errors: EncodeErrors, *, value: Value, tag: bytes) -> list[RowSegment]:
    return [*constant(tag, len(column)), *value.write(column, errors)[0]]


def _write_repeated(
    column: pa.Array, errors: EncodeErrors, *, path: str, value: Value, number: int, is_packed: bool
) -> list[RowSegment]:
    """Return a repeated field out of a list without nulls."""
    starts, items, inner = items_of(column, column.values, errors)
    if items.null_count:
        inner.add(~validity(items), path, "null, which a repeated field does not have")
    write = partial(_tag_segments, value=value, tag=b"" if is_packed else tag(number, value.wire_type))
    segments = write(items, inner) if value.is_flat else of_present(items, validity(items), inner, write)
    written = _in_rows(starts, segments)
    if not is_packed:
        return [written]
    lengths = byte_lengths(written.array)
    head = [*constant(tag(number, LENGTH), len(column)), *unsigned_varints(lengths.view(np.uint64))]
    return [*(mask_segment(segment, lengths > 0) for segment in head), written]


def _in_rows(starts: Ints, items: list[RowSegment]) -> BytesSegment:
    """Return the bytes of items as those of the rows, which have theirs from ``starts`` on."""
    whole = join_segments(items, int(starts[-1]))
    return bytes_segment(bounds(whole)[starts], whole.buffers()[2] or b"")


def _entries(column: pa.Array, errors: EncodeErrors, *, entry: Value, number: int) -> list[RowSegment]:
    """Return a map without nulls; its entries in the order of their keys, so that equal maps have the same bytes."""
    starts, keys, inner = items_of(column, column.keys, errors)
    items = items_of(column, column.items, errors)[1]
    counts = np.diff(starts)
    if len(keys) and int(counts.max()) > 1:
        owner = np.repeat(np.arange(len(counts)), counts)
        order = pc.sort_indices(
            pa.table({"owner": to_arrow(owner), "key": keys}),
            sort_keys=[("owner", "ascending"), ("key", "ascending")],
        )
        keys, items = keys.take(order), items.take(order)
        places = numbers_of(order).astype(np.int64)
        inner = inner.inside(places.__getitem__)
    entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    return [_in_rows(starts, _tag_segments(entries, inner, value=entry, tag=tag(number, LENGTH)))]


def _where_given(column: pa.Array, errors: EncodeErrors, *, write: Write) -> list[RowSegment]:
    """Return a list or a map; null is an empty one."""
    return of_present(column, validity(column), errors, write)


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


#: What is written for a number of an enum that has no name.
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,9}")
_JSON: Final = {f"google.protobuf.{name}": name for name in ("Struct", "Value", "ListValue")}
#: Integers of so many bits are exact as float and as double.
_EXACT_BITS: Final = {"<f4": 16, "<f8": 32}


def column_writer(descriptor: Descriptor, column_type: pa.DataType, prefix: bytes = b"") -> SegmentWriter:
    """Return what writes columns of an Arrow type as a message type: the bytes of google.protobuf's serialization.

    Fields are in the order of their numbers, and the entries of a map in that of their keys: the same row has the same bytes.

    Args:
        prefix: the bytes before each value, such as Confluent's frame with the message indexes.

    Raises:
        SchemaError: the message cannot hold such a column.
    """
    plan = ProtobufWritePlan()
    content = plan.content(descriptor, column_type, "")
    plan.problems.refuse(column_type, "Protobuf")
    assert content is not None
    return SegmentWriter(content, prefix)


class ProtobufWritePlan:
    """Finds what writes columns as one message type.

    Attributes:
        problems: what does not fit; what is found is useless unless there are none.
    """

    def __init__(self) -> None:
        self.problems = Problems()

    def content(self, descriptor: Descriptor, column: pa.DataType, path: str) -> Write | None:
        """Return what writes ``column``, without nulls, as the content of such messages; None, and a problem, where nothing
        does.
        """
        is_a, name = pa.types, descriptor.full_name
        if is_a.is_timestamp(column) and name == "google.protobuf.Timestamp":
            return self._time(descriptor, path, TIMESTAMP_SECONDS, is_signed=False)
        if is_a.is_duration(column) and name == "google.protobuf.Duration":
            return self._time(descriptor, path, DURATION_SECONDS, is_signed=True)
        if name in _JSON and is_text(column):
            return partial(_json_text, path=path, name=_JSON[name])
        if is_a.is_struct(column):
            return self._message(descriptor, column, path)
        if is_wrapper(descriptor):
            return self._field(descriptor.fields_by_name["value"], column, path)
        self.problems.mismatch(path, column, f"the message {name}", "make it a struct of the message's fields")
        return None

    def _message(self, descriptor: Descriptor, column: pa.DataType, path: str) -> Write | None:
        known = len(self.problems.texts)
        owner = f"message {descriptor.full_name}, whose fields are"
        places = self.problems.places_of(column, list(descriptor.fields_by_name), path, owner)
        fields: list[tuple[Write, int]] = []
        for field in sorted(descriptor.fields, key=lambda declared: declared.number):
            place = places.get(field.name, -1)
            if place >= 0 and not pa.types.is_null(column.field(place).type):
                write = self._field(field, column.field(place).type, within(path, column.field(place).name))
                if write is not None:
                    fields.append((write, place))
            elif field.is_required:
                self.problems.add(
                    f"field {within(path, field.name)} is required in the message {descriptor.full_name}: add it to the column"
                )
        if len(self.problems.texts) > known:
            return None
        oneofs = []
        for oneof in descriptor.oneofs:
            members = [places[field.name] for field in oneof.fields if field.name in places]
            if len(members) > 1:
                oneofs.append((within(path, oneof.name), members))
        return partial(_message, fields=fields, oneofs=oneofs)

    def _field(self, field: FieldDescriptor, column: pa.DataType, path: str) -> Write | None:
        if is_map(field):
            return self._map(field, column, path)
        if not field.is_repeated:
            value = self._value(field, column, path)
            return (
                None
                if value is None
                else partial(
                    _single,
                    path=path,
                    value=value,
                    number=field.number,
                    has_presence=field.has_presence,
                    no_null="and the field is required" if field.is_required else "",
                )
            )
        if not is_list(column):
            self.problems.mismatch(path, column, "repeated", "make it an array")
            return None
        path = f"{path}[]"
        value = self._value(field, column.value_type, path)
        if value is None:
            return None
        write = partial(_write_repeated, path=path, value=value, number=field.number, is_packed=field.is_packed)
        return partial(_where_given, write=write)

    def _map(self, field: FieldDescriptor, column: pa.DataType, path: str) -> Write | None:
        if not pa.types.is_map(column):
            self.problems.mismatch(path, column, "a map", "make it a map")
            return None
        fields: list[tuple[Write, int]] = []
        kinds = (column.key_type, f"{path}{{key}}"), (column.item_type, f"{path}{{}}")
        for place, (entry_field, (kind, inner)) in enumerate(zip(field.message_type.fields, kinds, strict=True)):
            value = self._value(entry_field, kind, inner)
            if value is not None:
                no_null = "which a map's value cannot be"
                write = partial(
                    _single, path=inner, value=value, number=entry_field.number, has_presence=True, no_null=no_null
                )
                fields.append((write, place))
        if len(fields) < len(kinds):
            return None
        entry = _nested_value(partial(_message, fields=fields))
        return partial(_where_given, write=partial(_entries, entry=entry, number=field.number))

    def _value(self, field: FieldDescriptor, column: pa.DataType, path: str) -> Value | None:
        if field.message_type is not None:
            content = self.content(field.message_type, column, path)
            if content is None:
                return None
            if field.type == field.TYPE_GROUP:
                end = tag(field.number, END_GROUP)
                return Value(write=partial(_group, content=content, end=end), wire_type=GROUP, is_flat=False)
            return _nested_value(content)
        write = self._scalar(field, column, path)
        if write is None:
            self.problems.mismatch(path, column, _kind(field), "cast the column, or change the schema")
        return write

    def _scalar(self, field: FieldDescriptor, column: pa.DataType, path: str) -> Value | None:
        is_a, kind = pa.types, KINDS.get(field.type)
        if kind in _EXACT_BITS:
            n_bytes = int(kind[2])
            is_exact = is_a.is_floating(column) and column.bit_width <= n_bytes * 8
            if is_exact or (is_a.is_signed_integer(column) and column.bit_width <= _EXACT_BITS[kind]):
                return Value(write=partial(_floating, n_bytes=n_bytes), wire_type=wire_type_of(kind))
        elif kind is not None:
            return _integer_value(kind, column, path)
        elif field.type == field.TYPE_BOOL:
            return Value(write=_booleans, wire_type=VARINT) if is_a.is_boolean(column) else None
        elif field.type == field.TYPE_ENUM:
            return _enum_value(field.enum_type, column, path)
        elif (is_text if field.type == field.TYPE_STRING else is_bytes)(column):
            return Value(write=partial(_strings, path=path), wire_type=LENGTH)
        return None

    def _time(self, descriptor: Descriptor, path: str, limits: tuple[int, int], *, is_signed: bool) -> Write:
        parts = pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])
        message = self._message(descriptor, parts, path)
        assert message is not None
        return partial(_time, path=path, message=message, limits=limits, is_signed=is_signed)


def _nested_value(content: Write) -> Value:
    return Value(write=partial(_write_nested, content=content), wire_type=LENGTH, is_flat=False)


def _integer_value(kind: str, column: pa.DataType, path: str) -> Value | None:
    is_decimal = pa.types.is_decimal(column) and column.bit_width == 128
    if not is_decimal and not pa.types.is_signed_integer(column):
        return None
    limits: Any = np.iinfo(dtype_of(kind))
    lowest, highest, wire_type = int(limits.min), int(limits.max), wire_type_of(kind)
    is_zigzag = kind.startswith("sint")
    write = partial(_integers, path=path, wire_type=wire_type, lowest=lowest, highest=highest, is_zigzag=is_zigzag)
    return Value(write=write, wire_type=wire_type)


def _enum_value(enum: EnumDescriptor, column: pa.DataType, path: str) -> Value | None:
    if is_text(column):
        numbers = np.array([value.number for value in enum.values], dtype=np.int64)
        names = binary_array([value.name.encode() for value in enum.values]).view(pa.string())
        write = partial(_enum_names, path=path, names=names, numbers=numbers, is_closed=enum.is_closed)
        return Value(write=write, wire_type=VARINT)
    if not pa.types.is_signed_integer(column):
        return None
    integers = _integer_value("int32", column, path)
    if integers is None or not enum.is_closed:
        return integers
    numbers = np.array(list(enum.values_by_number), dtype=np.int64)
    return Value(write=partial(_closed_enum, path=path, numbers=numbers, integers=integers), wire_type=VARINT)


def _kind(field: FieldDescriptor) -> str:
    if field.enum_type is not None:
        return f"the enum {field.enum_type.full_name}"
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()
