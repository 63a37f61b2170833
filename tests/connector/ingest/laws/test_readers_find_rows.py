"""Law: every reader finds a row by its own values, in the tables of both formats.

Rows of all types are landed in many files and row groups. Then each reader gets predicates made of the rows' own values, and has to
return the rows that plain Python finds.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet
import pyiceberg.expressions as ice
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest.files import parquet as parquet_files
from pykafka_wire.ingest.files.parquet import FileWriter
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.files.types import file_type
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import Landed
from tests.connector.ingest.laws.generated import FACTOR
from tests.connector.ingest.laws.rows_of_all_types import (
    COLUMNS,
    FIELDS,
    PATHS,
    SCHEMA,
    batch_of,
    order,
    type_of,
    value_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

#: So many predicates are tried with each reader.
_N_PREDICATES: Final = 40 * max(1, FACTOR)
#: Spark plans each, which takes longest.
_N_PREDICATES_OF_SPARK: Final = _N_PREDICATES if FACTOR else 20
_N_FILES: Final = 25
_TABLE: Final = Table(topic="t")


class Predicate(NamedTuple):
    """A comparison of a column with values."""

    path: tuple[str, ...]
    #: One of :data:`OPERATORS`.
    name: str
    values: tuple[Any, ...] = ()

    @property
    def kind(self) -> Any:
        return type_of(self.path)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    return lambda value, other: value is not None and compare(order(value), order(other))


#: What a predicate says of a value, where NaN is the largest number and equal to itself.
OPERATORS: Final[dict[str, Callable[..., bool]]] = {
    "=": _ordered(operator.eq),
    "<=>": _ordered(operator.eq),
    "<": _ordered(operator.lt),
    ">": _ordered(operator.gt),
    "<=": _ordered(operator.le),
    ">=": _ordered(operator.ge),
    "between": lambda value, low, high: value is not None and order(low) <= order(value) <= order(high),
    "like": lambda value, prefix: value is not None and value.startswith(prefix),
    "is null": lambda value: value is None,
    "is not null": lambda value: value is not None,
    "isnan": lambda value: value is not None and math.isnan(value),
}


def expected(predicate: Predicate, rows: Iterable[dict[str, Any]], *, by_ieee: bool = False) -> list[int]:
    """Ids of the rows that plain Python finds; by IEEE 754, NaN is not equal to, below or above anything."""
    if by_ieee and any(isinstance(value, float) and math.isnan(value) for value in predicate.values):
        return []
    found = []
    for row in rows:
        value = stored(value_of(row, predicate.path), predicate.kind)
        is_nan = isinstance(value, float) and math.isnan(value)
        if not (by_ieee and is_nan and predicate.values) and OPERATORS[predicate.name](value, *predicate.values):
            found.append(row["id"])
    return sorted(found)


def stored(value: Any, kind: Any) -> Any:
    """A value as its column has it: a FLOAT has fewer digits."""
    return pa.scalar(value, kind).as_py() if pa.types.is_floating(kind) and value is not None else value


def generated(seed: int) -> tuple[list[list[list[dict[str, Any]]]], list[Predicate]]:
    """Rows of each file by its row groups, and predicates."""
    chance = random.Random(seed)

    def value(name: str) -> Any:
        return None if chance.random() < 0.1 else chance.choice(COLUMNS[name][1])

    number = iter(range(10**9))

    def row() -> dict[str, Any]:
        place = None if chance.random() < 0.1 else {name: value(name) for name in FIELDS}
        return {
            "id": next(number), **{name: value(name) for name in COLUMNS}, "place": place,
            "list": chance.choice([None, [], [1.5, math.nan]]), "map": chance.choice([None, {}, {"a": math.nan}]),
        }  # fmt: skip

    files = [
        [[row() for _ in range(chance.choice([1, 1, 2]))] for _ in range(chance.choice([1, 2, 3]))]
        for _ in range(_N_FILES)
    ]
    rows = [row for file in files for group in file for row in group]
    # Each column with its own values in turn, NaN and the days of 1582 among them.
    predicates = [made for path in PATHS for made in _predicates(chance, path, rows)]
    chance.shuffle(predicates)
    return files, predicates


def _predicates(chance: random.Random, path: tuple[str, ...], rows: list[dict[str, Any]]) -> Iterable[Predicate]:
    kind = type_of(path)
    values = {repr(value): value for row in rows if (value := stored(value_of(row, path), kind)) is not None}
    for value in values.values():
        for name in ("=", "<=>", "<", ">", "<=", ">="):
            yield Predicate(path, name, (value,))
        low, high = sorted((value, chance.choice([*values.values()])), key=order)
        yield Predicate(path, "between", (low, high))
        if isinstance(value, str) and not set("%_\\") & set(value):
            yield Predicate(path, "like", (value[: chance.choice([1, 3, 100])],))
    yield Predicate(path, "is null")
    yield Predicate(path, "is not null")
    if pa.types.is_floating(kind):
        yield Predicate(path, "isnan")


def landed(number: int) -> Landed:
    return Landed(
        query="q", micro_batch=number, topic="t", topic_id="", start={0: number}, end={0: number + 1}, sequence=number + 1
    )  # fmt: skip


def land(table: Any, files: Sequence[Sequence[list[dict[str, Any]]]]) -> None:
    """Write files as tasks do, and commit them; each of the inner lists is a row group."""
    layout = table.layout(pa.schema(file_type(pa.struct(SCHEMA), pa.struct(table.arrow_schema))), _TABLE)
    filesystem, folder = table.folder.open()
    schema = pa.schema([*layout.schema])
    written = [
        file
        for groups in files
        for file in FileWriter(filesystem, folder, layout).write([batch_of(rows, schema) for rows in groups])
    ]
    table.append_files(Written(files=written), layout, landed(0))


class Lake:
    """A table of each format with the same rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files, self.predicates = generated(FACTOR and random.SystemRandom().randrange(10**9))
        self.rows = [row for file in self.files for group in file for row in group]
        self.delta = str(folder / "delta")
        table = DeltaFolder(self.delta)
        table.create_of(SCHEMA, _TABLE, "q", landed(-1))
        land(table, self.files)
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        settings = Settings(
            checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.laws", table_format="iceberg",
            catalog=catalog,
        )  # fmt: skip
        load_catalog("lake", **catalog).create_namespace("laws")
        iceberg = IcebergTable(None, settings, "rows")  # type: ignore[arg-type]  # Spark's part is not used
        iceberg.create_of(SCHEMA, _TABLE, "q", landed(-1))
        land(iceberg, self.files)
        self.iceberg = load_catalog("lake", **catalog).load_table("laws.rows")
        self.iceberg_files = [task.file.file_path.removeprefix("file://") for task in self.iceberg.scan().plan_files()]
        self.delta_files = DeltaTable(self.delta).file_uris()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet_files, "_BUFFERED_BYTES", 1)
        return Lake(tmp_path_factory.mktemp("lake"))


def check(
    reader: str,
    lake: Lake,
    find: Callable[[Predicate], list[int]],
    *,
    by_ieee: bool = False,
    can_say: Callable[[Predicate], bool] = lambda _: True,
    times: int = 4,
) -> None:
    """A reader returns the rows of each predicate that it can say."""
    predicates = list(filter(can_say, lake.predicates))[: _N_PREDICATES * times]
    wrong, n_said = [], len(predicates)
    assert n_said >= 40
    for predicate in predicates:
        found = find(predicate)
        wanted = expected(predicate, lake.rows, by_ieee=by_ieee)
        if sorted(found) != wanted:
            wrong.append((predicate, sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))))
    assert not wrong, f"{reader}: {len(wrong)} of {n_said}, such as " + "\n".join(map(repr, wrong[:8]))


def test_spark_finds_the_rows(spark: Any, lake: Lake) -> None:
    """Many scans in one job: each has its own filters for log, footer and dictionary.

    In files of its own, too, Spark does not find -0.0 by 0.0, nor 0.0 by -0.0: parquet-mr tells them apart in dictionaries.
    """
    tables = {"delta": f"delta.`{lake.delta}`", "parquet": f"parquet.`{lake.folder}/lake/laws/rows/data`"}
    predicates = [each for each in lake.predicates if not any(isinstance(v, float) and v == 0 for v in each.values)][
        :_N_PREDICATES_OF_SPARK
    ]
    wrong = []
    for format, table in tables.items():
        for first in range(0, len(predicates), 30):
            some = predicates[first : first + 30]
            scans = [
                f"SELECT {n} AS n, id FROM {table} WHERE {in_spark(predicate)}" for n, predicate in enumerate(some)
            ]
            found: dict[int, list[int]] = {n: [] for n in range(len(some))}
            for row in spark.sql(" UNION ALL ".join(scans)).coalesce(2).collect():
                found[row.n].append(row.id)
            for n, predicate in enumerate(some):
                wanted = expected(predicate, lake.rows)
                if sorted(found[n]) != wanted:
                    wrong.append((format, predicate, set(wanted) - set(found[n]), set(found[n]) - set(wanted)))
    assert not wrong, f"{len(wrong)}, such as " + "\n".join(map(repr, wrong[:8]))


def in_spark(predicate: Predicate) -> str:
    column = ".".join(f"`{name}`" for name in predicate.path)
    return _sql(predicate, column, lambda value: spark_literal(value, predicate.kind), "<=>")


def _sql(predicate: Predicate, column: str, literal: Callable[[Any], str], null_safe: str) -> str:
    values = [literal(value) for value in predicate.values]
    match predicate.name:
        case "between":
            return f"{column} BETWEEN {values[0]} AND {values[1]}"
        case "like":
            return f"{column} LIKE {literal(predicate.values[0] + '%')}"
        case "isnan":
            return f"isnan({column})"
        case "<=>":
            return f"{column} {null_safe} {values[0]}"
        case _:
            return " ".join((column, predicate.name, *values))


def spark_literal(value: Any, kind: Any) -> str:
    if pa.types.is_string(kind):
        return f"CAST(unhex('{value.encode().hex()}') AS STRING)"
    if pa.types.is_binary(kind):
        return f"unhex('{value.hex()}')"
    if pa.types.is_date(kind):
        return f"date_from_unix_date({value})"
    if pa.types.is_timestamp(kind):
        moment = f"timestamp_micros({value})"
        return moment if kind.tz else f"CAST({moment} AS TIMESTAMP_NTZ)"
    if pa.types.is_floating(kind):
        return f"{'FLOAT' if kind == pa.float32() else 'DOUBLE'}('{value!r}')"
    if pa.types.is_decimal(kind):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    return str(value) if isinstance(value, bool) else f"CAST('{value}' AS {'INT' if kind == pa.int32() else 'BIGINT'})"


def duck_literal(value: Any, kind: Any) -> str:
    if pa.types.is_string(kind):
        return f"decode(unhex('{value.encode().hex()}'))"
    if pa.types.is_binary(kind):
        return f"unhex('{value.hex()}')"
    if pa.types.is_date(kind):
        return f"(DATE '1970-01-01' + ({value})::INTEGER)"
    if pa.types.is_timestamp(kind):
        return f"make_timestamp({value})" + ("::TIMESTAMPTZ" if kind.tz else "")
    if pa.types.is_floating(kind):
        return f"'{value!r}'::{'FLOAT' if kind == pa.float32() else 'DOUBLE'}"
    if pa.types.is_decimal(kind):
        return f"'{value:f}'::DECIMAL({kind.precision}, {kind.scale})"
    return str(value)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_duckdb_finds_the_rows_by_the_files_own_footers(lake: Lake, format: str) -> None:
    files = lake.delta_files if format == "delta" else lake.iceberg_files
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET parquet_metadata_cache = true")

        def find(predicate: Predicate) -> list[int]:
            column = ".".join(f'"{name}"' for name in predicate.path)
            condition = _sql(
                predicate, column, lambda value: duck_literal(value, predicate.kind), "IS NOT DISTINCT FROM"
            )
            found = connection.execute(f"SELECT id FROM read_parquet({files}) WHERE {condition}").fetchall()
            return [number for (number,) in found]

        check(f"DuckDB, {format}", lake, find)


def _polars_type(kind: Any) -> Any:
    return polars.from_arrow(pa.array([], kind)).dtype  # type: ignore[union-attr]


def in_polars(predicate: Predicate) -> Any:
    column = polars.col(predicate.path[0])
    for name in predicate.path[1:]:
        column = column.struct.field(name)
    # Polars itself makes the literals: Python has no such dates.
    values = [
        polars.lit(polars.from_arrow(batch_literal(value, predicate.kind))).first() for value in predicate.values
    ]  # fmt: skip
    match predicate.name:
        case "is null":
            return column.is_null()
        case "is not null":
            return column.is_not_null()
        case "isnan":
            return column.is_nan()
        case "like":
            return column.str.starts_with(predicate.values[0])
        case "between":
            return column.is_between(*values)
        case "<=>":
            return column.eq_missing(values[0])
        case name:
            return _COMPARE[name](column, values[0])


_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "<=>": operator.eq,
}  # fmt: skip


def batch_literal(value: Any, kind: Any) -> Any:
    """A value as an array of one."""
    if pa.types.is_temporal(kind):
        return pa.array([value], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    return pa.array([value], kind)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_polars_finds_the_rows(lake: Lake, format: str) -> None:
    scan = polars.scan_delta(lake.delta) if format == "delta" else polars.scan_parquet(lake.iceberg_files)
    check(
        f"Polars, {format}",
        lake,
        lambda predicate: scan.filter(in_polars(predicate)).select("id").collect()["id"].to_list(),
        times=2,
    )


def in_arrow(predicate: Predicate) -> Any:
    column = pc.field(*predicate.path)
    values = [batch_literal(value, predicate.kind)[0] for value in predicate.values]
    match predicate.name:
        case "is null":
            return column.is_null()
        case "is not null":
            return column.is_valid()
        case "isnan":
            return pc.is_nan(column)
        case "like":
            return pc.starts_with(column, predicate.values[0])
        case "between":
            return (column >= values[0]) & (column <= values[1])
        case name:
            return _COMPARE[name](column, values[0])


@pytest.mark.parametrize("format", ["deltalake", "parquet"])
def test_arrow_and_deltalake_find_the_rows(lake: Lake, format: str) -> None:
    if format == "deltalake":
        dataset = DeltaTable(lake.delta).to_pyarrow_dataset()
    else:
        dataset = pyarrow.dataset.dataset(lake.iceberg_files)
    check(format, lake, lambda predicate: dataset.to_table(["id"], in_arrow(predicate))["id"].to_pylist(), by_ieee=True)


def in_iceberg(predicate: Predicate) -> Any:
    column = ".".join(predicate.path)
    values = [python_value(value, predicate.kind) for value in predicate.values]
    match predicate.name:
        case "is null":
            return ice.IsNull(column)
        case "is not null":
            return ice.NotNull(column)
        case "isnan":
            return ice.IsNaN(column)
        case "like":
            return ice.StartsWith(column, predicate.values[0])
        case "between":
            return ice.And(ice.GreaterThanOrEqual(column, values[0]), ice.LessThanOrEqual(column, values[1]))
        case name:
            return _ICEBERG[name](column, values[0])


_ICEBERG: Final[dict[str, Any]] = {
    "=": ice.EqualTo, "<=>": ice.EqualTo, "<": ice.LessThan, ">": ice.GreaterThan,
    "<=": ice.LessThanOrEqual, ">=": ice.GreaterThanOrEqual,
}  # fmt: skip


def python_value(value: Any, kind: Any) -> Any:
    """A value as Python has it; raises OverflowError of one that it does not have."""
    if pa.types.is_date(kind):
        return date(1970, 1, 1) + timedelta(value)
    if pa.types.is_timestamp(kind):
        return datetime(1970, 1, 1, tzinfo=timezone.utc if kind.tz else None) + timedelta(microseconds=value)
    return value


def _is_python_s(predicate: Predicate) -> bool:
    try:
        values = [python_value(value, predicate.kind) for value in predicate.values]
    except OverflowError:
        return False
    # To pyiceberg an infinity is beyond all FLOATs, NaN among them.
    return all(math.isfinite(value) for value in values if isinstance(value, float))


def test_pyiceberg_plans_the_files_of_the_rows(lake: Lake) -> None:
    """By the manifests: NaN is the largest number here, as it is to Spark."""
    ids = {
        f"file://{path}": pyarrow.parquet.read_table(path, columns=["id"])["id"].to_pylist()
        for path in lake.iceberg_files
    }

    def find(predicate: Predicate) -> list[int]:
        wanted = set(expected(predicate, lake.rows))
        planned = lake.iceberg.scan(row_filter=in_iceberg(predicate)).plan_files()
        return [number for task in planned for number in ids[task.file.file_path] if number in wanted]

    check("pyiceberg's plan", lake, find, can_say=_is_python_s)


def test_pyiceberg_finds_the_rows(lake: Lake) -> None:
    check(
        "pyiceberg",
        lake,
        lambda predicate: (
            lake.iceberg.scan(row_filter=in_iceberg(predicate), selected_fields=("id",)).to_arrow()["id"].to_pylist()
        ),
        by_ieee=True,
        can_say=lambda predicate: _is_python_s(predicate) and len(predicate.path) == 1 and "." not in predicate.path[0],
        times=1,
    )


def test_all_readers_return_the_same_values(spark: Any, lake: Lake) -> None:
    """As bytes and numbers, in which all values can be compared."""
    wanted = {
        row["id"]: [_comparable(stored(value_of(row, path), type_of(path))) for path in PATHS] for row in lake.rows
    }
    names = [".".join(path) for path in PATHS]

    def check_rows(reader: str, table: Any) -> None:
        columns = []
        for path in PATHS:
            column = table[path[0]] if path[:1] == path else pc.struct_field(table[path[0]], list(path[1:]))
            if pa.types.is_temporal(column.type):
                column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
            columns.append([_comparable(value) for value in column.to_pylist()])
        read = {row[0]: list(row) for row in zip(*columns, strict=True)}
        for number, values in wanted.items():
            assert dict(zip(names, read[number], strict=True)) == dict(zip(names, values, strict=True)), (
                reader,
                number,
            )
        assert len(read) == len(wanted)

    check_rows("Spark, Delta", spark.read.format("delta").load(lake.delta).toArrow())
    check_rows("Spark, Parquet", spark.read.parquet(f"{lake.folder}/lake/laws/rows/data").toArrow())
    check_rows("deltalake", DeltaTable(lake.delta).to_pyarrow_table())
    check_rows("Polars", polars.read_delta(lake.delta).to_arrow())
    check_rows("pyiceberg", lake.iceberg.scan().to_arrow())
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        check_rows("DuckDB", connection.sql(f"SELECT * FROM read_parquet({lake.delta_files})").to_arrow_table())


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    return value
