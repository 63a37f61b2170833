"""The statistics of a Parquet file's columns, computed once for the footer, for Delta's log and for Iceberg's manifests.

Bounds come from the footer. Dates and timestamps are numbers, since Python's own types end with the year 9999. The footer gets no
bounds if readers would draw a wrong conclusion from them. Then readers read more than they need, but they never miss a row:

- A column with NaN. Parquet's bounds ignore NaN, but Spark and databases treat NaN as the largest number.
- A column with dates around October 1582, when the Gregorian calendar began. Spark compares the footer and the dictionary with
  literals of ``java.sql``, which shifts the ten days that the Julian calendar does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.ingest.files.types import FIELD_ID

_EPOCH: Final = date(1970, 1, 1)
#: The range of days that Spark's literals shift by up to ten days, plus one day for time zones of timestamps.
_MOVED_DAYS: Final = ((date(1582, 10, 4) - _EPOCH).days, (date(1582, 10, 26) - _EPOCH).days)
_DAY_US: Final = 86_400_000_000
#: In bytes. Parquet's library writes no bounds for a row group with a longer text.
_LONGEST_TEXT: Final = 4096
#: The most characters in the bounds of such texts.
_CUT_TEXT: Final = 256
_DIGITS_OF_YEAR: Final = 4
_SURROGATES: Final = (0xD800, 0xE000)
_LAST_CHARACTER: Final = 0x10FFFF


class Leaf(NamedTuple):
    """A leaf column of a Parquet file.

    Attributes:
        path: the names of the table's column and of nested struct fields. Leaves of a list or map have the path of the list or map.
        kind: the pyarrow type.
        is_repeated: whether the leaf is inside a list or a map.
        name: Parquet's name of the leaf, in which a dot inside a name is not escaped.
        field_id: Iceberg's field id; None without one.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    is_repeated: bool
    name: str
    field_id: int | None


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one leaf of a file.

    Attributes:
        n_values: the number of values, including nulls.
        n_bytes: the compressed size.
        n_nulls: the number of nulls, None if unknown.
        n_nans: the number of NaN; None if the leaf has no floating-point type, or is inside a list or a map.
        low, high: the bounds of the values; dates and timestamps as days and µs since the epoch. None if unknown.
    """

    n_values: int
    n_bytes: int
    n_nulls: int | None
    n_nans: int | None
    low: Any = None  # Any: a value of the leaf's type
    high: Any = None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The effect of a row group on the statistics of its file.

    Attributes:
        n_nans: the number of NaN in floating-point leaves, by the leaf's position.
        long_texts: the bounds of texts, by the leaf's position, if a long text keeps them out of the footer.
        without_bounds: the names of leaves without bounds in the footer.
        without_dictionary: the names of leaves without a dictionary as well.
    """

    n_nans: dict[int, int]
    long_texts: dict[int, tuple[str, str] | None]
    without_bounds: frozenset[str]
    without_dictionary: frozenset[str]


def parquet_leaves(schema: pa.Schema) -> list[Leaf]:
    """Return the leaves of a file's schema, in the order of Parquet's columns."""
    return [leaf for field in schema for leaf in _leaves(field, (field.name,), field.name, is_repeated=False)]


def _leaves(field: pa.Field, path: tuple[str, ...], name: str, *, is_repeated: bool) -> Iterator[Leaf]:
    kind = field.type
    if pa.types.is_struct(kind):
        for inner in kind:
            inner_path = path if is_repeated else (*path, inner.name)
            yield from _leaves(inner, inner_path, f"{name}.{inner.name}", is_repeated=is_repeated)
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_field, path, f"{name}.key_value.key", is_repeated=True)
        yield from _leaves(kind.item_field, path, f"{name}.key_value.value", is_repeated=True)
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_field, path, f"{name}.list.element", is_repeated=True)
    else:
        number = (field.metadata or {}).get(FIELD_ID)
        yield Leaf(path, kind, is_repeated, name, None if number is None else int(number))


def survey(rows: pa.Table, leaves: Sequence[Leaf]) -> RowGroup:
    """Return the effect of rows on the statistics of their file."""
    n_nans: dict[int, int] = {}
    long_texts: dict[int, tuple[str, str] | None] = {}
    without_bounds, without_dictionary = set(), set()
    for position, leaf in enumerate(leaves):
        if pa.types.is_floating(leaf.kind):
            if not leaf.is_repeated:
                n_nans[position] = pc.sum(pc.is_nan(column_of(rows, leaf.path))).as_py() or 0
            if leaf.is_repeated or n_nans[position]:
                without_bounds.add(leaf.name)
        elif leaf.is_repeated:
            continue
        elif pa.types.is_string(leaf.kind):
            texts = column_of(rows, leaf.path)
            if texts.nbytes > _LONGEST_TEXT and (pc.max(pc.binary_length(texts)).as_py() or 0) > _LONGEST_TEXT:
                long_texts[position] = _bounds_of_texts(texts)
        elif pa.types.is_temporal(leaf.kind) and _has_moved_days(column_of(rows, leaf.path)):
            without_dictionary.add(leaf.name)
    return RowGroup(n_nans, long_texts, frozenset(without_bounds | without_dictionary), frozenset(without_dictionary))


def _bounds_of_texts(texts: pa.ChunkedArray) -> tuple[str, str] | None:
    """Return a lower and an upper bound of texts; None if a text is not valid UTF-8."""
    bounds = pc.min_max(texts)
    try:
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
    except UnicodeDecodeError:
        return None
    end = next_text(high[:_CUT_TEXT]) if len(high) > _CUT_TEXT else high
    return low[:_CUT_TEXT], high if end is None else end


def next_text(text: str) -> str | None:
    """Return the smallest text above all texts that start with ``text``; None if there is none."""
    for position in reversed(range(len(text))):
        code = ord(text[position]) + 1
        if code == _SURROGATES[0]:  # surrogates are not characters in UTF-8
            code = _SURROGATES[1]
        if code <= _LAST_CHARACTER:
            return text[:position] + chr(code)
    return None


def _has_moved_days(column: pa.ChunkedArray) -> bool:
    first, end = _MOVED_DAYS
    if not pa.types.is_date(column.type):
        first, end = first * _DAY_US, end * _DAY_US
    bounds = pc.min_max(column)
    low, high = bounds["min"].value, bounds["max"].value
    if low is None or low >= end or high < first:
        return False
    moved = (pa.scalar(day, pa.int32() if pa.types.is_date(column.type) else pa.int64()) for day in (first, end))
    first, end = (day.cast(column.type) for day in moved)
    return bool(pc.any(pc.and_(pc.greater_equal(column, first), pc.less(column, end))).as_py())


def column_of(rows: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Return a column, or a nested struct field, which is null if the struct is null."""
    column = rows[path[0]]
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def column_statistics(
    metadata: Any,
    position: int,
    kind: pa.DataType,
    n_nulls: int | None,
    n_nans: int | None,
    long_texts: Sequence[tuple[str, str] | None],
) -> ColumnStatistics:
    """Return the statistics of one leaf from the file's footer.

    Args:
        metadata: pyarrow's metadata of the file.
        kind: the leaf's pyarrow type.
        n_nulls: the number of nulls, if the footer does not have it.
        n_nans: the number of NaN, for a floating-point leaf.
        long_texts: the bounds of row groups whose texts are too long for the footer.
    """
    chunks = [metadata.row_group(number).column(position) for number in range(metadata.num_row_groups)]
    statistics = [chunk.statistics for chunk in chunks]
    if n_nulls is None and all(known is not None and known.has_null_count for known in statistics):
        n_nulls = sum(known.null_count for known in statistics)
    low, high = (None, None) if n_nans else _bounds(statistics, kind, long_texts)
    return ColumnStatistics(
        n_values=sum(chunk.num_values for chunk in chunks),
        n_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        n_nulls=n_nulls,
        n_nans=n_nans,
        low=low,
        high=high,
    )


def _bounds(
    statistics: Sequence[Any], kind: pa.DataType, long_texts: Sequence[tuple[str, str] | None]
) -> tuple[Any, Any]:
    """Return the lowest and the highest value; None if a row group with values lacks bounds, or if a text is not valid UTF-8."""
    if None in long_texts:
        return None, None
    low: list[Any] = [bounds[0] for bounds in long_texts if bounds is not None]
    high: list[Any] = [bounds[1] for bounds in long_texts if bounds is not None]
    n_without = 0
    for known in statistics:
        if known is None:
            return None, None
        if known.has_min_max:
            low.append(_value(known.min_raw, kind))
            high.append(_value(known.max_raw, kind))
        elif known.num_values or not known.has_null_count:
            n_without += 1
    if n_without > len(long_texts):
        return None, None
    if not low or None in (*low, *high):
        return None, None
    lowest, highest = min(low), max(high)
    if pa.types.is_floating(kind):  # Iceberg orders -0.0 before 0.0
        lowest, highest = (-0.0 if lowest == 0 else lowest), (0.0 if highest == 0 else highest)
    return lowest, highest


def _value(raw: Any, kind: pa.DataType) -> Any:
    """Return a value in the footer; None for a text that is not valid UTF-8."""
    if pa.types.is_string(kind):
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return None
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        # Decimal.scaleb would round to the precision of Python's context.
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
    return raw


def date_text(days: int) -> str | None:
    """Return a date, given in days since the epoch, in ISO 8601; None outside the years 1 to 9999."""
    try:
        return date.fromordinal(days + _EPOCH.toordinal()).isoformat()
    except (ValueError, OverflowError):
        return None


def any_date_text(days: int) -> str:
    """Return a date, given in days since the epoch, in Spark's format: a year with more than four digits has a sign."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    sign = "-" if year.startswith("-") else "+" if len(year) > _DIGITS_OF_YEAR else ""
    return f"{sign}{year.lstrip('-'):0>{_DIGITS_OF_YEAR}}-{month}-{day}"


def moment_text(micros: int) -> str | None:
    """Return a timestamp, given in µs since the epoch, in ISO 8601 without a zone; None outside the years 1 to 9999."""
    days, in_day = divmod(micros, _DAY_US)
    seconds, fraction = divmod(in_day, 1_000_000)
    day = date_text(days)
    return (
        None if day is None else f"{day}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    )
