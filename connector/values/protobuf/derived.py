"""The Protobuf schema of a column, made of its Arrow type: a proto3 file for a subject that has none.

A field that may be null is ``optional``, so that null and the default stay apart. https://protobuf.dev/programming-guides/proto3/
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import SchemaError
from pykafka_wire.values.bulk.writing import sql_name

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
    """The text of a .proto file, whose first message holds columns of a type, which is a struct.

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
        own = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
        while own in taken:
            own += "_"
        taken.add(own)
        declared, nested = _declared(field.type, own, inner, f"{indent}  ")
        parts.append(f"{nested}{indent}  {declared} {field.name} = {number};\n")
    return f"{indent}message {name} {{\n{''.join(parts)}{indent}}}\n"


def _declared(column: pa.DataType, own: str, path: str, indent: str) -> tuple[str, str]:
    """How a field of a type is declared, and the message that it needs, which is named ``own``."""
    is_a = pa.types
    if is_a.is_list(column) or is_a.is_large_list(column):
        kind, nested = _type(column.value_type, own, f"{path}[]", indent)
        return f"repeated {kind}", nested
    if is_a.is_map(column):
        key = _SCALARS.get(str(column.key_type))
        if key not in _KEYS:
            raise _unknown(column, path)
        kind, nested = _type(column.item_type, own, f"{path}{{}}", indent)
        return f"map<{key}, {kind}>", nested
    kind, nested = _type(column, own, path, indent)
    return f"optional {kind}", nested


def _type(column: pa.DataType, own: str, path: str, indent: str) -> tuple[str, str]:
    if (scalar := _SCALARS.get(str(column))) is not None:
        return scalar, ""
    if pa.types.is_timestamp(column):
        return _TIMESTAMP, ""
    if pa.types.is_struct(column):
        return own, _message(own, column, path, indent)
    raise _unknown(column, path)


def _unknown(column: Any, path: str) -> SchemaError:
    return SchemaError(
        f"field {path} is {sql_name(column)}, which Protobuf does not have: cast it, or wrap it in a struct."
    )
