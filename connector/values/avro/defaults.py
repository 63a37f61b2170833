"""A reader's default, which is JSON, as the bytes that a writer would have written for it.

So a default is read as every value is, in columns and one by one.
https://avro.apache.org/docs/1.12.0/specification/#schema-record
"""

from __future__ import annotations

import struct
from typing import Any, Final

from pykafka_wire.errors import PoisonError
from pykafka_wire.values.avro.schema import ParsedSchema, Schema, kind_of

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


def encode_default(schema: ParsedSchema, kind: Schema, value: Any) -> bytes:
    """The bytes of a default of one of the schema's types.

    Raises:
        PoisonError: the type has no such value.
    """
    definition = schema.definition(kind)
    name = kind_of(definition)
    if name == "union":
        for number, branch in enumerate(definition):
            if _is_a(schema, branch, value):
                return encode_long(number) + encode_default(schema, branch, value)
        raise _misfit(name)
    if not _is_a(schema, definition, value):
        raise _misfit(name)
    try:
        return _encode(schema, definition, name, value)
    except (ArithmeticError, ValueError, struct.error) as error:
        raise _misfit(name) from error


def _encode(schema: ParsedSchema, definition: Schema, name: str, value: Any) -> bytes:
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
        return value.encode("latin-1")[: definition["size"]].ljust(definition["size"], b"\0")  # type: ignore[no-any-return]
    if name in ("bytes", "string"):
        text = value.encode("latin-1" if name == "bytes" else "utf-8")
        return encode_long(len(text)) + text  # type: ignore[no-any-return]
    if name == "enum":
        return encode_long(definition["symbols"].index(value))
    if name == "array":
        items = b"".join(encode_default(schema, definition["items"], each) for each in value)
        return encode_long(len(value)) + items + b"\0" if value else b"\0"
    if name == "map":
        text = schema.definition("string")
        items = b"".join(
            encode_default(schema, text, key) + encode_default(schema, definition["values"], each)
            for key, each in value.items()
        )
        return encode_long(len(value)) + items + b"\0" if value else b"\0"
    found = b""
    for field in definition["fields"]:
        if field["name"] not in value and "default" not in field:
            raise PoisonError(f"the reader's default has no {field['name']}")
        found += encode_default(schema, field["type"], value.get(field["name"], field.get("default")))
    return found


def encode_long(number: int) -> bytes:
    """A zigzag varint of 64 bits."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _is_a(schema: ParsedSchema, kind: Schema, value: Any) -> bool:
    """Whether JSON may be of a type, judged by its outermost part, as the branch of a union is chosen."""
    name = kind_of(schema.definition(kind))
    if name == "union":
        return True
    return isinstance(value, _KINDS[name]) and (name == "boolean" or not isinstance(value, bool))


def _misfit(name: str) -> PoisonError:
    return PoisonError(f"the reader's schema has a default that {name} cannot hold")
