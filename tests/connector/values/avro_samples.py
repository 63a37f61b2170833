"""Random Avro schemas with an Arrow type to read each as, and random values of them."""

from __future__ import annotations

import datetime
import random
import string
import struct
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

UTC = datetime.timezone.utc
TEXTS = ("", "a", "Zürich", "日本", "x" * 70, "emoji 🎈", "y" * 200)


def takes_bytes(schema: Any) -> bool:
    """Whether each value of a schema takes bytes."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return any(takes_bytes(field["type"]) for field in schema["fields"])
    return schema != "null" and not (isinstance(schema, dict) and schema.get("size") == 0)


class Samples:
    """A source of schemas: the same for the same seed. Names are unique within one schema."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._n_names = 0

    def name(self, prefix: str) -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def record(self, depth: int = 0) -> tuple[Any, pa.DataType]:
        """A record schema, and a struct type of all its fields."""
        fields, columns = [], []
        for _ in range(self.random.randint(0 if depth else 1, 6)):
            name = self.name("f")
            schema, column = self.schema(depth + 1)
            fields.append({"name": name, "type": schema})
            columns.append((name, column))
        return {"type": "record", "name": self.name("R"), "fields": fields}, pa.struct(columns)

    def schema(self, depth: int) -> tuple[Any, pa.DataType]:
        kinds = [self.scalar] * 8 + [self.optional] * 3
        if depth < 4:
            kinds += [self.record_of, self.array, self.map, self.record_of, self.array]
        return self.random.choice(kinds)(depth)

    def record_of(self, depth: int) -> tuple[Any, pa.DataType]:
        return self.record(depth)

    def array(self, depth: int) -> tuple[Any, pa.DataType]:
        items, column = self.schema(depth + 1)
        while not takes_bytes(items):  # arrays of these are not read in columns
            items, column = self.schema(depth + 1)
        return {"type": "array", "items": items}, pa.list_(column)

    def map(self, depth: int) -> tuple[Any, pa.DataType]:
        values, column = self.schema(depth + 1)
        return {"type": "map", "values": values}, pa.map_(pa.string(), column)

    def optional(self, depth: int) -> tuple[Any, pa.DataType]:
        schema, column = self.record(depth + 1) if depth < 3 and self.random.random() < 0.3 else self.scalar(depth)
        if schema == "null" or isinstance(schema, list):  # which a union cannot hold beside null, or at all
            return schema, column
        branches = ["null", schema]
        self.random.shuffle(branches)
        return branches, column

    def scalar(self, _depth: int) -> tuple[Any, pa.DataType]:
        choices: list[tuple[Any, pa.DataType]] = [
            ("boolean", pa.bool_()),
            ("int", pa.int32()),
            ("int", pa.int64()),
            ("long", pa.int64()),
            ("long", pa.int32()),
            ("long", pa.float64()),
            ("float", pa.float32()),
            ("float", pa.float64()),
            ("double", pa.float64()),
            ("double", pa.float32()),
            ("string", pa.string()),
            ("bytes", pa.binary()),
            ("null", pa.string()),
            (["int", "long"], pa.int64()),
            (["null", "string", "bytes"], pa.binary()),
            ({"type": "int", "logicalType": "date"}, pa.date32()),
            ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", tz="UTC")),
            ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", tz="UTC")),
            ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
            ({"type": "string", "logicalType": "uuid"}, pa.string()),
            ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}, pa.decimal128(12, 3)),
            ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, pa.decimal128(38, 0)),
            (
                {
                    "type": "fixed",
                    "name": self.name("D"),
                    "size": 9,
                    "logicalType": "decimal",
                    "precision": 20,
                    "scale": 2,
                },
                pa.decimal128(20, 2),
            ),
            ({"type": "fixed", "name": self.name("F"), "size": self.random.choice([0, 1, 16])}, pa.binary()),
            ({"type": "enum", "name": self.name("E"), "symbols": ["A", "B", "C"]}, pa.string()),
        ]
        return self.random.choice(choices)

    def reader_of(self, written: Any) -> tuple[Any, pa.DataType]:
        """A reader's schema for a record: fields left out, moved, renamed, promoted and new; and a struct type of it."""
        fields, columns = [], []
        for field in written["fields"]:
            change = self.random.random()
            if change < 0.2:
                continue
            name, kind = field["name"], field["type"]
            made: dict[str, Any] = {"name": name, "type": self._promoted(kind)}
            if change > 0.85:
                made |= {"name": f"{name}_renamed", "aliases": [name]}
            fields.append(made)
        for default in ("x", 7, 1.5, True, None):
            if self.random.random() < 0.4:
                kind = {str: "string", int: "long", float: "double", bool: "boolean"}.get(
                    type(default), ["null", "int"]
                )
                fields.append({"name": self.name("new"), "type": kind, "default": default})
        self.random.shuffle(fields)
        for field in fields:
            columns.append((field["name"], self._column(field["type"])))
        return {"type": "record", "name": written["name"], "fields": fields}, pa.struct(columns)

    def _promoted(self, kind: Any) -> Any:
        wider = {
            "int": ("long", "double", "float"),
            "long": ("double",),
            "float": ("double",),
            "string": ("bytes",),
            "bytes": (),
        }
        if isinstance(kind, str) and wider.get(kind) and self.random.random() < 0.5:
            return self.random.choice(wider[kind])
        if isinstance(kind, str) and self.random.random() < 0.2 and kind != "null":
            return ["null", kind]
        return kind

    def _column(self, schema: Any) -> pa.DataType:
        """The Arrow type that a schema's values are read as where nothing else is asked for."""
        if isinstance(schema, list):
            return self._column(next((each for each in reversed(schema) if each != "null"), "null"))
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if kind == "record":
            return pa.struct([(field["name"], self._column(field["type"])) for field in schema["fields"]])
        if kind == "array":
            return pa.list_(self._column(schema["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self._column(schema["values"]))
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema["scale"])
        if logical:
            zone = None if logical.startswith("local") else "UTC"
            return {"date": pa.date32(), "uuid": pa.string()}.get(logical, pa.timestamp("us", tz=zone))
        return {
            "null": pa.string(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "string": pa.string(),
            "enum": pa.string(),
        }.get(kind, pa.binary())

    def value(self, schema: Any) -> Any:
        """A value that fastavro writes under a schema of this class."""
        chance = self.random
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(self._n_items())]
        if kind == "map":
            return {self.name("k"): self.value(schema["values"]) for _ in range(self._n_items())}
        if kind == "enum":
            return chance.choice(schema["symbols"])
        if logical == "date":
            return datetime.date(1, 1, 1) + datetime.timedelta(days=chance.randrange(3_652_000))
        if logical and "timestamp" in logical:
            moment = datetime.datetime(1, 1, 2) + datetime.timedelta(
                milliseconds=chance.randrange(3_650_000 * 86_400_000)
            )
            return moment if logical.startswith("local") else moment.replace(tzinfo=UTC)
        if logical == "decimal":
            digits = chance.randint(1, schema["precision"])
            number = Decimal(chance.choice([-1, 1]) * chance.randrange(10**digits))
            return number.scaleb(-schema["scale"], Context(prec=40))
        if logical == "uuid":
            return f"{chance.getrandbits(128):032x}"[:8] + "-0000-4000-8000-" + f"{chance.getrandbits(48):012x}"
        if kind == "fixed":
            return chance.randbytes(schema["size"])
        return {
            "null": lambda: None,
            "boolean": lambda: chance.random() < 0.5,
            "int": lambda: self._whole(31),
            "long": lambda: self._whole(63),
            "float": lambda: struct.unpack("<f", struct.pack("<f", chance.uniform(-1e6, 1e6)))[0],
            "double": lambda: chance.choice([0.0, -0.0, float("inf"), chance.uniform(-1e30, 1e30)]),
            "string": lambda: chance.choice(TEXTS) + chance.choice(string.ascii_letters),
            "bytes": lambda: chance.randbytes(chance.choice([0, 1, 5, 130])),
        }[kind]()

    def _n_items(self) -> int:
        return self.random.choice([0, 0, 1, 2, 3, 3, 9])

    def _whole(self, bits: int) -> int:
        number = self.random.getrandbits(self.random.randint(1, bits))
        return number if self.random.random() < 0.5 else -number - 1
