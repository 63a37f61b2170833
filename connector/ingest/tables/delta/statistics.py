"""The statistics of a file in Delta's log: JSON with the number of rows, minima, maxima and null counts.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics. If one column with values has an unknown bound,
or a bound that JSON cannot represent, the file gets no bounds at all, and readers read the file. Delta would accept the bounds of
the other columns. But datasets of the library deltalake find no row by a column without bounds if other columns have bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.ingest.files.parquet import WrittenFile
from pykafka_wire.ingest.files.statistics import date_text, moment_text, parquet_leaves

#: Delta's default of ``delta.dataSkippingNumIndexedCols``: the number of columns with statistics, counting fields of structs.
INDEXED_COLUMNS: Final = 32
#: The longest text in Delta's statistics, in characters.
_TEXT_LENGTH: Final = 32
#: Appended to a cut maximum, so that it is not below the whole text.
_LAST_CHARACTER: Final = "\U0010ffff"


def statistics(file: WrittenFile, schema: pa.Schema, n_indexed: int = INDEXED_COLUMNS) -> str:
    """Return the ``stats`` of a file's ``add`` action.

    Args:
        schema: the file's pyarrow schema.
        n_indexed: the number of columns with statistics, in order; -1 for all.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    is_known = True
    columns = {
        leaf.path: column
        for leaf, column in zip(parquet_leaves(schema), file.columns, strict=True)
        if not leaf.is_repeated
    }
    for number, (path, kind) in enumerate(_columns(schema)):
        if number == n_indexed:
            break
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            if path[0] in file.null_counts:
                _set(counts, path, file.null_counts[path[0]])
            continue
        column = columns[path]
        if column.n_nulls is not None:
            _set(counts, path, column.n_nulls)
        if not _has_order(kind) or column.n_nulls == file.n_rows:
            continue
        for values, bound in ((low, column.low), (high, column.high)):
            value = None if bound is None else _json_value(bound, kind, is_maximum=values is high)
            _set(values, path, value)
            is_known &= value is not None or len(path) > 1
    bounds = {"minValues": low, "maxValues": high} if is_known else {}
    return _json({"numRecords": file.n_rows, **bounds, "nullCount": counts})


def _columns(
    schema: pa.Schema | pa.StructType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the paths and types of columns and struct fields, in order; a list or a map counts as one."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from _columns(field.type, (*path, field.name))
        else:
            yield (*path, field.name), field.type


def _has_order(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_null(kind))


def _json_value(bound: Any, kind: pa.DataType, *, is_maximum: bool) -> Any:
    """Return a bound in the form of Delta's log; None if the log cannot represent it."""
    if pa.types.is_date(kind):
        return date_text(bound)
    if pa.types.is_timestamp(kind):
        text = moment_text(bound)
        return text if text is None or not kind.tz else f"{text}Z"
    if isinstance(bound, str) and len(bound) > _TEXT_LENGTH:
        cut = bound[:_TEXT_LENGTH] + (_LAST_CHARACTER if is_maximum else "")
        return cut if cut >= bound or not is_maximum else bound
    if isinstance(bound, float) and math.isinf(bound):
        return "Infinity" if bound > 0 else "-Infinity"  # the form that Spark writes
    return bound


def _set(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _json(value: Any) -> str:
    """Return JSON like :func:`json.dumps`, but decimals with all digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(item)}" for name, item in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
