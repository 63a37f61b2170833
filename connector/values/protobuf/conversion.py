"""Parsed messages to an Arrow type: the fields that are wanted, and no others.

What has a type of its own in Arrow is passed on as it is. Any other combination goes through Protobuf's JSON mapping.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.arrow_conversion import conversion_to, key_conversion_to, not_null
from pykafka_wire.values.protobuf.input_limits import Budget
from pykafka_wire.values.protobuf.json_mapping import (
    NO_RULES,
    WELL_KNOWN,
    FieldRules,
    JsonMapping,
    is_map,
    is_wrapper,
    map_key,
)
from pykafka_wire.values.protobuf.map_entries import WithoutMaps, pairs
from pykafka_wire.values.protobuf.types import scalar_type

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

#: From a message, or a field's value, to one that ``pa.array`` takes. Structs are tuples, a tenth of a dict's size.
MessageConversion = Callable[[Any, Budget], Any]

_MICROSECOND: Final = datetime.timedelta(microseconds=1)
#: Estimates: a tuple with its place in a list; a field in it and in the column; an item of an array; an entry of a map.
_STRUCT_BYTES: Final = 64
_FIELD_BYTES: Final = 16
_ITEM_BYTES: Final = 32
_ENTRY_BYTES: Final = 128
#: The field that tells a well-known message's own fields from those of its JSON mapping.
_PLAIN: Final = {
    "google.protobuf.Any": "type_url",
    "google.protobuf.FieldMask": "paths",
    "google.protobuf.Timestamp": "seconds",
    "google.protobuf.Duration": "seconds",
}


def message_conversion(
    descriptor: Descriptor,
    wanted: pa.DataType,
    lists: WithoutMaps | None,
    rules: FieldRules = NO_RULES,
) -> MessageConversion:
    """Return what turns parsed messages of one type into values of ``wanted``; a field that the type lacks is null.

    Args:
        lists: what the messages are parsed by in place of the file of ``descriptor``, if that has maps.
        rules: those of a merged message.
    """
    pool, entries = (descriptor.file.pool, frozenset[str]()) if lists is None else (lists.pool, lists.entries)
    mapping = JsonMapping(pool, entries, rules)
    return _Compiler(mapping, rules).message(descriptor, wanted)


def is_plain_struct(descriptor: Descriptor, wanted: pa.DataType) -> bool:
    """Return whether a struct has the fields of a well-known message, as in ``from_protobuf``, and not those of its JSON
    mapping.
    """
    names = {field.name for field in wanted} if pa.types.is_struct(wanted) else set()
    if descriptor.full_name == "google.protobuf.Any" and names == {"value"}:
        return bool(
            pa.types.is_binary(wanted.field("value").type)
        )  # the JSON mapping of some messages has a value, too
    return bool(is_wrapper(descriptor) and names) or _PLAIN.get(descriptor.full_name) in names


def is_by_json(descriptor: Descriptor, wanted: pa.DataType) -> bool:
    """Return whether messages, neither plain structs nor wrappers, are read by way of the JSON mapping: also those with
    extensions.
    """
    is_regular = descriptor.full_name not in WELL_KNOWN and pa.types.is_struct(wanted)
    return not is_regular or any(field.name.startswith("[") for field in wanted)


class _Compiler:
    def __init__(self, mapping: JsonMapping, rules: FieldRules) -> None:
        self._mapping = mapping
        self._rules = rules

    def message(self, descriptor: Descriptor, wanted: pa.DataType) -> MessageConversion:
        if is_plain_struct(descriptor, wanted):
            return self._struct(descriptor, wanted)
        if is_wrapper(descriptor):
            inner = self._single(descriptor.fields_by_name["value"], wanted)
            return lambda message, budget: message.value if inner is None else inner(message.value, budget)
        if descriptor.full_name == "google.protobuf.Duration" and wanted == pa.int64():
            spans = _by_json(self._mapping.message, pa.duration("us"))
            return lambda message, budget: spans(message, budget) // _MICROSECOND
        if is_by_json(descriptor, wanted):
            return _by_json(self._mapping.message, wanted)
        return self._struct(descriptor, wanted)

    def _struct(self, descriptor: Descriptor, wanted: pa.DataType) -> MessageConversion:
        from google.protobuf.message_factory import GetMessageClass

        has_field = GetMessageClass(descriptor).HasField  # a field may have that name, too
        steps: list[tuple[str, bool, bool, MessageConversion | None]] = []
        for wanted_field in wanted:
            field = descriptor.fields_by_name.get(wanted_field.name)
            if field is None:
                steps.append((wanted_field.name, False, wanted_field.nullable, None))
            else:
                is_set = not field.has_presence or (descriptor.full_name, field.number) in self._rules.always_set
                steps.append((wanted_field.name, True, is_set, self._field(field, wanted_field)))
        required = {field.name for field in wanted if not field.nullable}
        size = _STRUCT_BYTES + _FIELD_BYTES * len(steps)

        def convert_struct(message: Message, budget: Budget) -> Any:
            budget.spend(size)
            row: list[Any] = []
            name = ""
            try:
                for name, is_there, is_always_set, convert in steps:
                    if is_there and (is_always_set or has_field(message, name)):
                        value = getattr(message, name)
                        row.append(value if convert is None else convert(value, budget))
                    else:
                        row.append(not_null(None) if name in required else None)
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
            return tuple(row)

        return convert_struct

    def _field(self, field: FieldDescriptor, wanted: pa.Field) -> MessageConversion | None:
        """Return None where values stay as they are."""
        is_a = pa.types
        if is_map(field):
            if is_a.is_map(wanted.type):
                entry = field.message_type.fields_by_name
                key = self._key(entry["key"], wanted.type.key_type)
                return _map(key, self._item(entry["value"], wanted.type.item_field))
        elif field.is_repeated:
            if is_a.is_list(wanted.type):
                return _list(self._item(field, wanted.type.value_field))
        else:
            return self._item(field, wanted)
        return _not_null(_by_json(lambda value, budget: self._mapping.field(field, value, budget), wanted.type), wanted)

    def _item(self, field: FieldDescriptor, wanted: pa.Field) -> MessageConversion | None:
        convert = self._single(field, wanted.type)
        return None if convert is None else _not_null(convert, wanted)

    def _single(self, field: FieldDescriptor, wanted: pa.DataType) -> MessageConversion | None:
        if field.message_type is not None:
            return self.message(field.message_type, wanted)
        if _is_same(field, wanted):
            return None
        convert, scalar = conversion_to(wanted), self._mapping.scalar
        if pa.types.is_integer(wanted) and field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            return lambda value, budget: convert(value)
        if pa.types.is_floating(wanted) and field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            return lambda value, budget: convert(value)
        if pa.types.is_string(wanted) and field.cpp_type == field.CPPTYPE_ENUM:
            return _enum_text(field.enum_type, lambda value: convert(scalar(field, value)))
        return lambda value, budget: convert(scalar(field, value))

    def _key(self, field: FieldDescriptor, wanted: pa.DataType) -> Callable[[Any], Any] | None:
        if _is_same(field, wanted):
            return None
        convert = key_conversion_to(wanted)
        return lambda key: convert(map_key(key))


#: Types of fields, and wider ones that hold their values, too.
_WIDER: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _is_same(field: FieldDescriptor, wanted: pa.DataType) -> bool:
    """Return whether Arrow takes any value of the field as it is."""
    if field.cpp_type in (field.CPPTYPE_ENUM, field.CPPTYPE_UINT64):  # read by name, and as a decimal
        return False
    natural_type = scalar_type(field)
    return natural_type == wanted or (natural_type, wanted) in _WIDER


def _not_null(convert: MessageConversion, wanted: pa.Field) -> MessageConversion:
    return convert if wanted.nullable else lambda value, budget: not_null(convert(value, budget))


def _enum_text(enum: EnumDescriptor, other: Callable[[Any], Any]) -> MessageConversion:
    if enum.full_name == "google.protobuf.NullValue":
        return lambda value, budget: other(value)
    names = enum_names(enum)
    return lambda value, budget: names.get(value) or other(value)


def enum_names(enum: EnumDescriptor) -> dict[int, str]:
    """Return each number's name; of aliases the first, as everywhere in Protobuf."""
    return {value.number: value.name for value in reversed(enum.values)}


def _list(convert: MessageConversion | None) -> MessageConversion:
    def convert_list(values: Any, budget: Budget) -> Any:
        budget.spend(_ITEM_BYTES * len(values))
        return list(values) if convert is None else [convert(value, budget) for value in values]

    return convert_list


def _map(key: Callable[[Any], Any] | None, item: MessageConversion | None) -> MessageConversion:
    def convert_map(entries: Any, budget: Budget) -> Any:
        budget.spend(_ENTRY_BYTES * len(entries))
        # As arrow_conversion: the last of several keys that are one in the wanted type.
        return list(
            {
                name if key is None else key(name): element if item is None else item(element, budget)
                for name, element in pairs(entries).items()
            }.items()
        )

    return convert_map


def _by_json(mapped: MessageConversion, wanted: pa.DataType) -> MessageConversion:
    """Convert by way of the JSON mapping, in whose results structs are dicts: Arrow takes no column in which some are tuples."""
    convert = conversion_to(wanted)
    if not _has_struct(wanted):
        return lambda value, budget: convert(mapped(value, budget))
    return lambda value, budget: _with_tuples(convert(mapped(value, budget)), wanted)


def _has_struct(wanted: pa.DataType) -> bool:
    is_a = pa.types
    if is_a.is_list(wanted):
        return _has_struct(wanted.value_type)
    if is_a.is_map(wanted):
        return _has_struct(wanted.key_type) or _has_struct(wanted.item_type)
    return bool(is_a.is_struct(wanted))


def _with_tuples(value: Any, wanted: pa.DataType) -> Any:
    is_a = pa.types
    if value is None or not _has_struct(wanted):
        return value
    if is_a.is_struct(wanted):
        return tuple(_with_tuples(value.get(field.name), field.type) for field in wanted)
    if is_a.is_map(wanted):
        return [(key, _with_tuples(item, wanted.item_type)) for key, item in value]
    return [_with_tuples(item, wanted.value_type) for item in value]
