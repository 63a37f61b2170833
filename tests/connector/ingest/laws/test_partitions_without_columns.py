"""Law: rows may lack the columns by which an Iceberg table is partitioned, as a micro-batch of inferred JSON does: they are null.

Rows with random columns are added to tables with random partitions. The oracle: each row has the values that were given.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyspark.sql.types import StructType

from pykafka_wire.columns.spark_schema import arrow_schema
from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import Landed
from tests.connector.ingest.laws.generated import examples

#: Columns by name: a type, and two values.
_COLUMNS: Final[dict[str, tuple[str, tuple[Any, Any]]]] = {
    "Number": ("INT", (1, 2)),
    "text": ("STRING", ("", "x/y")),
    "day": ("DATE", (date(2020, 1, 2), date(1, 1, 1))),
    "flag": ("BOOLEAN", (True, False)),
    "price": ("DECIMAL(5,2)", (Decimal("1.25"), Decimal("-1.00"))),
    "a.b": ("BIGINT", (0, 2**40)),
}
_NAMES: Final = st.sets(st.sampled_from(sorted(_COLUMNS)))
#: The columns of a partition, and of the rows of each commit.
_LIVES: Final = st.tuples(_NAMES.filter(bool), st.lists(_NAMES, min_size=1, max_size=2))


def _schema(names: list[str]) -> StructType:
    return StructType.fromDDL(", ".join(["id INT", *(f"`{name}` {_COLUMNS[name][0]}" for name in names)]))


def _settings(folder: Path) -> Settings:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    load_catalog("lake", **catalog).create_namespace_if_not_exists("laws")
    return Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.laws", table_format="iceberg", catalog=catalog,
    )  # fmt: skip


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_rows_without_a_partition_s_column_have_null_there(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @example(({"a.b", "Number"}, [set(), {"Number", "text"}]))
    @examples(3)
    @given(life=_LIVES)
    def law(life: tuple[set[str], list[set[str]]]) -> None:
        settings, (by, commits) = _settings(tmp_path_factory.mktemp("lake")), life
        table = IcebergTable(spark, settings, "rows")
        every, expected = sorted(_COLUMNS), []
        table.create_of(
            arrow_schema(_schema(every)), Table(topic="t", partition_by=tuple(sorted(by))), "q", _landed(-1)
        )
        for number, given_names in enumerate(commits):
            names = sorted(given_names)
            rows = [(n, *(_COLUMNS[name][1][n] for name in names)) for n in range(2)]
            table.append(spark.createDataFrame(rows, _schema(names)), _landed(number))
            expected += [dict.fromkeys(every) | dict(zip(["id", *names], row, strict=True)) for row in rows]
        found = load_catalog("lake", **settings.catalog).load_table("laws.rows").scan().to_arrow().to_pylist()
        assert sorted(map(str, found)) == sorted(str({name: row[name] for name in ["id", *every]}) for row in expected)

    law()


@pytest.mark.unit
@pytest.mark.parametrize("by", ["s.x", "s.s.x"])
@pytest.mark.parametrize("is_column", [False, True])
def test_a_partition_by_a_field_inside_a_column_stops_the_table(tmp_path: Path, by: str, is_column: bool) -> None:
    """A column may have the name of a field's path."""
    settings, inner = _settings(tmp_path), pa.struct([("x", pa.int32())])
    columns = [(by, pa.int32())] if is_column else [("s", pa.struct([("x", pa.int32()), ("s", inner)]))]
    table = IcebergTable(None, settings, "rows")  # type: ignore[arg-type]  # Spark's part is not used
    table.create_of(pa.schema(columns), Table(topic="t"), "q", _landed(-1))
    with load_catalog("lake", **settings.catalog).load_table("laws.rows").update_spec() as update:
        update.add_identity(by)
    table.refresh()
    if is_column:
        assert table.spark_reason() is None
        return
    with pytest.raises(IngestError, match=rf"partitions by {by}, a field inside a column"):
        table.spark_reason()


def _landed(number: int) -> Landed:
    return Landed(
        query="q", micro_batch=number, topic="t", topic_id="", start={0: max(0, number)}, end={0: number + 1},
        sequence=number + 1, attempt=str(number),
    )  # fmt: skip
