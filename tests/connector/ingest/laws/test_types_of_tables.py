"""A table holds every value of its rows: a write keeps the table's type, widens the type without loss, or is refused.

The oracle is the largest, smallest and finest values of each type, and the changes of types that
https://docs.delta.io/latest/delta-type-widening.html lists. Tables in folders and tables of a catalog decide alike.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
)

from pykafka_wire.errors import ColumnConflictError
from pykafka_wire.ingest.settings.model import Settings, Table
from pykafka_wire.ingest.spark.sql import column_ddl
from pykafka_wire.ingest.tables.delta.spark_table import SparkDeltaTable
from pykafka_wire.ingest.tables.merging import DELETE, Merging, merge_rows
from tests.connector.ingest.laws.changes_of_types import (
    WHOLE,
    Change,
    drawn_changes,
    extremes,
    is_kept,
    is_same,
    placed,
    put,
    taken,
)
from tests.connector.ingest.laws.generated import examples

#: The changes of types that Delta's documentation lists, but for decimals.
_WIDENED: Final = {
    ByteType: (ShortType, IntegerType, LongType, DoubleType),
    ShortType: (IntegerType, LongType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
    DateType: (TimestampNTZType,),
}
#: The number of rows of a write: a type has up to three extreme values.
_ROWS: Final = 3


def is_widened(held: DataType, rows: DataType) -> bool:
    """Return whether Delta's documentation lists the change of a type."""
    if isinstance(rows, DecimalType):
        if isinstance(held, DecimalType):
            return rows.scale >= held.scale and rows.precision - rows.scale >= held.precision - held.scale
        return type(held) in WHOLE and rows.precision - rows.scale >= (20 if isinstance(held, LongType) else 10)
    return isinstance(rows, _WIDENED.get(type(held), ()))


@pytest.fixture(scope="module")
def schema(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = f"types{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path_factory.mktemp('schema')}'")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", ["append", pytest.param("merge", marks=pytest.mark.long)])
@given(random=st.integers(1, 2**32).map(Random))
@examples(1)
def test_a_table_holds_every_value_or_refuses_the_rows(
    way: str, spark: Any, schema: str, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    drawn = drawn_changes(random)
    of_catalog = outcome(spark, schema, drawn, way)
    assert of_catalog == outcome(spark, str(tmp_path_factory.mktemp("lake")), drawn, way)


def outcome(spark: Any, into: str, drawn: Sequence[Change], way: str) -> str:
    """Write rows of each new type to one table, check the table's rows, and return the table's columns."""
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"}, topics="t", into=into)
    session = spark.newSession()
    table = SparkDeltaTable(session, settings, f"t{uuid.uuid4().hex[:8]}")

    def schema_of(numbers: Sequence[int], *, is_new: bool) -> StructType:
        kinds = [placed(drawn[n].place, drawn[n].rows if is_new else drawn[n].held, is_new=is_new) for n in numbers]
        fields = [StructField(f"c{n}", kind) for n, kind in zip(numbers, kinds, strict=True)]
        return StructType([StructField("id", IntegerType()), *fields])

    def value_of(number: int, row: int, *, is_new: bool) -> Any:
        values = extremes(drawn[number].rows if is_new else drawn[number].held)
        return values[row % len(values)]

    def write(numbers: Sequence[int], first_id: int, *, is_new: bool) -> None:
        values = [
            (first_id + row, *(put(drawn[n].place, value_of(n, row, is_new=is_new), is_new=is_new) for n in numbers))
            for row in range(_ROWS)
        ]
        rows = session.createDataFrame(values, schema_of(numbers, is_new=is_new))
        if way == "append":
            table.append(rows, None)
            return
        merging = Merging(same_row="old.id <=> new.id", is_newer="true")
        merge_rows(table, rows.selectExpr("*", f"false AS {DELETE}"), merging, None)

    every = range(len(drawn))
    table.create(column_ddl(schema_of(every, is_new=False)), Table(topic=".*"), "query", None)
    write(every, 0, is_new=False)
    held = table.schema
    stored = [n for n in every if is_kept(drawn[n].held, drawn[n].rows) or is_widened(drawn[n].held, drawn[n].rows)]
    for n in set(every) - set(stored):
        with pytest.raises(ColumnConflictError, match=rf"c{n}\b"):
            write([n], 10, is_new=True)
            pytest.fail(f"{drawn[n]} was written: {table.rows.select(f'c{n}').collect()}")
        assert table.schema == held
    write(stored, 10, is_new=True)
    found = {row.id: row for row in table.rows.collect()}
    assert len(found) == 2 * _ROWS
    for first_id, numbers in ((0, every), (10, stored)):
        for n, row in product(numbers, range(_ROWS)):
            written = value_of(n, row, is_new=first_id == 10)
            read = taken(drawn[n].place, found[first_id + row][f"c{n}"])
            assert is_same(written, read), (into, drawn[n], written, read)
    return str(table.schema.simpleString())
