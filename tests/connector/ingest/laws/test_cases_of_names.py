"""A row has the values that were written, whatever the case of names, and whatever the session says about it.

Changes and rows whose columns and nested fields have another case than those of their table are merged and appended, in sessions
with and without ``spark.sql.caseSensitive``. The oracle: names are equal if they differ only in case.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final

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

_CHANGES: Final = (str.lower, str.upper, str.title)
#: Changes of the case of four names: of the table, and of the rows.
Cases = st.lists(st.sampled_from(_CHANGES), min_size=4, max_size=4)


def columns(cases: Any) -> str:
    key, name, place, city = (
        change(text) for change, text in zip(cases, ("key", "name", "place", "city"), strict=True)
    )
    return f"{key} BIGINT, {name} STRING, {place} STRUCT<{city}: STRING>"


@example(held=[str.lower] * 4, given_cases=[str.lower, str.title, str.lower, str.upper], is_sensitive="true")
@given(held=Cases, given_cases=Cases, is_sensitive=st.sampled_from(["true", "true", "false"]))
@examples(1)
def test_values_are_written_to_the_columns_of_their_names(
    spark: Any, tmp_path: Path, held: Any, given_cases: Any, is_sensitive: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", is_sensitive)
    name = uuid.uuid4().hex
    settings = Settings(checkpoint="/c", kafka={"bootstrap.servers": "b:1"}, topics=".*", into=str(tmp_path))
    table = SparkDeltaTable(session, settings, name)
    first = session.createDataFrame([(1, "a", ("b",)), (2, "c", ("d",))], columns(held))
    first.coalesce(1).write.format("delta").save(f"{tmp_path}/{name}")
    changes = session.createDataFrame([(1, "e", ("f",)), (3, "g", ("h",))], columns(given_cases)).coalesce(1)
    key, new_key = held[0]("key"), given_cases[0]("key")
    with row_settings(session):
        merging = Merging(same_row=f"old.`{key}` <=> new.`{new_key}`", is_newer="true")
        merge_rows(table, changes.withColumn(DELETE, F.lit(False)), merging, None)
        table.append(session.createDataFrame([(4, "i", ("j",))], columns(given_cases)), None)
    rows = sorted(tuple(row) for row in spark.read.format("delta").load(f"{tmp_path}/{name}").collect())
    assert rows == [(1, "e", ("f",)), (2, "c", ("d",)), (3, "g", ("h",)), (4, "i", ("j",))]
