"""Messages drawn from Kafka's own schemas, as plain trees, with their JSON form and our form.

A tree is a dict of Kafka's JSON keys to Python values; a key that it lacks stands for the field's default. Nothing here
reads our field tables, but :func:`to_struct` to find the class of a nested structure.
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from typing import Any

from pykafka_wire.wire.protocol.fields import Struct
from pykafka_wire.wire.topic_partitions import ZERO_UUID
from tests.conformance.kafka import KafkaField, KafkaMessage

Tree = dict[str, Any]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: Where a compact length (n + 1) grows to a second byte, and a plain one does not.
_EDGES = (126, 127, 128)
_ALPHABET = 'abcXYZ09._-\0 "\\é€日\U0001f600'


def default(field: KafkaField) -> Any:
    """The default that Kafka gives the field, as a tree's value."""
    if field.default == "null" or (field.type == "records" and not field.is_array):
        return None
    if field.is_array:
        return []
    if field.type == "struct":
        return {}
    if field.type in _BITS:
        return int(field.default or "0", 0)
    text = field.default or ""
    return {"bool": text == "true", "string": text, "bytes": text.encode(), "uuid": ZERO_UUID}[field.type]


def is_default(field: KafkaField, value: Any) -> bool:
    if field.type == "struct" and isinstance(value, dict):
        return default(field) is not None and all(is_default(f, value.get(f.key, default(f))) for f in field.fields)
    return bool(value == default(field))


class Generator:
    """Draws trees. `full`: nothing null, empty or at its default; otherwise edges and plain values are mixed."""

    def __init__(self, rng: random.Random, *, full: bool = False) -> None:
        self._rng = rng
        self._full = full

    def tree(self, fields: tuple[KafkaField, ...], version: int, depth: int = 0) -> Tree:
        tree = {}
        for field in fields:
            if field.in_version(version) and (self._full or self._rng.random() < 0.9):
                tree[field.key] = self._value(field, version, depth)
        return tree

    def _value(self, field: KafkaField, version: int, depth: int) -> Any:
        if not self._full and field.nullable_in(version) and self._rng.random() < 0.2:
            return None
        if field.is_array:
            return self._array(field, version, depth)
        while True:
            value = self._one(field, version, depth)
            if not self._full or not is_default(field, value):
                return value

    def _array(self, field: KafkaField, version: int, depth: int) -> list[Any]:
        rng = self._rng
        length = rng.choice((1, 2)) if self._full else rng.choice((0, 0, 1, 1, 2, 3))
        if not self._full and rng.random() < (0.02 if field.type == "struct" and depth else 0.05):
            length = rng.choice(_EDGES)
        items = [self._one(field, version, depth + 1 + length // 100) for _ in range(length)]
        keys = [key for key in field.fields if key.map_key and key.in_version(version)]
        if keys:  # Kafka holds these arrays as maps
            items = list({tuple(item.get(key.key, default(key)) for key in keys): item for item in items}.values())
        return items

    def _one(self, field: KafkaField, version: int, depth: int) -> Any:
        rng = self._rng
        if field.type == "struct":
            return self.tree(field.fields, version, depth + 1)
        if field.type == "bool":
            return rng.random() < 0.5
        if field.type in _BITS:
            top = 1 << (_BITS[field.type] - 1)
            return rng.choice((0, 1, -1, top - 1, -top, rng.randrange(-top, top), rng.randrange(100)))
        if field.type == "uuid":
            return rng.choice((ZERO_UUID, uuid.UUID(int=rng.getrandbits(128)), uuid.UUID(int=1)))
        edge = rng.random() < (0.15 if depth < 3 else 0.02)
        length = rng.choice(_EDGES) if edge else rng.choice((0, 1, 2, 7))
        if field.type == "string":
            return "x" * length if rng.random() < 0.5 else "".join(rng.choices(_ALPHABET, k=length))
        return rng.randbytes(length)


def to_json(fields: tuple[KafkaField, ...], version: int, tree: Tree) -> Tree:
    """The JSON form that Kafka's converters read: fields of the version must be there, others may be."""
    return {
        field.key: _json_value(field, version, tree.get(field.key, default(field)))
        for field in fields
        if field.in_version(version) or field.key in tree
    }


def _json_value(field: KafkaField, version: int, value: Any) -> Any:
    if isinstance(value, list):
        return [_json_value(field._replace(is_array=False), version, item) for item in value]
    if isinstance(value, dict):
        return to_json(field.fields, version, value)
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def to_struct(cls: type[Struct], fields: tuple[KafkaField, ...], tree: Tree) -> Struct:
    """Our form of a tree."""
    items = {field.name: field.item for field in cls.fields}
    values: dict[str, Any] = {}
    for field in fields:
        if field.key in tree:
            value = tree[field.key]
            if field.type == "struct" and value is not None:
                item = items[field.attribute]
                if field.is_array:
                    value = [to_struct(item, field.fields, one) for one in value]
                else:
                    value = to_struct(item, field.fields, value)
            values[field.attribute] = value
    return cls(**values)


def json_line(message: KafkaMessage, version: int, tree: Tree) -> str:
    return json.dumps(to_json(message.fields, version, tree), separators=(",", ":"))


def mutate(rng: random.Random, data: bytes) -> bytes:
    """`data` with a byte changed, put in or taken out, or cut short."""
    kind = rng.randrange(4)
    at = rng.randrange(len(data) + (kind == 1)) if data else 0
    byte = bytes((rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))),))
    if kind == 0 and data:
        return data[:at] + byte + data[at + 1 :]
    if kind == 1 or not data:
        return data[:at] + byte + data[at:]
    return data[:at] + data[at + 1 :] if kind == 2 else data[:at]
