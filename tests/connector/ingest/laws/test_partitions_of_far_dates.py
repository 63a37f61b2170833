"""Law: a table's partition may be any date, whatever years Python has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from pykafka_wire.ingest.files.parquet import FileWriter
from pykafka_wire.ingest.files.tasks import Written
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.tables.delta.folder import DeltaFolder
from pykafka_wire.ingest.tables.iceberg.table import IcebergTable
from pykafka_wire.ingest.tables.position import Landed
from tests.connector.ingest.laws.rows_of_all_types import DAYS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_TABLE: Final = Table(topic="t", partition_by=("day",))
_SCHEMA: Final = pa.schema([("id", pa.int32()), ("day", pa.date32())])
_DAYS: Final = sorted({*DAYS, -800_000})


def _landed(number: int) -> Landed:
    return Landed(
        query="q", micro_batch=number, topic="t", topic_id="", start={0: number}, end={0: number + 1}, sequence=number + 1
    )  # fmt: skip


def _land(table: Any) -> None:
    layout = table.layout(pa.schema([*table.arrow_schema]), _TABLE)
    rows = [pa.array(range(len(_DAYS)), pa.int32()), pa.array(_DAYS, pa.int32()).cast(pa.date32())]
    filesystem, folder = table.folder.open()
    batch = pa.RecordBatch.from_arrays(rows, schema=layout.schema)
    table.append_files(Written(files=list(FileWriter(filesystem, folder, layout).write([batch]))), layout, _landed(0))


def test_spark_reads_the_dates_of_a_delta_table_s_partitions(spark: Any, tmp_path: Path) -> None:
    table = DeltaFolder(str(tmp_path / "delta"))
    table.create_of(_SCHEMA, _TABLE, "q", _landed(-1))
    _land(table)
    read = spark.read.format("delta").load(str(tmp_path / "delta"))
    assert [row[0] for row in read.selectExpr("unix_date(day) AS day").orderBy("day").collect()] == _DAYS
    assert read.where("day = date_from_unix_date(2932897)").count() == 1


def test_pyiceberg_reads_the_dates_of_an_iceberg_table_s_partitions(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    settings = Settings(
        checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into="lake.laws", table_format="iceberg", catalog=catalog,
    )  # fmt: skip
    load_catalog("lake", **catalog).create_namespace("laws")
    table = IcebergTable(None, settings, "days")  # type: ignore[arg-type]  # Spark's part is not used
    table.create_of(_SCHEMA, _TABLE, "q", _landed(-1))
    _land(table)
    read = load_catalog("lake", **catalog).load_table("laws.days").scan().to_arrow()
    assert sorted(read["day"].cast(pa.int32()).to_pylist()) == _DAYS
