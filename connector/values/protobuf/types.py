"""The Arrow type of a Protobuf message: the one whose Spark type is that of Spark's ``from_protobuf``; and the reverse.

Differences from ``from_protobuf`` without options, each with its reason:

- every nested field, item and map value is nullable: a source's columns are, whatever ``required`` says;
- ``uint32`` and ``fixed32`` are ``bigint``, ``uint64`` and ``fixed64`` are ``decimal(20,0)``, as with Spark's option
  ``upcast.unsigned.ints``: the narrower types would make large numbers negative;
- ``google.protobuf.Struct``, ``Value`` and ``ListValue`` are ``string`` and hold JSON: Spark rejects them as recursive;
- of messages with the names Timestamp and Duration, only those of ``google.protobuf`` are times, not a user's own.

In the file that is made of a column's type, for a subject that has none, a field that may be null is ``optional``, so that null and
the default stay apart. Knows descriptors, and neither a registry nor Spark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pykafka_wire.errors import SchemaError
from pykafka_wire.field_selection import WHOLE, Selection
from pykafka_wire.values.bulk.writing import sql_name
from pykafka_wire.values.protobuf.json_mapping import is_map

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

UINT64_TYPE: Final = pa.decimal128(20, 0)
#: 0001-01-01 and 9999-12-31T23:59:59, and some 10,000 years: the limits of the well-known types.
TIMESTAMP_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
DURATION_SECONDS: Final = (-315_576_000_000, 315_576_000_000)
#: The types of numbers by FieldDescriptor.Type: the name of one of varints, NumPy's of a fixed-width one
#: (https://protobuf.dev/reference/protobuf/google.protobuf/#field-descriptor-proto-type).
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


def dtype_of(kind: str) -> str:
    """Return NumPy's name of the numbers of a kind."""
    return kind.replace("sint", "int")


_WELL_KNOWN: Final = {
    "google.protobuf.Timestamp": pa.timestamp("us", tz="UTC"),
    "google.protobuf.Duration": pa.duration("us"),
    "google.protobuf.Struct": pa.string(),
    "google.protobuf.Value": pa.string(),
    "google.protobuf.ListValue": pa.string(),
}
#: Each use of a message repeats its fields: a few nested messages can make millions of columns.
_MAX_FIELDS: Final = 10_000
#: Parsers read no value that is nested deeper (https://protobuf.dev/programming-guides/proto-limits/).
_MAX_DEPTH: Final = 100


def arrow_type(descriptor: Descriptor, selection: Selection = WHOLE, *, times_are_numbers: bool = False) -> pa.DataType:
    """Return the type of a column of such messages; a struct of all fields, but for well-known types.

    A message without fields has no column, as in Spark, unless it is the outermost.

    Args:
        descriptor: google.protobuf's ``Descriptor`` of a message.
        selection: other fields get the type null in place of their own, so that a part of a message that contains itself has a
            type.
        times_are_numbers: whether durations are the number of their microseconds: Delta has no column of intervals.

    Raises:
        SchemaError: the message contains itself, or has no fields, or too many.
    """
    column_type = _ProtobufTypes(times_are_numbers).message(descriptor, (), selection)
    if column_type is None:
        raise SchemaError(
            f"the Protobuf message {descriptor.full_name} has no fields, and Spark no struct without any."
        )
    return column_type


class _ProtobufTypes:
    def __init__(self, times_are_numbers: bool) -> None:
        self._n_fields = 0
        self._times_are_numbers = times_are_numbers

    def message(
        self, descriptor: Descriptor, around: tuple[FieldDescriptor, ...], selection: Selection
    ) -> pa.DataType | None:
        """Return None for a message without fields. ``around`` has the fields that lead to it."""
        known = _WELL_KNOWN.get(descriptor.full_name)
        if known is not None:
            return pa.int64() if self._times_are_numbers and pa.types.is_duration(known) else known
        fields = []
        for field in descriptor.fields:
            if selection and field.name not in selection:
                fields.append(pa.field(field.name, pa.null()))
                continue
            self._n_fields += 1
            if self._n_fields > _MAX_FIELDS:
                raise SchemaError(
                    f"the Protobuf message {(around or (field,))[0].containing_type.full_name} has more than {_MAX_FIELDS} "
                    "fields, those of nested messages included: name those that are needed in the option columns, such as "
                    "value.id, or in .schema(…)."
                )
            column_type = self._field(field, around, selection.get(field.name, WHOLE))
            if column_type is not None:
                fields.append(pa.field(field.name, column_type))
        return pa.struct(fields) if fields else None

    def _field(
        self, field: FieldDescriptor, around: tuple[FieldDescriptor, ...], selection: Selection
    ) -> pa.DataType | None:
        if is_map(field):
            entry = field.message_type.fields_by_name
            item = self._single(entry["value"], (*around, field), WHOLE)
            return None if item is None else pa.map_(scalar_type(entry["key"]), item)
        single = self._single(field, around, selection)
        return pa.list_(single) if single is not None and field.is_repeated else single

    def _single(
        self, field: FieldDescriptor, around: tuple[FieldDescriptor, ...], selection: Selection
    ) -> pa.DataType | None:
        if field.message_type is None:
            return scalar_type(field)
        path = (*around, field)
        if len(path) > _MAX_DEPTH:
            raise SchemaError(
                f"the Protobuf message {path[0].containing_type.full_name} has messages in messages, more than {_MAX_DEPTH} deep: "
                "name the fields that are needed in the option columns, or in .schema(…)."
            )
        if not selection and any(outer.containing_type.full_name == field.message_type.full_name for outer in path):
            names = ".".join(outer.name for outer in path if not outer.containing_type.GetOptions().map_entry)
            raise SchemaError(
                f"the Protobuf message {field.message_type.full_name} contains itself in the field {names}, and a Spark type "
                "has an end: name the fields that are needed, as deep as they are needed, in the option columns, or in "
                f'.schema("value struct<…>"), in which {names} may be string, JSON text.'
            )
        return self.message(field.message_type, path, selection)


def scalar_type(field: FieldDescriptor) -> pa.DataType:
    """Return the type of one value of a field that holds no messages."""
    if field.type == field.TYPE_BYTES:
        return pa.binary()
    column_type: pa.DataType = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: UINT64_TYPE,
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.string(),
    }[field.cpp_type]
    return column_type


_MESSAGE_NAME: Final = "TopLevelRecord"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SCALARS: Final = {
    "bool": "bool",
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "bytes",
    "large_binary": "bytes",
}
_KEYS: Final = frozenset({"bool", "int32", "int64", "string"})


def derived_schema(column_type: pa.DataType) -> str:
    """Return the text of a .proto file, whose first message holds columns of a type, which is a struct.

    Raises:
        SchemaError: Protobuf has no such type, or a field's name is no name in Protobuf.
    """
    if not pa.types.is_struct(column_type):
        raise SchemaError(
            f"the column is {sql_name(column_type)}, and a Protobuf message is a struct: wrap it, as in struct(value)."
        )
    message = _message(_MESSAGE_NAME, column_type, "", "")
    imports = 'import "google/protobuf/timestamp.proto";\n' if _TIMESTAMP in message else ""
    return f'syntax = "proto3";\n{imports}{message}'


def _message(name: str, column: pa.DataType, path: str, indent: str) -> str:
    taken = {field.name for field in column}
    parts = []
    for number, field in enumerate(column, 1):
        inner = f"{path}.{field.name}" if path else field.name
        if not _NAME.fullmatch(field.name):
            raise SchemaError(
                f"field {inner} cannot have this name in Protobuf, whose names are letters, digits and underscores: rename it."
            )
        type_name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
        while type_name in taken:
            type_name += "_"
        taken.add(type_name)
        declared, nested = _declare(field.type, type_name, inner, f"{indent}  ")
        parts.append(f"{nested}{indent}  {declared} {field.name} = {number};\n")
    return f"{indent}message {name} {{\n{''.join(parts)}{indent}}}\n"


def _declare(column: pa.DataType, type_name: str, path: str, indent: str) -> tuple[str, str]:
    """Return how a field of a type is declared, and the message that it needs, which is named ``own``."""
    is_a = pa.types
    if is_a.is_list(column) or is_a.is_large_list(column):
        kind, nested = _type(column.value_type, type_name, f"{path}[]", indent)
        return f"repeated {kind}", nested
    if is_a.is_map(column):
        key = _SCALARS.get(str(column.key_type))
        if key not in _KEYS:
            raise _unknown(column, path)
        kind, nested = _type(column.item_type, type_name, f"{path}{{}}", indent)
        return f"map<{key}, {kind}>", nested
    kind, nested = _type(column, type_name, path, indent)
    return f"optional {kind}", nested


def _type(column: pa.DataType, type_name: str, path: str, indent: str) -> tuple[str, str]:
    if (scalar := _SCALARS.get(str(column))) is not None:
        return scalar, ""
    if pa.types.is_timestamp(column):
        return _TIMESTAMP, ""
    if pa.types.is_struct(column):
        return type_name, _message(type_name, column, path, indent)
    raise _unknown(column, path)


def _unknown(column: pa.DataType, path: str) -> SchemaError:
    return SchemaError(
        f"field {path} is {sql_name(column)}, which Protobuf does not have: cast it, or wrap it in a struct."
    )
