"""The statistics of a file as Delta's log has them: JSON with the number of rows, minima, maxima and counts of nulls.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics. A column is left out where its minimum and
maximum are not known for sure: readers then read the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.ingest.parquet_files import WrittenFile, leaves

#: Delta's ``delta.dataSkippingNumIndexedCols``: so many columns, fields of structs counted, have statistics.
INDEXED_COLUMNS: Final = 32
#: Delta's length of a text in statistics, in characters.
_TEXT_LENGTH: Final = 32
#: Behind a text that was cut, so that it is not below the text.
_LAST_CHARACTER: Final = "\U0010ffff"


def statistics(file: WrittenFile, schema: pa.Schema, n_indexed: int = INDEXED_COLUMNS) -> str:
    """Return the ``stats`` of a file's action.

    Args:
        schema: pyarrow's, of the file.
        n_indexed: how many columns, in order, have statistics; -1 is all.
    """
    stats: dict[str, Any] = {"numRecords": file.n_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    chunks = _chunks(file.metadata)
    for number, (path, kind) in enumerate(leaves(schema)):
        if number == n_indexed:
            break
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            if path[0] in file.null_counts:
                _set(stats["nullCount"], path, file.null_counts[path[0]])
            continue
        of_column = chunks.get(".".join(path), [])
        if not of_column or any(chunk is None or not chunk.has_null_count for chunk in of_column):
            continue
        n_nulls = sum(chunk.null_count for chunk in of_column)
        _set(stats["nullCount"], path, n_nulls)
        if n_nulls == file.n_rows or ".".join(path) in file.nan_columns or not _has_order(kind):
            continue
        bounds = _bounds(of_column)
        if bounds is not None:
            _set(stats["minValues"], path, _text(bounds[0], kind, is_maximum=False))
            _set(stats["maxValues"], path, _text(bounds[1], kind, is_maximum=True))
    return _json(stats)


def _chunks(metadata: Any) -> dict[str, list[Any]]:
    """Return the statistics of each column's row groups by its path, in which a dot of a name looks like one between names."""
    chunks_by_path: dict[str, list[Any]] = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(metadata.num_columns):
            column = row_group.column(number)
            chunks_by_path.setdefault(column.path_in_schema, []).append(column.statistics)
    n = metadata.num_row_groups
    return {path: chunks for path, chunks in chunks_by_path.items() if len(chunks) == n}


def _has_order(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_null(kind))


def _bounds(of_column: Iterable[Any]) -> tuple[Any, Any] | None:
    low, high = [], []
    for chunk in of_column:
        if chunk.num_values == 0:  # nulls alone
            continue
        if not chunk.has_min_max:
            return None
        try:
            low.append(chunk.min)
            high.append(chunk.max)
        except (OverflowError, ValueError, pa.ArrowException):  # a year that Python does not know, or no UTF-8
            return None
    return (min(low), max(high)) if low else None


def _text(value: Any, kind: pa.DataType, *, is_maximum: bool) -> Any:
    if isinstance(value, str) and len(value) > _TEXT_LENGTH:
        bound = value[:_TEXT_LENGTH] + (_LAST_CHARACTER if is_maximum else "")
        return bound if bound >= value or not is_maximum else None
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + ("Z" if pa.types.is_timestamp(kind) and kind.tz else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and math.isinf(value):
        return None
    return value


def _set(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _json(value: Any) -> str:
    """Return JSON as :func:`json.dumps` does, and decimals with all of their digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(item)}" for name, item in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value)
