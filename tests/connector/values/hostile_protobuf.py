"""Protobuf schemas, types and messages that are made to do damage: recursive, deep, wide, long, wrong, and cut up."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from pykafka_wire.values.protobuf.types import scalar_type
from tests.conformance import generate
from tests.connector.values import protobuf_samples as samples
from tests.connector.values.protobuf_samples import KEYS, SCALARS

HEAD = samples.HEAD + 'import "google/protobuf/struct.proto";\n'
WELL_KNOWN = (*samples.WELL_KNOWN, "Struct", "Struct", "Value", "ListValue", "NullValue", "FloatValue", "UInt64Value")
LEAVES = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.date32()),
    *(
        pa.decimal128(38, 0),
        pa.decimal128(20, 0),
        pa.decimal128(5, 2),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"),
    ),
    *(pa.duration("us"), pa.null()),
)


def random_schema(rng: random.Random) -> str:
    """The text of a file, valid or not, whose first message is the one to read."""
    shape = rng.choice((graph, graph, graph, graph, doubling, nested, wide, long_names, many_messages))
    text = shape(rng)
    if rng.random() < 0.15:
        content = text.encode()
        for _ in range(rng.choice((1, 1, 3))):
            content = generate.mutate(rng, content or b"x")
        text = content.decode(errors="replace")
    return text


def graph(rng: random.Random) -> str:
    """Messages that hold any others, and themselves."""
    syntax = rng.choice(("proto2", "proto3"))
    names = [f"M{number}" for number in range(rng.choice((1, 2, 3, 6, 30)))]
    package = rng.choice(("", "", "package a;", f"package {'.'.join('b' * rng.randrange(1, 600))};"))
    enum = (
        f"enum E {{ ZERO = 0; ONE = 1; LOW = {-rng.randrange(1, 2**31)}; {'X' * rng.choice((1, 900))} = 2147483647; }}"
    )
    messages = "\n".join(message(rng, syntax, name, names) for name in names)
    return f'syntax = "{syntax}"; {package}\n{HEAD}{enum}\n{messages}'


def message(rng: random.Random, syntax: str, name: str, names: list[str]) -> str:
    lines, number = [], 0

    def kind() -> str:
        chance = rng.random()
        if chance < 0.4:
            return rng.choice(names)
        return f"google.protobuf.{rng.choice(WELL_KNOWN)}" if chance < 0.5 else rng.choice((*SCALARS, "E"))

    def plain() -> str:
        return rng.choice(("", "optional ")) if syntax == "proto3" else rng.choice(("optional ",) * 6 + ("required ",))

    for place in range(rng.choice((0, 1, 2, 3, 5, 8, 20))):
        number += rng.choice((1, 1, 1, 1, 2, 1_000, 1 << 20)) if number < 1 << 27 else 1
        number = 20_000 if 19_000 <= number < 20_000 else number
        chance, field = rng.random(), f"f{place}"
        if chance < 0.2:
            lines.append(f"map<{rng.choice(KEYS)}, {kind()}> {field} = {number};")
        elif chance < 0.4:
            lines.append(f"repeated {kind()} {field} = {number};")
        elif chance < 0.5:
            lines.append(f"oneof o{place} {{ {kind()} {field} = {number}; {kind()} {field}_ = {number + 1}; }}")
            number += 1
        elif chance < 0.55 and syntax == "proto2":
            lines.append(
                f"{rng.choice(('optional', 'repeated'))} group G{place} = {number} {{ optional {kind()} g = 1; }}"
            )
        else:
            lines.append(f"{plain()}{kind()} {field} = {number};")
    return f"message {name} {{ {' '.join(lines)} }}"


def doubling(rng: random.Random) -> str:
    """Messages without a cycle, to the last of which there are 2, 4, 8, … ways."""
    depth, width = rng.randrange(1, 40), rng.randrange(1, 4)
    label = rng.choice(("", "repeated "))
    messages = []
    for number in range(depth):
        kind = f"M{number + 1}" if number + 1 < depth else "int32"
        fields = " ".join(f"{label}{kind} f{place} = {place + 1};" for place in range(width))
        messages.append(f"message M{number} {{ {fields} }}")
    return 'syntax = "proto3"; ' + " ".join(messages)


def nested(rng: random.Random) -> str:
    depth = rng.randrange(1, 40)
    opened = " ".join(f"message M{number} {{ int32 a = 1; M{number} b = 2;" for number in range(depth))
    return f'syntax = "proto3"; {opened} {"}" * depth}'


def wide(rng: random.Random) -> str:
    kind = rng.choice(("int32", "string", "M0", "repeated M0", "map<int32, M0>", "optional bool"))
    fields = " ".join(
        f"{kind} f{number} = {number};" for number in range(1, rng.choice((50, 500, 3_000))) if number // 1000 != 19
    )
    return f'syntax = "proto3"; message M0 {{ {fields} }}'


def long_names(rng: random.Random) -> str:
    name = "n" * rng.choice((100, 900, 1_100, 50_000))
    return (
        f'syntax = "proto3"; message M0 {{ int32 {name} = 1; {name} f1 = 2; E{name} f2 = 3; repeated E{name} f3 = 4; }} '
        f"message {name} {{ {name} {name} = 1; }} enum E{name} {{ {name}A = 0; B = 1; }}"
    )


def many_messages(rng: random.Random) -> str:
    n = rng.choice((100, 2_000))
    return 'syntax = "proto3"; ' + " ".join(
        f"message M{number} {{ M{(number + 1) % n} a = 1; M{number * 7 % n} b = 2; }}" for number in range(n)
    )


def random_type(rng: random.Random, descriptor: Any, depth: int, room: list[int] | None = None) -> pa.DataType:
    """A type for messages of ``descriptor``: one that fits in most places, and does not in some.

    Args:
        room: [fields that it may still have].
    """
    room = [rng.choice((20, 200, 2_000))] if room is None else room
    chance = rng.random()
    if chance < 0.03:
        return rng.choice(LEAVES)
    if chance < 0.05:
        return unfit(rng)
    fields = list(descriptor.fields)
    chosen = rng.sample(fields, min(len(fields), rng.choice((1, 2, 4, 8, 200))))
    kinds = [(each.name, field_type(rng, each, depth, room)) for each in chosen if room[0] > 0]
    if rng.random() < 0.1:
        kinds.append(("unknown", rng.choice(LEAVES)))
    found = [pa.field(name, kind, pa.types.is_null(kind) or rng.random() < 0.9) for name, kind in kinds]
    if rng.random() < 0.02 and found:
        found.append(found[0])
    return pa.struct(found)


def field_type(rng: random.Random, field: Any, depth: int, room: list[int]) -> pa.DataType:
    room[0] -= 1
    if rng.random() < 0.08:
        return rng.choice(LEAVES)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        return pa.map_(scalar_type(key), field_type(rng, value, depth - 1, room))
    if kind is None:
        found = scalar_type(field)
    elif kind.file.name.startswith("google/protobuf/") and rng.random() < 0.6:
        found = rng.choice((pa.string(), pa.timestamp("us", tz="UTC"), pa.duration("us"), pa.int64(), pa.string()))
    else:
        found = random_type(rng, kind, depth - 1, room) if depth > 0 else pa.string()
    return pa.list_(found) if field.is_repeated else found


def unfit(rng: random.Random) -> pa.DataType:
    found = rng.choice(LEAVES)
    for _ in range(rng.choice((1, 3, 60))):
        found = rng.choice((pa.list_(found), pa.struct([("f0", found)]), pa.map_(pa.string(), found)))
    return found


def fill(rng: random.Random, message: Any, room: list[int], depth: int = 0) -> None:
    """Sets fields at random, as long as there is room, which may be a lot: [messages and values that may still be set]."""
    fields = list(message.DESCRIPTOR.fields)
    rng.shuffle(fields)
    for field in fields[:60]:
        if room[0] <= 0 or (rng.random() < 0.4 and not field.is_required):
            continue
        room[0] -= 1
        value, kind = getattr(message, field.name), field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name
            for _ in range(rng.randrange(4)):
                key = samples.random_scalar(rng, inner["key"])
                if inner["value"].message_type is None:
                    value[key] = samples.random_scalar(rng, inner["value"])
                elif depth < 60:
                    fill(rng, value[key], room, depth + 1)
        elif field.is_repeated:
            for _ in range(rng.choice((0, 1, 2, 30))):
                if kind is None:
                    value.append(samples.random_scalar(rng, field))
                elif depth < 60 and room[0] > 0:
                    fill(rng, value.add(), room, depth + 1)
        elif kind is None:
            setattr(message, field.name, samples.random_scalar(rng, field))
        elif depth < 60:
            value.SetInParent()
            fill(rng, value, room, depth + 1)


def bombs(rng: random.Random, descriptor: Any) -> bytes:
    """Many of the shortest messages that a field holds, or messages in messages."""
    fields = [each for each in descriptor.fields if each.message_type is not None and each.type != each.TYPE_GROUP]
    if not fields:
        return rng.randbytes(rng.randrange(100))
    field = rng.choice(fields)
    content = b""
    if rng.random() < 0.5:
        return samples.length_delimited(field.number, b"") * rng.choice((10, 1_000, 30_000))
    for _ in range(rng.choice((5, 20, 30, 90, 120, 500))):
        content = samples.length_delimited(field.number, content) * rng.choice((1, 1, 1, 2))
        if len(content) > 100_000:
            break
    return content
