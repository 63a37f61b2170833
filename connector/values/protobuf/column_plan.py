"""What reads the messages of a descriptor as an Arrow type in columns.

Fields and types that resist (groups, extensions, values by way of Protobuf's JSON mapping) are left to the row-by-row conversion
(:mod:`~pykafka_wire.values.protobuf.conversion`), whose values are the reference: messages that have them fail.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.values.protobuf.conversion import enum_names, is_plain_struct
from pykafka_wire.values.protobuf.field_scan import FIXED32, FIXED64, GROUP, LENGTH, VARINT
from pykafka_wire.values.protobuf.json_mapping import WELL_KNOWN, is_map, is_wrapper
from pykafka_wire.values.protobuf.message_columns import (
    Absent,
    Field,
    LeftOver,
    Messages,
    Repeated,
    SingleMessage,
    SingleScalar,
    Struct,
    Time,
    Wrapped,
)
from pykafka_wire.values.protobuf.scalar_columns import Boolean, EnumName, Number, Scalar, Text
from pykafka_wire.values.protobuf.types import UINT64_TYPE, scalar_type

#: 0001-01-01 and 9999-12-31T23:59:59, and some 10,000 years: the limits of the well-known types.
TIMESTAMP_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
DURATION_SECONDS: Final = (-315_576_000_000, 315_576_000_000)
_TIME_PARTS: Final = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
#: As in :mod:`~pykafka_wire.values.protobuf.conversion`: a message of the library and its place in a list; a field of both.
_MESSAGE_BYTES: Final = 112
_FIELD_BYTES: Final = 24
#: Of fields that a message of the log names.
_MAX_PLACES: Final = 10
#: Each use of a message in a type is a step of its own. More than this is an attack, not a topic's schema.
_MAX_MESSAGES: Final = 2_000

logger = logging.getLogger(__name__)


class _NotInColumnsError(Exception):
    """The type cannot be read in columns, whatever the bytes."""


def column_plan(descriptor: Any, wanted: pa.DataType) -> Messages | None:
    """What reads such messages as ``wanted``; None if no row can be read in columns."""
    plan, found = _Plan(), None
    name = descriptor.full_name
    try:
        found = plan.messages(descriptor, wanted, "")
        plan.complete()
    except _NotInColumnsError as error:
        logger.info("Protobuf messages %s are read one by one, not in columns: %s", name, error)
        return None
    if isinstance(found, LeftOver):
        logger.info("Protobuf messages %s are read one by one, not in columns, as %s", name, wanted)
        return None
    if plan.left:
        places = ", ".join(plan.left[:_MAX_PLACES]) + (", …" if len(plan.left) > _MAX_PLACES else "")
        logger.info("Protobuf messages %s in which these are set are read one by one, not in columns: %s", name, places)
    return found


class _Plan:
    """Attributes:
    left: the wanted fields that are not read in columns where they are set.
    """

    def __init__(self) -> None:
        self.left: list[str] = []
        self._unwanted: dict[str, Struct] = {}
        self._incomplete: list[tuple[Struct, Any]] = []
        self._n_messages = 0

    def messages(self, descriptor: Any, wanted: pa.DataType, path: str) -> Messages:
        self._n_messages += 1
        if self._n_messages > _MAX_MESSAGES:
            raise _NotInColumnsError(f"more than {_MAX_MESSAGES} messages in messages")
        if descriptor.GetOptions().message_set_wire_format:
            return self._left_over(wanted, path)
        if is_plain_struct(descriptor, wanted):
            return self._struct(descriptor, wanted, path)
        if is_wrapper(descriptor):
            return Wrapped(self._struct(descriptor, pa.struct([pa.field("value", wanted)]), path))
        if descriptor.full_name == "google.protobuf.Timestamp" and _is_micros(pa.types.is_timestamp, wanted):
            return Time(self._struct(descriptor, _TIME_PARTS, path), wanted, TIMESTAMP_SECONDS, is_signed=False)
        if descriptor.full_name == "google.protobuf.Duration" and _is_micros(pa.types.is_duration, wanted):
            return Time(self._struct(descriptor, _TIME_PARTS, path), wanted, DURATION_SECONDS, is_signed=True)
        if descriptor.full_name in WELL_KNOWN or not pa.types.is_struct(wanted):
            return self._left_over(wanted, path)
        if any(each.name.startswith("[") for each in wanted):  # an extension
            return self._left_over(wanted, path)
        return self._struct(descriptor, wanted, path)

    def _left_over(self, wanted: pa.DataType, path: str) -> LeftOver:
        self.left.append(path)
        return LeftOver(wanted)

    def _struct(self, descriptor: Any, wanted: pa.DataType, path: str, *, is_entry: bool = False) -> Struct:
        """``is_entry``: of a map, whose key and value have their defaults where they are not given."""
        struct = Struct(wanted, is_entry=is_entry)
        names = {each.name for each in wanted}
        if len(names) < len(wanted):
            raise _NotInColumnsError(f"{path or 'the type'} has a name twice")
        fields: list[Field] = []
        for each in wanted:
            field = descriptor.fields_by_name.get(each.name)
            if field is None:
                fields.append(Absent(each.type))
            else:
                inner = f"{path}.{each.name}" if path else each.name
                fields.append(self._field(field, each.type, inner, is_entry=is_entry))
        struct.fields = fields
        self._complete(struct, descriptor, names)
        struct.row_bytes += sum(each.row_bytes + _FIELD_BYTES for each in fields)
        return struct

    def _complete(self, struct: Struct, descriptor: Any, names: set[str]) -> None:
        """What must be checked of a message beside its wanted fields."""
        known = [*descriptor.fields, *descriptor.file.pool.FindAllExtensions(descriptor)]
        struct.row_bytes = _MESSAGE_BYTES + 16 * len(known)
        unwanted = [each for each in known if each.is_extension or each.name not in names]
        struct.checked = [found for found in map(self._check, unwanted) if found is not None]
        struct.required = [_tags(each) for each in known if each.is_required]
        oneofs = ([tag for each in oneof.fields for tag in _tags(each)] for oneof in descriptor.oneofs)
        struct.oneofs = [tags for tags in oneofs if len(tags) > 1]

    def _check(self, field: Any) -> Field | None:
        """What fails messages in which a field that no one wants is not valid; None where it always is."""
        if field.type == field.TYPE_GROUP:
            return None  # messages that have one fail whatever is in it
        if field.message_type is not None:
            inner = self._unwanted_message(field.message_type)
            if field.is_repeated:
                return Repeated(inner, field.number, pa.list_(inner.type))
            # An entry of a map without a value has an empty one, in which required fields are missing.
            is_value = field.containing_type.GetOptions().map_entry
            needs_fields = is_value and any(each.is_required for each in field.message_type.fields)
            return SingleMessage(inner, field.number, is_always_set=bool(needs_fields))
        scalar = self._scalar(field, scalar_type(field), field.name)
        if field.is_repeated and (field.type == field.TYPE_STRING or _is_packable(field)):
            return Repeated(scalar, field.number, pa.list_(scalar.type))
        if field.type == field.TYPE_STRING or (field.is_required and field.enum_type is not None):
            return SingleScalar(scalar, field.number, has_presence=True)
        return None

    def _unwanted_message(self, descriptor: Any) -> Messages:
        if descriptor.GetOptions().message_set_wire_format:
            return LeftOver(pa.struct([]))
        known = self._unwanted.get(descriptor.full_name)
        if known is None:
            known = self._unwanted[descriptor.full_name] = Struct(pa.struct([]))
            self._incomplete.append((known, descriptor))
        return known

    def complete(self) -> None:
        """What must be checked of messages that no one wants. Without recursion: they may lead to any number of others."""
        while self._incomplete:
            struct, descriptor = self._incomplete.pop()
            self._complete(struct, descriptor, set())

    def _field(self, field: Any, wanted: pa.DataType, path: str, *, is_entry: bool) -> Field:
        is_a = pa.types
        if field.enum_type is not None and field.enum_type.full_name == "google.protobuf.NullValue":
            if field.is_repeated:
                raise _not_in_columns(field, wanted, path)
            return Absent(wanted)
        if is_map(field):
            if not is_a.is_map(wanted):
                raise _not_in_columns(field, wanted, path)
            entry = pa.struct([pa.field("key", wanted.key_type, nullable=False), wanted.item_field.with_name("value")])
            return Repeated(self._struct(field.message_type, entry, path, is_entry=True), field.number, wanted)
        if field.is_repeated:
            if not is_a.is_list(wanted):
                raise _not_in_columns(field, wanted, path)
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
        return SingleScalar(
            self._scalar(field, wanted, path), field.number, has_presence=field.has_presence and not is_entry
        )

    def _scalar(self, field: Any, wanted: pa.DataType, path: str) -> Scalar:
        is_a = pa.types
        kind = KINDS.get(field.type)
        if kind in ("<f4", "<f8"):
            if is_a.is_float64(wanted) or (is_a.is_float32(wanted) and kind == "<f4"):
                return Number(kind, wanted)
        elif kind is not None:
            if is_a.is_signed_integer(wanted):
                return Number(kind, wanted)
            if kind in ("uint64", "<u8") and wanted == UINT64_TYPE:
                return Number(kind, wanted)
        elif field.type == field.TYPE_BOOL:
            if is_a.is_boolean(wanted):
                return Boolean()
        elif field.type == field.TYPE_ENUM:
            if not is_a.is_string(wanted):
                raise _not_in_columns(field, wanted, path)
            enum = field.enum_type
            default = int(field.default_value or 0)
            return EnumName(enum_names(enum), is_closed=enum.is_closed, default=default)
        elif (is_a.is_string if field.type == field.TYPE_STRING else is_a.is_binary)(wanted):
            return Text(wanted)
        raise _not_in_columns(field, wanted, path)


# FieldDescriptor.Type (https://protobuf.dev/reference/protobuf/google.protobuf/#field-descriptor-proto-type)
KINDS: Final = {
    1: "<f8",
    2: "<f4",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "<u8",
    7: "<u4",
    13: "uint32",
    15: "<i4",
    16: "<i8",
    17: "sint32",
    18: "sint64",
}


def _not_in_columns(field: Any, wanted: pa.DataType, path: str) -> _NotInColumnsError:
    return _NotInColumnsError(f"{path} is read as {wanted}, which is not the type of the field {field.full_name}")


def _is_packable(field: Any) -> bool:
    return field.type not in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE, field.TYPE_GROUP)


def _tags(field: Any) -> list[int]:
    """The tag of a field that is not repeated."""
    kind = KINDS.get(field.type, "")
    wire_type = VARINT
    if field.type == field.TYPE_GROUP:
        wire_type = GROUP
    elif not _is_packable(field):
        wire_type = LENGTH
    elif kind.startswith("<"):
        wire_type = FIXED64 if kind.endswith("8") else FIXED32
    return [field.number << 3 | wire_type]


def _is_micros(is_kind: Any, wanted: pa.DataType) -> bool:
    return bool(is_kind(wanted)) and wanted.unit == "us"
