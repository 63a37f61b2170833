"""Makes the steps that write a column as Protobuf, from a message's descriptor and the column's Arrow type.

A struct's fields are found by name, exactly or in any case; a field that the column lacks is not set. What is written exactly, or
is checked row by row, need not have the type that reading gives (:mod:`~pykafka_wire.values.protobuf.types`): any integer or
decimal for an integer, numbers for enums, timestamps of each unit, a wrapper's value or its struct.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from pykafka_wire.values.bulk.writing import PER_SECOND, SegmentWriter, matching, refuse, sql_name, within
from pykafka_wire.values.protobuf import write_messages as messages
from pykafka_wire.values.protobuf import write_scalars as scalars
from pykafka_wire.values.protobuf.column_plan import DURATION_SECONDS, KINDS, TIMESTAMP_SECONDS
from pykafka_wire.values.protobuf.field_scan import END_GROUP, FIXED32, FIXED64, GROUP, LENGTH, VARINT
from pykafka_wire.values.protobuf.json_mapping import is_map, is_wrapper
from pykafka_wire.values.protobuf.write_messages import Content, FieldStep
from pykafka_wire.values.protobuf.write_scalars import Value

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
            return messages.JsonText(path=path, name=_JSON[name])
        if is_a.is_struct(column):
            return self._message(descriptor, column, path)
        if is_wrapper(descriptor):
            field = self._field(descriptor.fields_by_name["value"], column, path)
            return None if field is None else messages.Wrapper(field=field)
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
        return messages.Message(fields=tuple((step, place) for _, step, place in fields), oneofs=tuple(oneofs))

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
            return messages.Entries(path=f"{path}{{}}", key=key, value=item, number=field.number)
        if field.is_repeated:
            if not (is_a.is_list(column) or is_a.is_large_list(column)):
                self._refuse(path, column, "repeated", "make it an array")
                return None
            value = self._value(field, column.value_type, f"{path}[]")
            if value is None:
                return None
            return messages.Repeated(path=f"{path}[]", value=value, number=field.number, is_packed=field.is_packed)
        value = self._value(field, column, path)
        if value is None:
            return None
        return messages.Single(
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
                end = messages.tag(field.number, END_GROUP)
                return messages.Nested(content=content, end=end, wire_type=GROUP)
            return messages.Nested(content=content, wire_type=LENGTH)
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
                return scalars.Floating(wire_type=wire_type, dtype=str(np.dtype(column.to_pandas_dtype())))
        elif kind is not None:
            return self._integer(kind, column, path)
        elif field.type == field.TYPE_BOOL:
            return scalars.Boolean() if is_a.is_boolean(column) else None
        elif field.type == field.TYPE_ENUM:
            return self._enum(field.enum_type, column, path)
        elif any(each(column) for each in (is_text if field.type == field.TYPE_STRING else is_bytes)):
            return scalars.Text(path=path, is_text=field.type == field.TYPE_STRING)
        return None

    def _integer(self, kind: str, column: pa.DataType, path: str) -> scalars.Integer | None:
        is_decimal = pa.types.is_decimal(column) and column.bit_width == 128
        if not is_decimal and not pa.types.is_signed_integer(column):
            return None
        least, most = _LIMITS[_FIXED.get(kind, kind.replace("sint", "int"))]
        wire_type = VARINT if kind not in _FIXED else FIXED64 if kind.endswith("8") else FIXED32
        return scalars.Integer(
            path=path,
            wire_type=wire_type,
            dtype="" if is_decimal else f"int{column.bit_width}",
            least=least,
            most=most,
            is_zigzag=kind.startswith("sint"),
        )

    def _enum(self, enum: Any, column: pa.DataType, path: str) -> Value | None:
        if pa.types.is_string(column) or pa.types.is_large_string(column):
            return scalars.enum_name(path, {each.name: each.number for each in enum.values}, is_closed=enum.is_closed)
        if not pa.types.is_signed_integer(column):
            return None
        integer = self._integer("int32", column, path)
        assert integer is not None
        numbers = np.array(list(enum.values_by_number), dtype=np.int64) if enum.is_closed else None
        return scalars.EnumNumber(integer=integer, numbers=numbers)

    def _time(
        self, descriptor: Any, column: pa.DataType, path: str, limits: tuple[int, int], *, is_signed: bool
    ) -> Content:
        parts = pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])
        message = self._message(descriptor, parts, path)
        assert isinstance(message, messages.Message)
        return messages.Time(
            path=path,
            message=message,
            per_second=PER_SECOND[column.unit],
            least=limits[0],
            most=limits[1],
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
