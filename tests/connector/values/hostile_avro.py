"""Avro schemas as an attacker or a mistake would make them, types that are asked of them, and values of them."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pyarrow as pa

from pykafka_wire.values.avro.schema import ParsedSchema, kind_of
from tests.conformance.avro_cases import long

Schema = Any  # JSON
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
JUNK: tuple[Any, ...] = (
    None, 5, -1, 1.5, True, "", "x", ".", "a.b", "R0", [], {}, [[]], {"type": {}}, {"type": []}, {"type": None}, ["int"] * 2,
    {"type": "record"}, {"type": "enum", "name": "E", "symbols": []}, {"type": "fixed", "name": "F"}, 10**30, "\ud800", "n" * 2_000,
)  # fmt: skip
LOGICAL = (
    "date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-micros",
    "decimal", "uuid", "duration", "unknown", 5,
)  # fmt: skip


def text_of(rng: random.Random) -> str:
    """A schema's text: of random parts, of a shape that grows, or damaged."""
    chance = rng.random()
    schema = rng.choice(SHAPES)(rng) if chance < 0.3 else _Schemas(rng).any(0)
    if rng.random() < 0.2:
        schema = damaged(rng, schema)
    return json.dumps(schema)


def reader_of(rng: random.Random, text: str) -> str:
    """A schema that reads some values of another one."""
    schema = json.loads(text)
    for _ in range(rng.choice((0, 1, 3))):
        schema = _changed(rng, schema)
    return json.dumps(schema) if rng.random() < 0.9 else text_of(rng)


class _Schemas:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names: list[str] = []
        self._left = rng.choice((5, 30, 200))

    def any(self, depth: int) -> Schema:
        rng = self._rng
        self._left -= 1
        if self._left < 0 or depth > 8:
            return rng.choice((*PRIMITIVES, *self._names[-3:]))
        made = rng.choice(
            (self._record, self._record, self._union, self._array, self._map, self._enum, self._fixed, self._plain)
        )
        return made(depth + 1)

    def _name(self, prefix: str) -> dict[str, str]:
        name = f"{prefix}{len(self._names)}"
        namespace = self._rng.choice((None, None, "", "n", "n.m"))
        self._names.append(self._rng.choice((name, f"n.{name}")))
        return {"name": name} if namespace is None else {"name": name, "namespace": namespace}

    def _record(self, depth: int) -> Schema:
        named = self._name("R")
        names = [f"f{nth}" for nth in range(self._rng.choice((0, 1, 2, 4, 12)))]
        fields = [{"name": name, "type": self.any(depth)} for name in names]
        for field in fields:
            if self._rng.random() < 0.3:
                field["default"] = self._default()
        return {"type": self._rng.choice(("record", "record", "error")), **named, "fields": fields}

    def _default(self) -> Any:
        rng = self._rng
        return rng.choice(
            (
                None,
                0,
                1.5,
                "",
                "x",
                "é" * 50,
                [],
                {},
                True,
                [None] * 5,
                {"a": 1},
                "x" * 6_000,
                [1] * 3_000,
                10**30,
                {"f0": {}},
            )
        )

    def _union(self, depth: int) -> Schema:
        branches = [self.any(depth) for _ in range(self._rng.choice((0, 1, 2, 2, 3, 12)))]
        branches = [each for each in branches if not isinstance(each, list)]
        return [each for nth, each in enumerate(branches) if each not in branches[:nth]]

    def _array(self, depth: int) -> Schema:
        return {"type": "array", "items": self.any(depth)}

    def _map(self, depth: int) -> Schema:
        return {"type": "map", "values": self.any(depth)}

    def _enum(self, depth: int) -> Schema:
        n = self._rng.choice((1, 3, 200))
        symbols = [f"{'S' * self._rng.choice((1, 1, 20, 900))}{nth}" for nth in range(n)]
        return {"type": "enum", **self._name("E"), "symbols": symbols}

    def _fixed(self, depth: int) -> Schema:
        size = self._rng.choice((0, 1, 12, 16, 17, 200, 2**31 - 1))
        return self._logical({"type": "fixed", **self._name("F"), "size": size})

    def _plain(self, depth: int) -> Schema:
        kind = self._rng.choice(PRIMITIVES)
        return self._logical({"type": kind}) if self._rng.random() < 0.4 else kind

    def _logical(self, schema: dict[str, Any]) -> Schema:
        digits = {
            "precision": self._rng.choice((0, 1, 9, 38, 39, 1_000, 10**6)),
            "scale": self._rng.choice((0, 2, 9, 38, -1)),
        }
        return {**schema, "logicalType": self._rng.choice(LOGICAL), **digits}


def _record_of(name: str, *types: Schema, **more: Any) -> Schema:
    fields = [{"name": f"f{nth}", "type": each, **more} for nth, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def _wide(rng: random.Random) -> Schema:
    return _record_of(
        "R", *[rng.choice((*PRIMITIVES, ["null", "int"])) for _ in range(rng.choice((300, 2_000, 12_000)))]
    )


def _deep(rng: random.Random) -> Schema:
    schema: Schema = rng.choice(PRIMITIVES)
    kind = rng.randrange(4)
    for level in range(rng.choice((20, 90, 110, 160, 240))):
        around = (
            _record_of(f"R{level}", schema), {"type": "array", "items": schema}, {"type": "map", "values": schema},
            ["null", _record_of(f"R{level}", schema)],
        )  # fmt: skip
        schema = around[kind if rng.random() < 0.9 else 0]
    return schema


def _doubling(rng: random.Random) -> Schema:
    bottom = rng.choice(PRIMITIVES)
    default: dict[str, Any] = {"default": {}} if rng.random() < 0.5 else {}
    schema: Schema = _record_of("R0", bottom)
    for level in range(1, rng.choice((5, 12, 40))):
        again = f"R{level - 1}"
        one, two = (schema, again) if rng.random() < 0.5 else ([schema, "null"], [again, "null"])
        if rng.random() < 0.2:
            one, two = ({"type": "array", "items": each} for each in (one, two))
        schema = _record_of(f"R{level}", one, two, **default)
    return schema


def _recursive(rng: random.Random) -> Schema:
    return rng.choice(
        (
            _record_of("T", "long", ["null", "T"]),
            _record_of("T", "T"),
            _record_of("T", {"type": "array", "items": "T"}, {"type": "map", "values": "T"}),
            {"type": "array", "items": _record_of("T", {"type": "array", "items": "T"})},
            _record_of("T", _record_of("U", ["null", "T"], ["null", "U"]), ["U", "null", "T"]),
            _record_of("T", ["null", "T"], ["null", "T"], default=None),
        )
    )


def _chain(rng: random.Random) -> Schema:
    n = rng.choice((50, 200, 400))
    records = [_record_of(f"R{nth}", f"R{nth + 1}") for nth in range(n)] + [_record_of(f"R{n}", "int")]
    if rng.random() < 0.5:
        records.reverse()
    return _record_of("Top", *records)


def _skipped(rng: random.Random) -> Schema:
    again = [
        {"type": rng.choice(("array", "map")), "items": "W", "values": "W"} for _ in range(rng.choice((50, 1_000)))
    ]
    return _record_of("R", "long", _record_of("W", *["long"] * rng.choice((10, 300))), *again)


def _free(rng: random.Random) -> Schema:
    empty = _record_of("Empty", *["null"] * rng.choice((0, 1, 30)))
    return rng.choice(
        (
            {"type": "array", "items": empty},
            {"type": "array", "items": {"type": "array", "items": "null"}},
            {"type": "map", "values": empty},
            _record_of("R", {"type": "array", "items": ["null", _record_of("W", *["long"] * 300)]}),
            {"type": "array", "items": _record_of("N", ["null", {"type": "fixed", "name": "F", "size": 0}], "boolean")},
        )
    )


SHAPES = (_wide, _deep, _doubling, _recursive, _chain, _skipped, _free)


def _places(schema: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Each part of a document with what holds it."""
    waiting = [schema]
    while waiting:
        holder = waiting.pop()
        keys: Any = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found


def damaged(rng: random.Random, schema: Schema) -> Schema:
    """A schema with some of its parts replaced, or left out."""
    made = json.loads(json.dumps(schema))
    for _ in range(rng.choice((1, 1, 3))):
        places = _places(made, [])
        if not places:
            return rng.choice(JUNK)
        holder, key = rng.choice(places)
        if rng.random() < 0.3 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = rng.choice(JUNK)
    return made


def _changed(rng: random.Random, schema: Schema) -> Schema:
    """A schema with another type, field, default or alias in one place."""
    places = [(holder, key) for holder, key in _places(schema, []) if key in ("type", "items", "values", "fields")]
    if not places:
        return rng.choice((["null", schema], schema))
    holder, key = rng.choice(places)
    if key == "fields" and isinstance(holder[key], list):
        fields = holder[key]
        if fields and rng.random() < 0.5:
            fields.pop(rng.randrange(len(fields)))
        kind, default = rng.choice(
            (
                ("string", "x"),
                ("long", 7),
                (["null", "int"], None),
                ({"type": "array", "items": "int"}, [1, 2]),
                ("int", "x"),
            )
        )
        fields.insert(
            0, {"name": f"new{rng.randrange(9)}", "type": kind, "default": default, "aliases": [f"f{rng.randrange(5)}"]}
        )
    elif isinstance(holder[key], str) and holder[key] in PRIMITIVES:
        holder[key] = rng.choice((*PRIMITIVES, ["null", holder[key]], ["string", "double", "null"]))
    return schema


def type_of(rng: random.Random, found: pa.DataType, depth: int = 0) -> pa.DataType:
    """A type that may be asked of values of a type: some of its fields, other types in some places."""
    chance = rng.random()
    if chance < 0.1 or depth > 30:
        return rng.choice(
            (
                pa.string(),
                pa.binary(),
                pa.int32(),
                pa.int64(),
                pa.float32(),
                pa.decimal128(9, 2),
                pa.timestamp("us", "UTC"),
                pa.null(),
            )
        )
    if pa.types.is_struct(found):
        fields = [each for each in found if chance < 0.5 or rng.random() < 0.6]
        kinds = [(each.name, type_of(rng, each.type, depth + 1)) for each in fields]
        made = [pa.field(name, kind, chance > 0.2 or pa.types.is_null(kind)) for name, kind in kinds]
        return pa.struct([*made, *([("absent", pa.int64())] if chance > 0.9 else [])])
    if pa.types.is_list(found):
        return pa.list_(pa.field("element", type_of(rng, found.value_type, depth + 1)))
    if pa.types.is_map(found):
        return pa.map_(pa.string(), pa.field("value", type_of(rng, found.item_type, depth + 1)))
    return found


class Values:
    """Random values of a schema, as bytes."""

    def __init__(self, rng: random.Random, parsed: ParsedSchema) -> None:
        self._rng = rng
        self._parsed = parsed

    def payload(self) -> bytes:
        rng = self._rng
        chance = rng.random()
        if chance < 0.08:
            return self.bomb()
        self._left = rng.choice((20, 300, 3_000))
        try:
            found = self._value(self._parsed.root)
        except RecursionError:
            return b"\0" * 50
        if chance < 0.7 or not found:
            return found
        if chance < 0.8:
            return found[: rng.randrange(len(found))]
        flipped = bytearray(found)
        for _ in range(rng.choice((1, 3))):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return bytes(flipped)

    def bomb(self) -> bytes:
        rng = self._rng
        n = rng.choice((100, 5_000, 60_000))
        pattern = rng.choice(
            (b"\0", b"\2", b"\1", b"\4", b"\2\0", b"\2\2", b"\0\2", b"\xff", b"\x80", b"\2\4\0", rng.randbytes(3))
        )
        return (
            rng.choice((b"", b"\0", b"\2", b"\2\2", long(n), long(2**40), b"\2" + long(n)))
            + pattern * n
            + rng.choice((b"", b"\0"))
        )

    def _value(self, schema: Schema) -> bytes:
        rng, definition = self._rng, self._parsed.definition(schema)
        self._left -= 1
        kind = kind_of(definition)
        if kind == "union":
            nulls = [nth for nth, each in enumerate(definition) if kind_of(self._parsed.definition(each)) == "null"]
            if self._left < 0 and nulls:
                return long(nulls[0])
            number = rng.randrange(len(definition))
            return long(number) + self._value(definition[number])
        if kind == "record":
            return b"".join(self._value(each["type"]) for each in definition["fields"])
        if kind in ("array", "map"):
            n = 0 if self._left < 0 else rng.choice((0, 1, 2, 5, 40))
            key = (lambda nth: b"") if kind == "array" else (lambda nth: long(2) + b"%02d" % nth)
            inner = definition["items" if kind == "array" else "values"]
            return (long(n) + b"".join(key(nth) + self._value(inner) for nth in range(n)) if n else b"") + b"\0"
        if kind == "enum":
            return long(rng.randrange(len(definition["symbols"])))
        if kind == "fixed":
            return rng.randbytes(min(definition["size"], 1_000))
        if kind in ("bytes", "string"):
            text = (
                rng.choice(("", "a", "Zürich", "x" * 70)).encode()
                if kind == "string" or rng.random() < 0.5
                else rng.randbytes(5)
            )
            return long(len(text)) + text
        if kind in ("int", "long"):
            number = rng.getrandbits(rng.randint(1, 31 if kind == "int" else 63))
            return long(number if rng.random() < 0.5 else -number - 1)
        if kind == "float":
            return struct.pack("<f", rng.choice((0.0, float("nan"), rng.uniform(-1e6, 1e6))))
        if kind == "double":
            return struct.pack("<d", rng.choice((0.0, float("inf"), rng.uniform(-1e30, 1e30))))
        return b"" if kind == "null" else rng.choice((b"\0", b"\1"))
