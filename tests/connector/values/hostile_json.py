"""Types that JSON is asked for, wide and nested as nobody needs them, and documents that are made to do damage under them."""

from __future__ import annotations

import random

import pyarrow as pa

from tests.connector.values.json_samples import SCALARS, WRONG, JsonSamples

DAMAGE = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b":",
    b"null",
    b"\0",
    b"\xff",
    b"\n",
    b"1e999999999",
    b"-",
    b"\\ud800",
    b"NaN",
)


def type_of(rng: random.Random) -> pa.DataType:
    """A column's type."""
    chance = rng.random()
    if chance < 0.5:
        return JsonSamples(rng.randrange(2**32), maps=chance < 0.25).struct()
    if chance < 0.6:
        return _nested(rng, 3)
    inner = _wide(rng)
    for _ in range(rng.choice((1, 1, 2, 4, 40))):
        inner = rng.choice((pa.list_, lambda each: pa.map_(pa.string(), each), lambda each: pa.struct([("a", each)])))(
            inner
        )
    return rng.choice(
        (
            inner,
            pa.struct([("id", pa.int64()), ("a", inner)]),
            pa.struct([("a", inner), ("m", pa.map_(pa.string(), pa.int32()))]),
        )
    )


def _wide(rng: random.Random) -> pa.DataType:
    n = rng.choice((1, 5, 60, 700, 3_000))
    return pa.struct([pa.field(f"f{nth}", rng.choice(SCALARS), rng.random() < 0.999) for nth in range(n)])


def _nested(rng: random.Random, depth: int) -> pa.DataType:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(SCALARS)
    inner = _nested(rng, depth - 1)
    key = rng.choice((pa.string(), pa.int32(), pa.float64(), pa.bool_(), pa.date32(), pa.decimal128(9, 2)))
    return rng.choice((pa.list_(inner), pa.map_(key, inner), pa.struct([("a", inner), ("b", _nested(rng, depth - 1))])))


def document(rng: random.Random, column_type: pa.DataType) -> bytes:
    chance = rng.random()
    if chance < 0.1:
        return bomb(rng, column_type)
    if chance < 0.2:
        return rng.choice(WRONG).encode()
    found = JsonSamples(rng.randrange(2**32), maps=True).document(column_type, share_wrong=rng.choice((0.0, 0.0, 0.05)))
    if chance < 0.75:
        return found
    at = rng.randrange(len(found) + 1)
    return found[:at] + (rng.choice(DAMAGE) if chance < 0.95 else b"") + found[at + rng.randrange(3) :]


def bomb(rng: random.Random, column_type: pa.DataType) -> bytes:
    """A document that goes down a type to an array or map, and has very many items there."""
    if pa.types.is_struct(column_type) and column_type.num_fields:
        nested = [each for each in column_type if pa.types.is_nested(each.type)]
        field = rng.choice(nested or list(column_type))
        return b'{"' + field.name.replace('"', '\\"').encode() + b'":' + bomb(rng, field.type) + b"}"
    if pa.types.is_nested(column_type) and rng.random() < 0.6:
        inner = column_type.item_type if pa.types.is_map(column_type) else column_type.value_type
        n = 1 if rng.random() < 0.7 else 50
        items = [bomb(rng, inner)] * n if n == 1 else [_small(rng)] * n
        return _around(column_type, items)
    return _around(column_type, [_small(rng)] * rng.choice((10, 3_000, 100_000)))


def _small(rng: random.Random) -> bytes:
    return rng.choice(
        (b"{}", b"null", b"[]", b"1", b'""', b"[{}]", b'{"a":{}}', b'{"a":[]}', b"[null]", b"[" * 30 + b"]" * 30)
    )


def _around(column_type: pa.DataType, items: list[bytes]) -> bytes:
    if pa.types.is_map(column_type):
        return b"{" + b",".join(b'"%d":%s' % (nth, each) for nth, each in enumerate(items)) + b"}"
    return b"[" + b",".join(items) + b"]"
