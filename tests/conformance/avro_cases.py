"""Random Avro schemas, values of them as bytes, and readers' schemas: what the decoder is compared with other libraries on."""

from __future__ import annotations

import random
import struct
from typing import Any

Schema = Any  # JSON

TEXTS = ("", "a", "Zürich", "日本", "x" * 70, "emoji 🎈", "y" * 200)
PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MAX_DEPTH = 3


class Cases:
    """A source of schemas and values: the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._n_names = 0
        #: Named types that are complete, which later places may name: definitions by full name.
        self._complete: dict[str, Schema] = {}

    def schema(self) -> Schema:
        return self.random.choice([self.record] * 12 + [self.array, self.map, self.union, self.scalar])(0)

    def named(self, schema: Schema) -> Schema:
        """The definition of a type, which may be given by its name."""
        return self._complete.get(schema, schema) if isinstance(schema, str) else schema

    def any(self, depth: int) -> Schema:
        kinds = [self.scalar] * 8 + [self.optional] * 4 + [self.again]
        if depth < MAX_DEPTH:
            kinds += [self.record, self.array, self.map, self.union] * 2
        return self.random.choice(kinds)(depth)

    def again(self, depth: int) -> Schema:
        return self.random.choice(list(self._complete)) if self._complete else self.scalar(depth)

    def record(self, depth: int) -> Schema:
        made: dict[str, Any] = {"type": "record", "name": self._name("R"), "fields": []}
        for _ in range(self.random.choice([0, 1, 1, 2, 3, 5, 8])):
            made["fields"].append({"name": self._short("f"), "type": self.any(depth + 1)})
        return self._keep(made)

    def array(self, depth: int) -> Schema:
        return {"type": "array", "items": self.any(depth + 1)}

    def map(self, depth: int) -> Schema:
        return {"type": "map", "values": self.any(depth + 1)}

    def optional(self, depth: int) -> Schema:
        schema = self.any(depth + 1) if depth < MAX_DEPTH else self.scalar(depth)
        if isinstance(schema, list) or schema == "null":
            return schema
        return self.random.choice([["null", schema], [schema, "null"]])

    def union(self, depth: int) -> Schema:
        branches: dict[str, Schema] = {}
        for _ in range(self.random.choice([1, 2, 2, 3, 4])):
            before = dict(self._complete)
            schema = self.any(depth + 1)
            if isinstance(schema, list) or _branch_name(schema) in branches:
                self._complete = before  # the types in it are nowhere else
            else:
                branches[_branch_name(schema)] = schema
        return list(branches.values()) or ["null"]

    def scalar(self, _depth: int) -> Schema:
        chance = self.random
        simple: list[Schema] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
        logical = [
            ("int", "date"),
            ("int", "time-millis"),
            ("long", "time-micros"),
            *(("long", f"{a}timestamp-{b}") for a in ("", "local-") for b in ("millis", "micros", "nanos")),
            ("string", "uuid"),
            ("long", "date"),
            ("string", "unknown"),
        ]
        simple += simple[1:]
        simple += [{"type": kind, "logicalType": name} for kind, name in logical]
        for precision, scale in ((12, 3), (38, 0), (38, 38), (4, 9)):
            simple.append({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
        made = chance.choice([*simple, "fixed", "fixed", "enum", "enum"])
        if made == "fixed":
            size = chance.choice([0, 1, 9, 12, 16])
            more = chance.choice(
                [
                    {},
                    {"logicalType": "duration"},
                    {"logicalType": "uuid"},
                    {"logicalType": "decimal", "precision": 20, "scale": 2},
                ]
            )
            return self._keep({"type": "fixed", "name": self._name("F"), "size": size, **more})
        if made == "enum":
            symbols = chance.sample("ABCDEFGH", chance.randint(1, 6))
            found: dict[str, Any] = {"type": "enum", "name": self._name("E"), "symbols": symbols}
            if chance.random() < 0.4:
                found["default"] = chance.choice(symbols)
            return self._keep(found)
        return made

    def _short(self, prefix: str) -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def _name(self, prefix: str) -> str:
        return self.random.choice(["one.", "one.two.", "three."]) + self._short(prefix)

    def _keep(self, made: Schema) -> Schema:
        self._complete[made["name"]] = made
        return made

    # Values.

    def payload(self, schema: Schema) -> bytes:
        """A value's bytes."""
        chance = self.random
        schema = self.named(schema)
        if isinstance(schema, list):
            number = chance.randrange(len(schema))
            return long(number) + self.payload(schema[number])
        if isinstance(schema, str):
            return self._primitive(schema)
        kind = schema["type"]
        if kind == "record":
            return b"".join(self.payload(field["type"]) for field in schema["fields"])
        if kind in ("array", "map"):
            return self._blocks(schema)
        if kind == "enum":
            return long(chance.randrange(len(schema["symbols"])))
        if kind == "fixed":
            if schema.get("logicalType") == "decimal" and schema["size"] == 9:
                return chance.randrange(-(10**20) + 1, 10**20).to_bytes(9, "big", signed=True)
            return chance.randbytes(schema["size"])
        logical = schema.get("logicalType")
        if logical == "time-micros" and kind == "long":
            return long(chance.randrange(86_400_000_000))
        if logical in ("timestamp-millis", "local-timestamp-millis"):
            return long(chance.randrange(-(2**52), 2**52))
        if logical == "decimal":
            bound = 10 ** chance.randint(0, schema["precision"])
            number = chance.randrange(-bound + 1, bound)
            size = (number.bit_length() + 8) // 8 + chance.choice([0, 0, 0, 1, 9])
            return long(size) + number.to_bytes(size, "big", signed=True)
        return self._primitive(kind)

    def _blocks(self, schema: Schema) -> bytes:
        found = b""
        for _ in range(self.random.choice([0, 1, 1, 2])):
            n_items = self.random.choice([1, 1, 2, 5])
            items = b""
            for _ in range(n_items):
                if schema["type"] == "map":
                    key = self.random.choice(["k", "ö"]).encode() + str(self.random.randrange(300)).encode()
                    items += long(len(key)) + key
                items += self.payload(schema["items" if schema["type"] == "array" else "values"])
            head = long(n_items) if self.random.random() < 0.6 else long(-n_items) + long(len(items))
            found += head + items
        return found + b"\0"

    def _primitive(self, kind: str) -> bytes:
        chance = self.random
        if kind in ("int", "long"):
            number = chance.getrandbits(chance.randint(1, 31 if kind == "int" else 63))
            return long(number if chance.random() < 0.5 else -number - 1)
        if kind in ("string", "bytes"):
            text = chance.choice(TEXTS).encode() if kind == "string" or chance.random() < 0.5 else chance.randbytes(5)
            return long(len(text)) + text
        if kind == "float":
            return struct.pack("<f", chance.choice([0.0, -0.0, float("nan"), chance.uniform(-1e6, 1e6)]))
        if kind == "double":
            return struct.pack("<d", chance.choice([0.0, -0.0, float("inf"), chance.uniform(-1e30, 1e30)]))
        return b"" if kind == "null" else chance.choice([b"\0", b"\1"])

    def damaged(self, payload: bytes) -> bytes:
        chance = self.random.random()
        if chance < 0.4:
            return payload[: self.random.randrange(len(payload) + 1)]
        if chance < 0.5 or not payload:
            return payload + b"\0"
        flipped = bytearray(payload)
        flipped[self.random.randrange(len(flipped))] ^= 1 << self.random.randrange(8)
        return bytes(flipped)

    # Readers' schemas.

    def reader_of(self, schema: Schema) -> Schema:
        """A schema that reads values of another: fields left out, moved, renamed, promoted and new, and some that do not match."""
        self._renamed: dict[str, Schema] = {}
        self._changes: dict[str, str] = {}
        return self._written_out(self._changed(schema), set())

    def _written_out(self, schema: Schema, seen: set[str]) -> Schema:
        """Each named type where it first stands, and its name alone behind that."""
        if isinstance(schema, str) and schema in self._renamed:
            schema = self._renamed[schema]
        if isinstance(schema, list):
            return [self._written_out(each, seen) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if "name" in schema:
            if schema["name"] in seen:
                return schema["name"]
            seen.add(schema["name"])
        found = {**schema}
        for inner in ("items", "values"):
            if inner in found:
                found[inner] = self._written_out(found[inner], seen)
        if "fields" in found:
            found["fields"] = [{**each, "type": self._written_out(each["type"], seen)} for each in found["fields"]]
        return found

    def _changed(self, schema: Schema) -> Schema:
        chance = self.random.random()
        if isinstance(schema, str) and schema in self._complete:
            if schema in self._changes:
                return self._changes[schema]
            schema = self._complete[schema]
        if isinstance(schema, list):
            branches = [self._changed(each) for each in schema]
            branches = [each for each in branches if not isinstance(each, list)]
            if chance < 0.3:
                self.random.shuffle(branches)
            if chance > 0.8:
                branches.append(self.random.choice(["string", "double", "null", "long"]))
            unique = {_branch_name(each): each for each in branches if chance > 0.1 or self.random.random() < 0.8}
            return list(unique.values()) or "null"
        if isinstance(schema, str) or schema["type"] in PROMOTIONS:
            kind = schema if isinstance(schema, str) else schema["type"]
            if chance < 0.3 and kind in PROMOTIONS:
                return self.random.choice(PROMOTIONS[kind])
            if chance < 0.4 and kind != "null":
                return self.random.choice([["null", schema], [schema, "null"], ["null", "string", schema]])[
                    : 3 if kind != "string" else 2
                ]
            return self.random.choice(["int", "string"]) if chance > 0.98 else schema
        made = {**schema}
        if "name" in made:
            self._rename(made, chance)
            self._changes[schema["name"]] = made["name"]
            self._renamed[made["name"]] = made
        if made["type"] == "record":
            made["fields"] = self._changed_fields(schema["fields"])
        elif made["type"] == "array":
            made["items"] = self._changed(schema["items"])
        elif made["type"] == "map":
            made["values"] = self._changed(schema["values"])
        elif made["type"] == "enum" and chance < 0.3:
            made["symbols"] = [
                *self.random.sample(made["symbols"], self.random.randint(1, len(made["symbols"]))),
                "NEW",
            ]
            if "default" in made:
                made["default"] = self.random.choice(made["symbols"])
        elif made["type"] == "fixed" and chance > 0.97:
            made["size"] += 1
        return [made, "null"] if chance > 0.95 and made["type"] != "null" else made

    def _rename(self, made: dict[str, Any], chance: float) -> None:
        name = made["name"]
        namespace, _, short = name.rpartition(".")
        if 0.4 < chance < 0.5:
            made |= {"name": f"{namespace}.{short}x", "aliases": self.random.choice([[short], [name]])}
        elif 0.5 < chance < 0.55:
            made["name"] = f"other.{short}"
        elif 0.55 < chance < 0.57:
            made["name"] = f"{namespace}.{short}y"

    def _changed_fields(self, fields: list[Any]) -> list[Any]:
        chance = self.random
        found = []
        for field in fields:
            change = chance.random()
            if change < 0.15:
                continue
            made = {"name": field["name"], "type": self._changed(field["type"])}
            if change > 0.85:
                made |= {"name": f"{field['name']}_new", "aliases": [field["name"]]}
            elif change > 0.82:
                made["aliases"] = [chance.choice(fields)["name"]]
            found.append(made)
        for _ in range(chance.choice([0, 0, 1, 2])):
            kind, default = chance.choice(
                [
                    ("string", "ü"),
                    ("long", 7),
                    ("double", 1.5),
                    ("float", 2),
                    ("boolean", True),
                    (["null", "int"], None),
                    (["int", "null"], 3),
                    ("bytes", "\u00ff\u0001"),
                    ({"type": "array", "items": "int"}, [1, 2]),
                    ({"type": "map", "values": ["null", "string"]}, {"a": None}),
                    ({"type": "int", "logicalType": "date"}, 19_000),
                    ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_000),
                    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u0001\u00ff"),
                    (["null", "string", "int"], None),
                ]
            )
            found.append({"name": self._short("new"), "type": kind, "default": default})
        if chance.random() < 0.05:
            found.append({"name": self._short("required"), "type": "int"})
        if chance.random() < 0.3:
            chance.shuffle(found)
        return found


def long(number: int) -> bytes:
    """A zigzag varint."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _branch_name(schema: Schema) -> str:
    """What may be once in a union."""
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))
