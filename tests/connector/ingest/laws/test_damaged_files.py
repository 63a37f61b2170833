"""A file that cannot be read for a moment costs no row, whatever the session says about such files.

A file of a table is missing or damaged while Spark rewrites the rows, and there again afterwards. The oracle: each row is in the
table once, with the values from before or after the change.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)

from pykafka_wire.ingest.settings.model import Settings
from pykafka_wire.ingest.spark.row_settings import row_settings
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.merging import DELETE, Merging, merge_rows
from tests.connector.ingest.laws.generated import examples

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@example(is_missing=True, is_merge=True)
@example(is_missing=False, is_merge=False)
@given(is_missing=st.booleans(), is_merge=st.booleans())
@examples(1)
def test_rows_of_a_file_that_cannot_be_read_stay(spark: Any, tmp_path: Path, is_missing: bool, is_merge: bool) -> None:
    session = spark.newSession()
    for setting in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        session.conf.set(f"spark.sql.files.{setting}", "true")
    name = uuid.uuid4().hex
    folder = tmp_path / name
    settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into=str(tmp_path))
    table = SparkDeltaTable(session, settings, name)
    for number in range(2):
        rows = session.createDataFrame([(2 * number, "a"), (2 * number + 1, "a")], "id INT, text STRING")
        rows.coalesce(1).write.format("delta").mode("append").save(str(folder))
    file = next(folder.glob("*.parquet"))
    content = file.read_bytes()
    change = session.createDataFrame([(number, "b") for number in range(4)], "id INT, text STRING").coalesce(1)
    if is_missing:
        file.unlink()
    else:
        file.write_bytes(b"PAR1" + bytes(len(content) - 8) + b"PAR1")
    try:
        with row_settings(session):
            if is_merge:
                merging = Merging(same_row="old.id <=> new.id", is_newer="true")
                merge_rows(table, change.withColumn(DELETE, F.lit(False)), merging, None)
            else:
                table.optimize(2**27)
    except Exception as error:  # of Spark
        assert file.name in str(error)
    file.write_bytes(content)
    (checksum := folder / f".{file.name}.crc").unlink(missing_ok=True)
    assert not checksum.exists()
    found = sorted(tuple(row) for row in spark.read.format("delta").load(str(folder)).collect())
    assert found in ([(number, text) for number in range(4)] for text in "ab")
