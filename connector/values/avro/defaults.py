"""A reader's default, which is JSON, as the bytes that a writer would have written for it.

So a default is read as every value is, in columns and one by one.
https://avro.apache.org/docs/1.12.0/specification/#schema-record
"""

from __future__ import annotations

import struct
from typing import Any, Final

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro import resolution
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of
from pykafka_wire.values.bulk.writing import varint

#: Values in all defaults of a schema. More is an attack, not a topic's schema.
_MAX_VALUES: Final = 10_000
#: Of a fixed.
_MAX_BYTES: Final = 4_096
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (str,),
    "string": (str,),
    "fixed": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}


class Defaults:
    """The defaults of one reader's schema. All of them together have a limit, since records in them have defaults of their own."""

    def __init__(self, schema: ParsedSchema) -> None:
        self._schema = schema
        self._node_of = resolution.reader_of_own_types(schema)
        self._made: dict[resolution.Default, tuple[bytes, resolution.ResolvedNode]] = {}
        self._n_values = 0

    def of(self, default: resolution.Default) -> tuple[bytes, resolution.ResolvedNode]:
        """Return the bytes of a default, and how they are read.

        Raises:
            DecodeError: its type has no such value, or the defaults are too many.
        """
        if default not in self._made:
            self._made[default] = self._encode(default.type, default.value), self._node_of(default.type)
        return self._made[default]

    def _encode(self, kind: Schema, value: Any) -> bytes:
        self._n_values += 1
        if self._n_values > _MAX_VALUES:
            raise DecodeError(f"the reader's defaults hold more than {_MAX_VALUES} values")
        definition = self._schema.definition(kind)
        name = kind_of(definition)
        if name == "union":
            for number, branch in enumerate(definition):
                if self._is_a(branch, value):
                    return encode_long(number) + self._encode(branch, value)
            raise _unexpected_error(name)
        if not self._is_a(definition, value):
            raise _unexpected_error(name)
        try:
            return self._encode_as(definition, name, value)
        except (ArithmeticError, ValueError, struct.error) as error:
            raise _unexpected_error(name) from error

    def _encode_as(self, definition: Schema, name: str, value: Any) -> bytes:
        if name == "null":
            return b""
        if name == "boolean":
            return b"\1" if value else b"\0"
        if name in ("int", "long"):
            if not -(1 << 63) <= value < 1 << 63:
                raise OverflowError
            return encode_long(value)
        if name in ("float", "double"):
            return struct.pack("<f" if name == "float" else "<d", value)
        if name == "fixed":  # as the Java library, which fills up what is too short
            size = definition["size"]
            if size > _MAX_BYTES:
                raise DecodeError(f"the reader's defaults take more than {_MAX_BYTES} bytes")
            return value.encode("latin-1")[:size].ljust(size, b"\0")  # type: ignore[no-any-return]
        if name in ("bytes", "string"):
            text = value.encode("latin-1" if name == "bytes" else "utf-8")
            return encode_long(len(text)) + text  # type: ignore[no-any-return]
        if name == "enum":
            return encode_long(definition["symbols"].index(value))
        if name in ("array", "map"):
            pairs = (
                [(b"", item) for item in value]
                if name == "array"
                else [(self._encode("string", key), item) for key, item in value.items()]
            )
            item = definition["items" if name == "array" else "values"]
            items = b"".join(key + self._encode(item, value) for key, value in pairs)
            return encode_long(len(value)) + items + b"\0" if value else b"\0"
        encoded = b""
        for field in definition["fields"]:
            if field["name"] not in value and "default" not in field:
                raise DecodeError(f"the reader's default has no {field['name']}")
            encoded += self._encode(field["type"], value.get(field["name"], field.get("default")))
        return encoded

    def _is_a(self, kind: Schema, value: Any) -> bool:
        """Return whether JSON may be of a type, judged by its outermost part, as the branch of a union is chosen."""
        name = kind_of(self._schema.definition(kind))
        if name == "union":
            return True
        return isinstance(value, _KINDS[name]) and (name == "boolean" or not isinstance(value, bool))


def encode_long(number: int) -> bytes:
    """Return a zigzag varint of 64 bits."""
    return varint((number << 1) ^ (number >> 63))


def _unexpected_error(name: str) -> DecodeError:
    return DecodeError(f"the reader's schema has a default that {name} cannot hold")
