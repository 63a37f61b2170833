"""Random Protobuf message types with random messages, and the values that google.protobuf gives for them.

The oracle is a few lines of Python over the library's parsed messages, with the types of ``arrow_type``.
"""

from __future__ import annotations

import datetime
import json
import random
import string
from decimal import Decimal
from typing import Any

import pyarrow as pa

HEAD = (
    'import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/empty.proto"; '
    'import "google/protobuf/field_mask.proto"; import "google/protobuf/timestamp.proto"; '
    'import "google/protobuf/wrappers.proto";\n'
)
INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
SCALARS = (*INTEGERS, *INTEGERS, "float", "double", "bool", "string", "string", "string", "bytes")
KEYS = (*INTEGERS, "bool", "string", "string")
WELL_KNOWN = (
    "Timestamp",
    "Timestamp",
    "Duration",
    "Any",
    "FieldMask",
    "Empty",
    "Int64Value",
    "StringValue",
    "BytesValue",
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
UTC_MICROS = pa.timestamp("us", tz="UTC")


def random_file(rng: random.Random) -> str:
    """A .proto file whose outermost message is M0. Messages hold later ones only, so that they have a type."""
    syntax = rng.choice(("proto2", "proto3"))
    enums = [
        f"enum E0 {{ ZERO = 0; ONE = 1; NEGATIVE = {-rng.randrange(1, 2**31)}; FAR = {rng.randrange(5_000, 2**31)}; }}",
        "enum E1 { option allow_alias = true; A = 0; B = 0; C = 7; }",
    ]
    n_messages = rng.randrange(1, 5)
    messages = [random_message(rng, syntax, number, n_messages) for number in range(n_messages)]
    return f'syntax = "{syntax}";\n{HEAD}' + "\n".join([*enums, *messages])


def random_message(rng: random.Random, syntax: str, number: int, n_messages: int) -> str:
    lines, used = [], set[int]()
    n_fields = rng.choice((1, 2, 4, 8, 12))

    def next_number() -> int:
        while True:
            found = rng.choice(
                (len(used) + 1, rng.randrange(1, 40), rng.randrange(1, 3_000), rng.randrange(1, 1 << 29))
            )
            if found not in used and not 19_000 <= found < 20_000:
                used.add(found)
                return found

    later = [f"M{each}" for each in range(number + 1, n_messages)]

    def kind() -> str:
        chance = rng.random()
        if later and chance < 0.25:
            return rng.choice(later)
        if chance < 0.4:
            return f"google.protobuf.{rng.choice(WELL_KNOWN)}"
        return rng.choice(("E0", "E1")) if chance < 0.5 else rng.choice(SCALARS)

    for place in range(n_fields):
        chance, name = rng.random(), f"f{place}"
        if chance < 0.12:
            lines.append(f"map<{rng.choice(KEYS)}, {kind()}> {name} = {next_number()};")
        elif chance < 0.22:
            members = " ".join(f"{kind()} {name}of{nth} = {next_number()};" for nth in range(rng.randrange(1, 4)))
            lines.append(f"oneof {name} {{ {members} }}")
        elif chance < 0.4:
            item = kind()
            packed = ""
            if item in ("E0", "E1", "float", "double", "bool", *INTEGERS) and rng.random() < 0.4:
                packed = f" [packed = {rng.choice(('true', 'false'))}]"
            lines.append(f"repeated {item} {name} = {next_number()}{packed};")
        elif syntax == "proto2":
            item, default = kind(), ""
            if item == "int32" and rng.random() < 0.3:
                default = " [default = 7]"
            label = "required" if rng.random() < 0.15 else "optional"
            if rng.random() < 0.04:
                lines.append(f"{label} group G{place} = {next_number()} {{ optional int32 a = 1; }}")
            else:
                lines.append(f"{label} {item} {name} = {next_number()}{default};")
        else:
            lines.append(f"{rng.choice(('', '', 'optional '))}{kind()} {name} = {next_number()};")
    return f"message M{number} {{ {' '.join(lines)} }}"


def fill(rng: random.Random, message: Any, share: float, max_items: int = 4) -> None:
    """Sets ``share`` of the fields, and all that are required."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds = rng.choice((0, rng.randrange(-62_135_596_800, 253_402_300_800), 1_790_000_000, 1 << 60))
        message.nanos = rng.choice((0, 1, 999_999_999, rng.randrange(10**9), -1))
        return
    if name == "google.protobuf.Duration":
        sign = rng.choice((-1, 1))
        message.seconds = sign * rng.choice((0, 5, rng.randrange(315_576_000_001), 315_576_000_001))
        message.nanos = (sign if rng.random() < 0.97 else -sign) * rng.choice((0, 1, 1_500, 999_999_999))
        return
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and rng.random() > share:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name
            for _ in range(rng.randrange(max_items)):
                key = random_scalar(rng, inner["key"])
                if inner["value"].message_type is not None:
                    fill(rng, value[key], share)
                else:
                    value[key] = random_scalar(rng, inner["value"])
        elif field.is_repeated:
            for _ in range(rng.choice((0, 1, 2, max_items, 40 if rng.random() < 0.02 else 1))):
                if field.message_type is None:
                    value.append(random_scalar(rng, field))
                else:
                    fill(rng, value.add(), share, 2)
        elif field.message_type is None:
            setattr(message, field.name, random_scalar(rng, field))
        else:
            value.SetInParent()
            fill(rng, value, share, 3)


def random_scalar(rng: random.Random, field: Any) -> Any:
    kind = field.cpp_type
    if field.type == field.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 5, 200)))
    if kind == field.CPPTYPE_STRING:
        return "".join(rng.choices(string.ascii_letters + "é€𝄞", k=rng.choice((0, 1, 8, 150))))
    if kind == field.CPPTYPE_ENUM:
        known = list(field.enum_type.values_by_number)
        return rng.choice(known if field.enum_type.is_closed else [*known, *known, 2, -3, 2**31 - 1])
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -0.0, 1.5, float("nan"), float("-inf"), 1e30, rng.random()))
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    number = rng.choice(
        (0, 1, 127, 128, rng.getrandbits(rng.randrange(1, bits + 1)), (1 << bits - 1) - 1, 1 << bits - 1)
    )
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return rng.choice((number, (1 << bits) - 1))
    return number - (1 << bits) if number >> bits - 1 else rng.choice((number, -number))


class RejectedError(Exception):
    """The value is none of its type."""


def expected(cls: Any, content: bytes, wanted: pa.DataType) -> Any:
    """The value that google.protobuf gives for the bytes, as ``to_pylist`` does. Raises RejectedError."""
    try:
        message = cls.FromString(content)
    except Exception as error:
        raise RejectedError from error
    if not message.IsInitialized():
        raise RejectedError
    check_texts(message)
    return message_value(message, wanted)


def check_texts(message: Any) -> None:
    """A text of proto2 that is not UTF-8 is bytes in Python."""
    for field, value in message.ListFields():
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        parts = [(field, value)]
        if entry:
            inner = field.message_type.fields_by_name
            if any(isinstance(each, bytes) for each in value):
                raise RejectedError
            parts = [(inner["value"], each) for each in value.values()]
        elif field.is_repeated:
            parts = [(field, each) for each in value]
        for one, each in parts:
            if one.message_type is not None:
                check_texts(each)
            elif one.type == one.TYPE_STRING and isinstance(each, bytes):
                raise RejectedError


def message_value(message: Any, wanted: pa.DataType) -> Any:
    if pa.types.is_timestamp(wanted):
        if not -62_135_596_800 <= message.seconds <= 253_402_300_799 or not 0 <= message.nanos <= 999_999_999:
            raise RejectedError
        return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if pa.types.is_duration(wanted):
        opposite = message.seconds * message.nanos < 0
        if opposite or abs(message.seconds) > 315_576_000_000 or abs(message.nanos) > 999_999_999:
            raise RejectedError
        return datetime.timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))
    found = {}
    for column in wanted:
        field = message.DESCRIPTOR.fields_by_name[column.name]
        value = getattr(message, column.name)
        if pa.types.is_map(column.type):
            inner = field.message_type.fields_by_name
            found[column.name] = {
                single(inner["key"], key, column.type.key_type): single(inner["value"], each, column.type.item_type)
                for key, each in value.items()
            }
        elif field.is_repeated:
            found[column.name] = [single(field, each, column.type.value_type) for each in value]
        elif field.has_presence and not message.HasField(column.name):
            found[column.name] = None
        else:
            found[column.name] = single(field, value, column.type)
    return found


def single(field: Any, value: Any, wanted: pa.DataType) -> Any:
    if field.message_type is not None:
        return message_value(value, wanted)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def with_dicts(value: Any, wanted: pa.DataType) -> Any:
    """A value of ``to_pylist`` with its maps as dicts, whose order means nothing."""
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        return {each.name: with_dicts(value[each.name], each.type) for each in wanted}
    if pa.types.is_map(wanted):
        assert len(dict(value)) == len(value)
        return dict(sorted((key, with_dicts(each, wanted.item_type)) for key, each in value))
    if pa.types.is_list(wanted):
        return [with_dicts(each, wanted.value_type) for each in value]
    return value


def normal(value: Any) -> str:
    """A text that is the same for equal values, NaN and the order of maps included."""
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{normal(key)}: {normal(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(normal, value)) + "]"
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return repr(int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value)


def parsed(value: Any) -> Any:
    """The same with JSON texts as what they hold, in which the order of members means nothing."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return parsed(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict):
        return {key: parsed(each) for key, each in value.items()}
    return [parsed(each) for each in value] if isinstance(value, list) else value


def damaged(rng: random.Random, content: bytes) -> bytes:
    """The same fields in another order, some of them twice, with unknown ones between; or with wrong bytes."""
    chance = rng.random()
    if chance < 0.35:
        return content
    if chance < 0.7:
        fields = top_fields(content)
        unknown = [
            b"\xf8\x7f\x05",
            b"\xfa\x7f\x02ab",
            b"\xf9\x7f12345678",
            b"\xfd\x7f1234",
            b"\xfb\x7f\x08\x01\xfc\x7f",
        ]
        if rng.random() < 0.6:
            rng.shuffle(fields)
        if fields and rng.random() < 0.5:
            fields.insert(rng.randrange(len(fields)), rng.choice(fields))
        if rng.random() < 0.5:
            fields.insert(rng.randrange(len(fields) + 1), rng.choice(unknown))
        return b"".join(fields)
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(found) + 1)
        action = rng.randrange(4)
        if action == 0:
            found[at:at] = rng.randbytes(rng.randrange(1, 4))
        elif action == 1:
            del found[at : at + rng.randrange(1, 4)]
        elif action == 2 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif found:
            found[at % len(found)] = rng.choice((0, 0x7F, 0x80, 0xFF))
    return bytes(found)


def length_delimited(number: int, content: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    found = bytearray()
    for left in (number << 3 | 2, len(content)):
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        found.append(left)
    return bytes(found) + content


def top_fields(content: bytes) -> list[bytes]:
    """The fields of a valid message as their bytes."""
    found, at = [], 0
    while at < len(content):
        start = at
        tag, at = varint(content, at)
        at = past_value(content, at, tag)
        found.append(content[start:at])
    return found


def past_value(content: bytes, at: int, tag: int) -> int:
    kind = tag & 7
    if kind == 0:
        return varint(content, at)[1]
    if kind == 2:
        size, at = varint(content, at)
        return at + size
    if kind == 3:
        while True:
            inner, at = varint(content, at)
            if inner & 7 == 4:
                return at
            at = past_value(content, at, inner)
    return at + (8 if kind == 1 else 4)


def varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def with_pairs(value: Any, wanted: pa.DataType) -> Any:
    """The reverse of :func:`with_dicts`, with the pairs of maps in any order."""
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        return {each.name: with_pairs(value[each.name], each.type) for each in wanted}
    if pa.types.is_map(wanted):
        return [(key, with_pairs(each, wanted.item_type)) for key, each in value.items()]
    if pa.types.is_list(wanted):
        return [with_pairs(each, wanted.value_type) for each in value]
    return Decimal(value) if pa.types.is_decimal(wanted) else value
