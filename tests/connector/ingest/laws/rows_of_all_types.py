"""Rows of all types with the values that readers stumble over, and what predicates mean for them in plain Python.

Dates and timestamps are whole numbers, days and µs since the epoch: Python's own types end with the year 9999.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

_DAY_US: Final = 86_400_000_000
_NAN: Final = math.nan


def days(year: int, month: int = 1, day: int = 1) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


DAYS: Final = [
    0, -1, days(1), days(1) - 1, days(1) - 366, days(9999, 12, 31), days(9999, 12, 31) + 1, days(1582, 10, 4), days(1582, 10, 5),
    days(1582, 10, 10), days(1582, 10, 14), days(1582, 10, 15), days(1582, 10, 24), days(1582, 10, 26), days(1899, 12, 31),
    days(2026, 2, 28), 2_000_000_000 // 24,
]  # fmt: skip
MICROS: Final = [
    *(day * _DAY_US for day in DAYS), *(day * _DAY_US - 1 for day in DAYS), *(day * _DAY_US + 1 for day in DAYS),
    *(day * _DAY_US + 43_200_000_000 for day in DAYS), 2**62, -(2**62),
]  # fmt: skip
TEXTS: Final = [
    "", "a", "å", "x" * 16, "x" * 17, "x" * 32, "x" * 33, "y" * 5000, "x" * 5000, "z", "\U0010ffff", "\U0010ffff" * 40,
    "a" * 15 + "\ud7ff" + "b", "a" * 16 + "\ud7ff", "a" * 31 + "\uffff\uffff", "\U00010000", "\uffff", "%", "_", "'", "\x00",
    "NULL", "x" * 31 + "\U0010ffff" + "a", "x" * 32 + "\U0010ffff" + "b", "\u0130", "ß", "e\u0301",
]  # fmt: skip
FLOATS: Final = [_NAN, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 3.0, 2.0**100, -(2.0**100), 2.0**-140]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    last = 10**precision - 1
    return [Decimal(number).scaleb(-scale) if abs(number) < 10**28 else _exact(number, scale)
            for number in (0, 1, -1, 12345, last, -last)]  # fmt: skip


def _exact(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _integers(bits: int) -> list[int]:
    return [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


#: The extremes of each type.
COLUMNS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "flag": (pa.bool_(), [True, False]),
    "int": (pa.int32(), _integers(32)),
    "long": (pa.int64(), [*_integers(64), 2**53 + 1]),
    "single": (pa.float32(), FLOATS),
    "double": (pa.float64(), [*FLOATS, 1e308, -1e308, 5e-324]),
    "dec9": (pa.decimal128(9, 2), _decimals(9, 2)),
    "dec18": (pa.decimal128(18, 4), _decimals(18, 4)),
    "dec38": (pa.decimal128(38, 10), _decimals(38, 10)),
    "text": (pa.string(), TEXTS),
    "raw": (pa.binary(), [b"", b"\x00", b"\xff" * 17, b"\xff", b"a" * 16 + b"\xff", b"b" * 5000]),
    "day": (pa.date32(), DAYS),
    "at": (pa.timestamp("us", "UTC"), MICROS),
    "local": (pa.timestamp("us"), MICROS),
    "with.dot": (pa.float64(), FLOATS),
}
#: Fields of the struct ``place``.
FIELDS: Final = ("text", "double", "at", "day")
_PLACE: Final = pa.struct([(name, COLUMNS[name][0]) for name in FIELDS])
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int32()),
        *((name, kind) for name, (kind, _) in COLUMNS.items()),
        ("place", _PLACE),
        ("list", pa.list_(pa.field("element", pa.float64()))),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)


def _values(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *COLUMNS[name][1]])


ROWS: Final = st.fixed_dictionaries(
    {
        **{name: _values(name) for name in COLUMNS},
        "place": st.none() | st.fixed_dictionaries({name: _values(name) for name in FIELDS}),
        "list": st.none() | st.lists(_values("double"), max_size=2),
        "map": st.none() | st.dictionaries(st.sampled_from(["a", "b"]), _values("double"), max_size=2),
    }
)
#: Rows of one file, by its row groups.
ROW_GROUPS: Final = st.lists(st.lists(ROWS, min_size=1, max_size=3), min_size=1, max_size=3)


def batch_of(rows: list[dict[str, Any]], schema: Any = SCHEMA) -> Any:
    """Rows as a record batch."""
    return pa.RecordBatch.from_arrays(
        [_array([row[field.name] for row in rows], field.type) for field in schema], schema=schema
    )


def _array(values: list[Any], kind: Any) -> Any:
    if pa.types.is_struct(kind):
        fields = [
            _array([None if value is None else value[field.name] for value in values], field.type) for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pa.array([value is None for value in values]))
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    if pa.types.is_map(kind):
        return pa.array([None if value is None else [*value.items()] for value in values], kind)
    return pa.array(values, kind)


def value_of(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    """The value of a column, or of a field of a struct; float32's as it is stored."""
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


#: Paths of the columns and fields that have an order.
PATHS: Final = [("id",), *((name,) for name in COLUMNS), *(("place", name) for name in FIELDS)]


def order(value: Any) -> Any:
    """What Spark and databases sort by: NaN is above all other numbers and equal to itself; texts are their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    return value


def type_of(path: tuple[str, ...]) -> Any:
    return pa.int32() if path == ("id",) else COLUMNS[path[-1] if path[0] == "place" else path[0]][0]


def moment(value: int) -> datetime | None:
    """A timestamp as Python has it; None where it has none."""
    try:
        return datetime(1970, 1, 1) + (value * (datetime(1970, 1, 2) - datetime(1970, 1, 1))) / _DAY_US
    except OverflowError:
        return None
