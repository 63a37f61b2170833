"""How many fields the items of a JSON document's arrays and maps may have, whatever the column's type around them is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pykafka_wire.values.converter import Converter, read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.json.input_limits import MAX_FIELDS, item_fields, n_fields

WIDE = pa.struct([(f"f{nth}", pa.int64()) for nth in range(99)])
MAP = pa.map_(pa.string(), pa.int32())
#: Of the items, each with the struct itself.
N_ITEMS = MAX_FIELDS // 100


def items(n: int, item: bytes = b"{}") -> bytes:
    return b"[" + b",".join([item] * n) + b"]"


def entries(n: int) -> bytes:
    return b"{" + b",".join(b'"%d":null' % nth for nth in range(n)) + b"}"


TYPES = {
    "an array at the top": (pa.list_(WIDE), items),
    "an array beside a map": (
        pa.struct([("a", pa.list_(WIDE)), ("m", MAP)]),
        lambda n: b'{"a":' + items(n) + b"}",
    ),
    "an array in columns": (pa.struct([("a", pa.list_(WIDE))]), lambda n: b'{"a":' + items(n) + b"}"),
    "nulls in columns": (pa.struct([("a", pa.list_(WIDE))]), lambda n: b'{"a":' + items(n, b"null") + b"}"),
    "nulls at the top": (pa.list_(WIDE), lambda n: items(n, b"null")),
    "arrays in an array": (pa.list_(pa.list_(WIDE)), lambda n: items(64, items(n // 64 + 1))),
    "a map": (pa.map_(pa.string(), WIDE), entries),
    "a map in an array": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), WIDE))])),
        lambda n: items(64, b'{"m":' + entries(n // 64 + 1) + b"}"),
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_items_of_wide_structs_have_a_limit_in_every_type(name: str) -> None:
    column_type, document = TYPES[name]
    good, bad = document(N_ITEMS // 2), document(N_ITEMS + N_ITEMS // 10)
    rows = pa.array([good, bad, good], pa.binary())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_kib("VmRSS")
    found = read_column(Json(), column_type, rows)
    growth_mib = (memory_kib("VmHWM") - before) >> 10
    assert found.reasons == {1: f"its arrays and maps hold more than {MAX_FIELDS} fields of the column's type"}
    assert found.column.is_valid().to_pylist() == [True, False, True]
    assert growth_mib < 200  # two good ones of 16 MiB in Arrow; thousands, if an item were a dict of all fields


def test_a_document_of_many_values_is_read_whatever_its_fields_are() -> None:
    column_type = pa.struct([("a", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int32()))])))])
    document = b'{"a":' + items(200_000, b'{"x":null,"y":[1]}') + b"}"
    (row,) = Converter(format=Json(), type=column_type)(pa.array([document], pa.binary()))
    assert len(row["a"]) == 200_000


def test_fields_are_counted_without_those_of_arrays() -> None:
    inner = pa.struct([("a", pa.int64()), ("b", pa.list_(WIDE))])
    assert (n_fields(inner), item_fields(inner)) == (3, 100)
    assert (n_fields(pa.int64()), item_fields(pa.int64())) == (1, 0)
    assert item_fields(pa.map_(pa.string(), inner)) == 100
    assert item_fields(pa.list_(pa.int64())) == 1


def memory_kib(field: str) -> int:
    text = Path("/proc/self/status").read_text("ascii")
    return int(text.partition(f"{field}:")[2].split()[0])
