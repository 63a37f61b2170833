"""The statistics of a file in Iceberg's manifests: counts, and bounds as bytes, by field id.

See https://iceberg.apache.org/spec/#data-file-fields. A bound that is unknown, or that the column's type cannot represent, is
omitted; readers then read the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pykafka_wire.ingest.files.parquet import WrittenFile
from pykafka_wire.ingest.files.statistics import date_text, moment_text, next_text, parquet_leaves


def statistics(file: WrittenFile, schema: pa.Schema, plan: Mapping[int, Any]) -> dict[str, Any]:
    """Return the arguments of pyiceberg's DataFile that describe the contents of a file.

    Args:
        schema: the file's pyarrow schema, with Iceberg's field ids.
        plan: pyiceberg's plan of the metrics that the table keeps, by field id.
    """
    from pyiceberg.conversions import to_bytes
    from pyiceberg.io.pyarrow import MetricModeTypes

    sizes: dict[int, int] = {}
    counts: dict[str, dict[int, int]] = {"value_counts": {}, "null_value_counts": {}, "nan_value_counts": {}}
    bounds: dict[str, dict[int, bytes]] = {"lower_bounds": {}, "upper_bounds": {}}
    for leaf, column in zip(parquet_leaves(schema), file.columns, strict=True):
        number = leaf.field_id
        if number is None or number not in plan:
            continue
        sizes[number] = column.n_bytes
        mode = plan[number].mode
        if mode.type == MetricModeTypes.NONE:
            continue
        counts["value_counts"][number] = column.n_values
        if column.n_nulls is not None:
            counts["null_value_counts"][number] = column.n_nulls
        # Iceberg treats a file with only NaN as a file without numbers, but for Spark NaN is the largest number: omit that count.
        if column.n_nans is not None and column.n_nans < column.n_values:
            counts["nan_value_counts"][number] = column.n_nans
        if mode.type == MetricModeTypes.COUNTS or column.low is None:
            continue
        for name, bound in (("lower_bounds", column.low), ("upper_bounds", column.high)):
            value = _cut(bound, mode.length, is_upper=name == "upper_bounds")
            if value is not None:
                bounds[name][number] = to_bytes(plan[number].iceberg_type, value)
    return {
        "record_count": file.n_rows,
        "column_sizes": sizes,
        **counts,
        **bounds,
        "split_offsets": sorted(file.split_offsets),
    }


class _FarTime(int):
    """A date or a timestamp outside the years 1 to 9999."""


def partition_value(value: Any, kind: pa.DataType) -> Any:
    """Return a partition value of the pyarrow type ``kind`` in a form that pyiceberg can commit.

    pyiceberg formats each changed partition as text, and Python cannot format dates outside its range: these are formatted as
    numbers.
    """
    is_near = (
        not pa.types.is_temporal(kind) or value is None or (date_text if pa.types.is_date(kind) else moment_text)(value)
    )
    if is_near:
        return value
    from pyiceberg import transforms

    transforms._human_string.register(_FarTime, lambda far, _: str(int(far)))
    return _FarTime(value)


def _cut(value: Any, length: int | None, *, is_upper: bool) -> Any:
    """Return a text or bytes of limited length as a bound; None if there is no such bound."""
    if length is None or not isinstance(value, (str, bytes)) or len(value) <= length:
        return value
    cut = value[:length]
    if not is_upper:
        return cut
    return next_text(cut) if isinstance(cut, str) else _next_bytes(cut)


def _next_bytes(value: bytes) -> bytes | None:
    """Return the smallest bytes above all values that start with ``value``; None if there are none."""
    begin = value.rstrip(b"\xff")
    return begin[:-1] + bytes([begin[-1] + 1]) if begin else None
