"""Parquet files of a task, and their statistics, judged by DuckDB and by rows themselves."""

from __future__ import annotations

import hashlib
import json
import resource
import signal
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.fs
import pytest

from pykafka_wire.ingest.files import parquet as parquet_files
from pykafka_wire.ingest.files.parquet import FileLayout, FileWriter, UnwritableError, WrittenFile, folder_name
from pykafka_wire.ingest.files.types import conform, file_type, fits
from pykafka_wire.ingest.tables.delta.statistics import statistics

pytestmark = pytest.mark.unit


def write(folder: Path, layout: FileLayout, batches: Sequence[Any]) -> list[WrittenFile]:
    return list(FileWriter(pyarrow.fs.LocalFileSystem(), str(folder), layout).write(iter(batches)))


def stats_of(folder: Path, table: Any, n_indexed: int = 32) -> dict[str, Any]:
    (file,) = write(folder, FileLayout(schema=table.schema), table.to_batches())
    found: dict[str, Any] = json.loads(statistics(file, table.schema, n_indexed), parse_float=Decimal)
    return found


def test_a_file_ends_at_the_target_size_and_no_row_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_BUFFERED_BYTES", 80_000)
    batches = [pa.record_batch({"n": pa.array([(first * 7919 + n) ** 3 for n in range(1000)])}) for first in range(50)]
    layout = FileLayout(schema=batches[0].schema, target_bytes=100_000)
    files = write(tmp_path, layout, batches)
    assert len(files) > 1
    assert all(100_000 <= each.n_bytes < 300_000 for each in files[:-1])
    assert [each.n_bytes for each in files] == [(tmp_path / each.path).stat().st_size for each in files]
    read = duckdb.sql(f"SELECT n FROM read_parquet('{tmp_path}/*.parquet')").fetchall()
    assert sorted(n for (n,) in read) == sorted(n for batch in batches for n in batch["n"].to_pylist())
    assert sum(each.n_rows for each in files) == 50_000


def test_each_value_of_partitions_has_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_BUFFERED_BYTES", 1000)
    monkeypatch.setattr(parquet_files, "_OPEN_FILES", 3)
    days = [date(2026, 1, 1), None, date(2026, 1, 2)]
    rows = [{"kind": f"k {n % 7}/å", "day": days[n % 3], "n": n} for n in range(2100)]
    schema = pa.schema([("kind", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
    batches = pa.Table.from_pylist(rows, schema=schema).to_batches(max_chunksize=100)
    files = write(tmp_path, FileLayout(schema=schema, partition_by=("kind", "day")), batches)
    held = [
        (each.partition[0], each.partition[1] and date(1970, 1, 1) + timedelta(each.partition[1]), n)
        for each in files
        for (n,) in duckdb.sql(
            f"SELECT n FROM read_parquet('{tmp_path}/{each.path}', hive_partitioning=false)"
        ).fetchall()
    ]
    assert sorted(held, key=lambda row: row[2]) == [(row["kind"], row["day"], row["n"]) for row in rows]
    assert {each.path.rpartition("/")[0] for each in files if each.partition == ("k 0/å", None)} == {
        "kind=k 0%2Få/day=__HIVE_DEFAULT_PARTITION__"
    }


def test_rows_of_very_many_partitions_take_no_more_memory_than_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch has one row of each partition: what pyarrow keeps for a row is far more than its values."""
    n = 2000
    given = 4 * 1024 * 1024
    monkeypatch.setattr(parquet_files, "_BUFFERED_BYTES", given)
    schema = pa.schema([("key", pa.int32()), *((f"text{number}", pa.string()) for number in range(15))])
    columns = [pa.array(range(n), pa.int32()), *(pa.array(["x"] * n) for _ in schema.names[1:])]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    taken: list[int] = []

    def batches() -> Iterator[Any]:
        at_first = pa.total_allocated_bytes()
        for _ in range(3):
            yield batch
            taken.append(pa.total_allocated_bytes() - at_first)

    layout = FileLayout(schema=schema, partition_by=("key",))
    files = list(FileWriter(pyarrow.fs.LocalFileSystem(), str(tmp_path), layout).write(batches()))
    assert sum(each.n_rows for each in files) == 3 * n
    assert sum(taken) < 3 * given


def test_values_have_spark_s_texts_in_folders_of_partitions() -> None:
    values = [
        (True, pa.bool_()), ("a/b c", pa.string()), (Decimal("1E-7"), pa.decimal128(9, 7)),
        ((date(2026, 1, 2) - date(1970, 1, 1)).days, pa.date32()), (2932897, pa.date32()),
        (-719529, pa.date32()), (-800000, pa.date32()), (None, pa.string()),
        ("x" * 300, pa.string()), ("a\x00", pa.string()), ("..", pa.string()),
    ]  # fmt: skip
    assert [folder_name("kind", *value) for value in values] == [
        "kind=true/", "kind=a%2Fb c/", "kind=0.0000001/", "kind=2026-01-02/",
        "kind=+10000-01-01/", "kind=-0001-12-31/",
        "kind=-0221-09-04/", "kind=__HIVE_DEFAULT_PARTITION__/",
        f"kind={'x' * 50}-{hashlib.sha256(b'x' * 300).hexdigest()[:32]}/", "kind=a%00/", "kind=../",
    ]  # fmt: skip


def test_a_writer_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file was complete and others were open: the rows end, or the disk is full."""
    monkeypatch.setattr(parquet_files, "_BUFFERED_BYTES", 50_000)
    schema = pa.schema([("kind", pa.int32()), ("n", pa.int64())])
    batch = pa.record_batch([pa.array([0, 1] * 10_000, pa.int32()), pa.array(range(20_000))], schema=schema)
    layout = FileLayout(schema=schema, partition_by=("kind",), target_bytes=1000)

    def ending() -> Iterator[Any]:
        yield batch
        assert list(tmp_path.rglob("*.parquet"))
        raise ValueError("the records are lost")

    with pytest.raises(ValueError, match="lost"):
        list(FileWriter(pyarrow.fs.LocalFileSystem(), str(tmp_path), layout).write(ending()))
    assert not list(tmp_path.rglob("*.parquet"))

    full = tmp_path / "full"
    writer = FileWriter(pyarrow.fs.LocalFileSystem(), str(full), layout).write(iter([batch] * 3))
    next(writer)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal_before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(UnwritableError):
            list(writer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, signal_before)
    assert not list(full.rglob("*.parquet"))


def test_statistics_are_bounds_of_the_rows_and_left_out_where_they_are_not_sure(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=timezone.utc)
    table = pa.table(
        {
            "n": pa.array([3, None, -1], pa.int32()),
            "price": pa.array([Decimal("0.10"), Decimal("12345678901234567890.25"), None], pa.decimal128(38, 2)),
            "text": ["å" * 40, "a" * 32, "b"],
            "day": pa.array([date(1, 1, 1), None, date(9999, 12, 31)], pa.date32()),
            "at": pa.array([at, None, at], pa.timestamp("us", "UTC")),
            "local": pa.array([at.replace(tzinfo=None)] * 3, pa.timestamp("us")),
            "ratio": [1.5, -0.5, None],
            "infinite": [float("-inf"), 0.0, 2.0],
            "nulls": pa.array([None] * 3, pa.int64()),
            "flag": [True, None, False],
            "raw": [b"a", None, b"b"],
            "tags": pa.array([[1, None], None, []], pa.list_(pa.int32())),
            "place": pa.array(
                [{"city": "B", "marks": [1], "ratio": float("nan")}, None, {"city": None, "marks": [], "ratio": 1.0}],
                pa.struct([("city", pa.string()), ("marks", pa.list_(pa.int8())), ("ratio", pa.float32())]),
            ),
        }
    )
    found = stats_of(tmp_path, table)
    assert found == {
        "numRecords": 3,
        "minValues": {
            "n": -1, "price": Decimal("0.10"), "text": "a" * 32, "day": "0001-01-01", "at": "2026-01-01T00:00:00.123456Z",
            "local": "2026-01-01T00:00:00.123456",
            "ratio": Decimal("-0.5"), "infinite": "-Infinity", "flag": False, "place": {"city": "B"},
        },
        "maxValues": {
            "n": 3, "price": Decimal("12345678901234567890.25"), "text": "å" * 32 + "\U0010ffff", "day": "9999-12-31",
            "at": "2026-01-01T00:00:00.123456Z", "local": "2026-01-01T00:00:00.123456",
            "ratio": Decimal("1.5"), "infinite": 2, "flag": True,
            "place": {"city": "B"},
        },
        "nullCount": {
            "n": 1, "price": 1, "text": 0, "day": 1, "at": 1, "local": 0, "ratio": 1, "infinite": 0, "nulls": 3, "flag": 1,
            "raw": 1, "tags": 1, "place": {"city": 2, "ratio": 1},
        },
    }  # fmt: skip


def test_a_maximum_that_cannot_be_cut_is_whole(tmp_path: Path) -> None:
    last = "\U0010ffff"
    found = stats_of(tmp_path, pa.table({"over": ["a" * 32 + last + "b"], "equal": ["a" * 32 + last]}))
    assert found["minValues"] == {"over": "a" * 32, "equal": "a" * 32}
    assert found["maxValues"] == {"over": "a" * 32 + last + "b", "equal": "a" * 32 + last}


def test_statistics_are_of_the_first_columns_and_survive_what_python_cannot_say(tmp_path: Path) -> None:
    far = pa.array([-(2**62), 2**62], pa.int64()).view(pa.timestamp("us"))
    table = pa.table({"long": ["x" * 100_000, "y"], "second": [1, 2], "far": far})
    assert stats_of(tmp_path / "first", table, 2) == {
        "numRecords": 2, "minValues": {"long": "x" * 32, "second": 1}, "maxValues": {"long": "y", "second": 2},
        "nullCount": {"long": 0, "second": 0},
    }  # fmt: skip
    assert stats_of(tmp_path / "all", table) == {"numRecords": 2, "nullCount": {"long": 0, "second": 0, "far": 0}}


ROWS = pa.struct(
    [
        ("ID", pa.int32()),
        ("list", pa.list_(pa.struct([("x", pa.int32())]))),
        ("map", pa.map_(pa.string(), pa.float32())),
        ("price", pa.decimal128(9, 2)),
    ]
)
TABLE = pa.struct(
    [
        ("price", pa.decimal128(20, 4)),
        ("other", pa.string()),
        ("id", pa.int64()),
        ("list", pa.list_(pa.field("element", pa.struct([("y", pa.string()), ("X", pa.int64())])))),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)


def test_rows_get_the_names_and_the_wider_types_of_their_table_in_every_slice() -> None:
    assert fits(ROWS, TABLE)
    assert not fits(TABLE, ROWS)
    rows = [
        {"ID": 1, "list": [{"x": 1}, None], "map": [("a", 0.5)], "price": Decimal("1.25")},
        None,
        {"ID": None, "list": None, "map": None, "price": None},
        {"ID": 4, "list": [{"x": 5}], "map": [("b", 2.0), ("c", None)], "price": Decimal("-0.01")},
    ]
    expected = [
        None if row is None else {"id": row["ID"], **{name: row[name] for name in ("list", "map", "price")}}
        for row in rows
    ]
    for row in filter(None, expected):
        row["list"] = row["list"] and [each and {"X": each["x"]} for each in row["list"]]
    array, wanted = pa.array(rows, ROWS), file_type(ROWS, TABLE)
    for start in range(4):
        made = conform(array[start:], wanted)
        made.validate(full=True)
        assert made.type == wanted
        assert made.to_pylist() == expected[start:]


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float32()),
        (pa.int32(), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 4)),
        (pa.string(), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.struct([("new", pa.int32())]), pa.struct([("old", pa.int32())])),
    ],
)
def test_rows_do_not_fit_a_table_that_would_change_their_values(rows: Any, table: Any) -> None:
    assert not fits(rows, table)


@pytest.mark.parametrize("n_columns", [1, 2, 5, 9])
def test_rows_of_many_combinations_of_values_stay_apart(n_columns: int) -> None:
    """Of 4,096 values in each column: the product of the numbers of values exceeds any whole number of 64 bits."""
    names, n = [f"p{number}" for number in range(n_columns)], 4096
    columns = {
        name: [row if row < n else (row - n) * (number == 0) for row in range(n + 8)]
        for number, name in enumerate(names)
    }
    batch = pa.RecordBatch.from_pydict(columns)
    parts = list(parquet_files._by_values(batch, names))
    assert sum(rows.num_rows for _, rows in parts) == batch.num_rows
    for values, rows in parts:
        assert set(zip(*(rows[name].to_pylist() for name in names), strict=True)) == {values}
    assert len({values for values, _ in parts}) == len(parts)
