"""Arrays of Python values: part by part the same as by pyarrow itself, and refused alike."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.values.bulk import arrays
from pykafka_wire.values.bulk.arrays import array_of

TYPE = pa.struct(
    [
        ("number", pa.int32()),
        ("texts", pa.list_(pa.string())),
        ("price", pa.decimal128(10, 2)),
        ("lists", pa.list_(pa.list_(pa.struct([("deep", pa.bool_()), ("bytes", pa.binary())])))),
        ("map", pa.map_(pa.string(), pa.struct([("one", pa.map_(pa.int64(), pa.float64()))]))),
        ("none", pa.null()),
    ]
)
ROWS = [
    None,
    (
        1,
        ["a", None, ""],
        Decimal("1.25"),
        [[(True, b"x"), None], None, []],
        [("k", ([(1, 0.5)],)), ("l", None)],
        None,
    ),
    (None,) * 6,
    {"number": 2, "lists": [[{"bytes": b"y"}]], "map": [("m", {"one": []})]},
    (3, [], None, [], [], None),
]


@pytest.fixture(autouse=True)
def by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_MAX_TYPE_COPIES", 0)


@pytest.mark.parametrize("rows", [[row for row in ROWS if not isinstance(row, dict)], [None, ROWS[3]], [None], []])
def test_part_by_part_it_is_the_same_array(rows: list[Any]) -> None:
    found = array_of(TYPE)(rows)
    found.validate(full=True)
    assert found.type == TYPE
    assert found.equals(pa.array(rows, TYPE))


def test_tuples_and_dicts_may_stand_in_one_column() -> None:
    found = array_of(TYPE)(ROWS)
    assert found.to_pylist()[3] == pa.array([ROWS[3]], TYPE).to_pylist()[0]


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        (pa.struct([("a", pa.int32())]), (2**31,)),
        (pa.struct([("a", pa.int32())]), (1, 2)),
        (pa.struct([("a", pa.int32())]), 5),
        (pa.list_(pa.string()), 5),
        (pa.list_(pa.int64()), [1, "a"]),
        (pa.map_(pa.string(), pa.int32()), [(None, 1)]),
        (pa.map_(pa.string(), pa.int32()), [("a",)]),
    ],
)
def test_what_is_none_of_the_type_is_refused(column_type: pa.DataType, value: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017 - the caller takes any
        pa.array([value], column_type)
    with pytest.raises(Exception):  # noqa: B017
        array_of(column_type)([value])


def test_a_maps_entry_that_is_null_is_refused() -> None:  # pyarrow aborts the process
    with pytest.raises(pa.ArrowInvalid, match="entry or key that is null"):
        array_of(pa.map_(pa.string(), pa.int32()))([[("a", 1), None]])
