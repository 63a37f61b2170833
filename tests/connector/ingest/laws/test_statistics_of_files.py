"""Law: what a footer, Delta's log and Iceberg's manifests say of a file never hides one of its rows."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from pyiceberg.conversions import from_bytes

from pykafka_wire.ingest.files import parquet as parquet_files
from pykafka_wire.ingest.files.parquet import FileLayout, FileWriter, WrittenFile
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.statistics import statistics
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from tests.connector.ingest.laws.generated import examples
from tests.connector.ingest.laws.rows_of_all_types import (
    COLUMNS,
    PATHS,
    ROW_GROUPS,
    SCHEMA,
    batch_of,
    days,
    order,
    type_of,
    value_of,
)

pytestmark = pytest.mark.unit

_EPOCH = datetime(1970, 1, 1)
#: Spark compares dates and timestamps from these days on with a moment that is up to ten days later.
_GAP = range(days(1582, 10, 4), days(1582, 10, 26))


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> IcebergTable:
    folder = tmp_path_factory.mktemp("lake")
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    settings = Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.laws", table_format="iceberg", catalog=catalog,
    )  # fmt: skip
    table = IcebergTable(None, settings, "all_types")  # type: ignore[arg-type]  # Spark's part is not used
    table._catalog.create_namespace("laws")
    table.create_of(
        SCHEMA,
        Table(topic="t"),
        "q",
        None,
    )
    return table


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_BUFFERED_BYTES", 1)


def written(
    folder: str, groups: list[list[dict[str, Any]]], schema: Any = SCHEMA
) -> list[tuple[WrittenFile, list[dict[str, Any]]]]:
    """The files of rows, and the rows of each; each group is a row group."""
    batches = [batch_of(rows, schema) for rows in groups]
    files = list(FileWriter(pyarrow.fs.LocalFileSystem(), folder, FileLayout(schema=schema)).write(batches))
    by_id = {row["id"]: row for rows in groups for row in rows}
    return [
        (file, [by_id[number] for number in pq.read_table(f"{folder}/{file.path}", columns=["id"])["id"].to_pylist()])
        for file in files
    ]


def numbered(groups: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    numbers = iter(range(10**9))
    return [[{"id": next(numbers), **row} for row in rows] for rows in groups]


def check_bound(values: list[Any], low: Any, high: Any, where: Any) -> None:
    """No value is outside the bounds, of which None is unknown."""
    for value in values:
        if value is not None and low is not None:
            assert order(low) <= order(value), (where, low, value)
        if value is not None and high is not None:
            assert order(value) <= order(high), (where, value, high)


@examples(150)
@given(groups=ROW_GROUPS)
def test_bounds_and_counts_of_a_file_are_true(groups: list[list[dict[str, Any]]], iceberg: IcebergTable) -> None:
    groups = numbered(groups)
    with tempfile.TemporaryDirectory() as folder:
        schema = pa.schema(list(iceberg.arrow_schema))
        for file, rows in written(folder, groups, schema):
            assert file.n_rows == len(rows)
            check_footer(f"{folder}/{file.path}", rows)
            check_log(json.loads(statistics(file, SCHEMA, -1), parse_float=Decimal), rows)
            (data_file,) = iceberg._data_files([file], FileLayout(schema=pa.schema(list(iceberg.arrow_schema))))
            check_manifest(iceberg, data_file, rows)


def stored(value: Any, kind: Any) -> Any:
    """A value as its column has it."""
    return pa.scalar(value, kind).as_py() if pa.types.is_floating(kind) and value is not None else value


def values_of(rows: list[dict[str, Any]], path: tuple[str, ...]) -> list[Any]:
    return [stored(value_of(row, path), type_of(path)) for row in rows]


def check_footer(path: str, rows: list[dict[str, Any]]) -> None:
    metadata = pq.ParquetFile(path).metadata
    assert sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)) == len(rows)
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        of_group = rows[first : first + group.num_rows]
        first += group.num_rows
        columns = [group.column(position) for position in range(metadata.num_columns)]
        # Elements of lists and maps come last, and have no order among rows.
        for column, column_path in zip(columns, PATHS, strict=False):
            assert column.path_in_schema == ".".join(column_path)
            kind, values = type_of(column_path), values_of(of_group, column_path)
            is_gap = pa.types.is_temporal(kind) and any(_is_gap(value, kind) for value in values if value is not None)
            if is_gap:  # Spark looks into the dictionary, too
                assert not column.is_stats_set
                assert not column.has_dictionary_page
            statistics = column.statistics
            if statistics is None:
                continue
            assert statistics.null_count == sum(value is None for value in values)
            if statistics.has_min_max:
                assert not any(isinstance(value, float) and math.isnan(value) for value in values)
                check_bound(values, _of_raw(statistics.min_raw, kind), _of_raw(statistics.max_raw, kind), column_path)


def _is_gap(value: int, kind: Any) -> bool:
    return (value if pa.types.is_date(kind) else value // 86_400_000_000) in _GAP


def _of_raw(raw: Any, kind: Any) -> Any:
    if pa.types.is_decimal(kind):
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
    return raw.decode() if pa.types.is_string(kind) else raw


def check_log(stats: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    assert stats["numRecords"] == len(rows)
    for path in PATHS:
        kind, values = type_of(path), values_of(rows, path)
        low, high, nulls = (_within(stats.get(name, {}), path) for name in ("minValues", "maxValues", "nullCount"))
        assert nulls == sum(value is None for value in values)
        if any(isinstance(value, float) and math.isnan(value) for value in values):
            assert low is high is None
        low, high = (None if bound is None else _of_log(bound, kind) for bound in (low, high))
        check_bound(values, low, high, path)
    for name in ("list", "map"):
        assert stats["nullCount"][name] == sum(row[name] is None for row in rows)


def _within(values: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = values
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _of_log(bound: Any, kind: Any) -> Any:
    if bound in ("Infinity", "-Infinity"):
        return float(bound)
    if pa.types.is_date(kind):
        return (date.fromisoformat(bound) - date(1970, 1, 1)).days
    if pa.types.is_timestamp(kind):
        assert bound.endswith("Z") == (kind.tz is not None)
        return (datetime.fromisoformat(bound.removesuffix("Z")) - _EPOCH) // timedelta(microseconds=1)
    return float(bound) if pa.types.is_floating(kind) else bound


def check_manifest(iceberg: IcebergTable, data_file: Any, rows: list[dict[str, Any]]) -> None:
    assert data_file.record_count == len(rows)
    schema = iceberg._table.schema()
    for path in PATHS:
        field = next(field for field in schema.fields if field.name == path[0])
        for name in path[1:]:
            field = next(inner for inner in field.field_type.fields if inner.name == name)
        values, number = values_of(rows, path), field.field_id
        n_nans = sum(isinstance(value, float) and math.isnan(value) for value in values)
        assert data_file.value_counts[number] == len(rows)
        assert data_file.null_value_counts[number] == sum(value is None for value in values)
        if pa.types.is_floating(type_of(path)) and n_nans < len(rows):
            assert data_file.nan_value_counts[number] == n_nans
        else:  # of a file of NaN alone, readers that take NaN for the largest number would leave out the rows
            assert number not in data_file.nan_value_counts
        low, high = (
            None if number not in bounds else from_bytes(field.field_type, bounds[number])
            for bounds in (data_file.lower_bounds, data_file.upper_bounds)
        )
        if n_nans:
            assert low is high is None
        check_bound(values, low, high, path)
        if low is not None and low == 0 and isinstance(low, float):
            assert math.copysign(1, low) == -1 or not any(
                value == 0 and math.copysign(1, value) < 0 for value in values
            )


def _groups_of(name: str, *groups: list[Any]) -> list[list[dict[str, Any]]]:
    nothing = dict.fromkeys(SCHEMA.names)
    numbers = iter(range(100))
    return [[{**nothing, "id": next(numbers), name: value} for value in values] for values in groups]


def _files(folder: Path, groups: list[list[dict[str, Any]]]) -> Iterator[Any]:
    for file, _ in written(str(folder), groups):
        yield pq.ParquetFile(folder / file.path).metadata


def test_a_column_with_nan_has_no_bounds_in_the_footer_and_others_have(tmp_path: Path) -> None:
    groups = _groups_of("double", [1.0, 2.0], [3.0, math.nan], [5.0])
    position = [".".join(path) for path in PATHS].index("double")
    files = list(_files(tmp_path, groups))
    bounds = [
        [(column.statistics.min, column.statistics.max) if column.statistics else None
         for column in (metadata.row_group(n).column(position) for n in range(metadata.num_row_groups))]
        for metadata in files
    ]  # fmt: skip
    assert bounds == [[(1.0, 2.0)], [None, None]]


def test_a_text_that_the_footer_leaves_out_is_within_the_bounds_of_the_manifest(
    tmp_path: Path, iceberg: IcebergTable
) -> None:
    groups = _groups_of("text", ["a", "b"], ["y" * 5000])
    ((file, _),) = written(str(tmp_path), groups, pa.schema(list(iceberg.arrow_schema)))
    (data_file,) = iceberg._data_files([file], FileLayout(schema=pa.schema(list(iceberg.arrow_schema))))
    number = iceberg._table.schema().find_field("text").field_id
    assert data_file.lower_bounds[number] == b"a"
    assert data_file.upper_bounds[number] == b"y" * 15 + b"z"
    assert data_file.null_value_counts[number] == 0


@pytest.mark.parametrize("name", ["day", "at", "local"])
def test_a_date_that_python_does_not_have_costs_a_bound_and_no_file(
    name: str, tmp_path: Path, iceberg: IcebergTable
) -> None:
    for number, value in enumerate(COLUMNS[name][1]):
        folder = tmp_path / str(number)
        ((file, rows),) = written(str(folder), _groups_of(name, [value]), pa.schema(list(iceberg.arrow_schema)))
        (data_file,) = iceberg._data_files([file], FileLayout(schema=pa.schema(list(iceberg.arrow_schema))))
        check_manifest(iceberg, data_file, rows)
        check_log(json.loads(statistics(file, SCHEMA, -1), parse_float=Decimal), rows)
