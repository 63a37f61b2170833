"""The source's columns and types, those of Spark's own Kafka connector."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pykafka_wire.columns.arrow_types import ARROW_TYPES
from pykafka_wire.columns.source_columns import SOURCE_COLUMNS, source_schema
from pykafka_wire.columns.spark_schema import arrow_schema, check_source_schema
from pykafka_wire.errors import SchemaError
from pykafka_wire.source.task_reader import decoded_columns
from pykafka_wire.wire.records.decode import Columns

#: As "Structured Streaming + Kafka Integration Guide" documents them.
JVM_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)
WITH_HEADERS = StructType([*JVM_COLUMNS.fields, HEADERS])


def test_columns_without_headers() -> None:
    assert source_schema(False) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ltz, "
        "timestampType int"
    )


def test_headers_come_last_when_asked_for() -> None:
    assert source_schema(True) == source_schema(False) + ", headers array<struct<key:string,value:binary>>"


def test_the_whole_schema_passes() -> None:
    assert check_source_schema(WITH_HEADERS) == tuple(SOURCE_COLUMNS)


def test_a_subset_passes_in_its_own_order() -> None:
    schema = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    assert check_source_schema(schema) == ("offset", "value")


def test_a_column_that_the_source_does_not_have() -> None:
    with pytest.raises(SchemaError, match=r"no column 'valu'\. Its columns are key binary.*headers"):
        check_source_schema(StructType([StructField("valu", BinaryType())]))


@pytest.mark.parametrize("name", SOURCE_COLUMNS)
def test_a_column_of_another_type(name: str) -> None:
    with pytest.raises(SchemaError, match=f"column '{name}' is .*, not .*cast it in the query"):
        check_source_schema(StructType([StructField(name, ArrayType(IntegerType()))]))


def test_only_what_is_asked_for_is_decoded() -> None:
    assert decoded_columns(("offset", "topic", "partition")) == Columns(
        key=False, value=False, headers=False, timestamp=False, timestamp_type=False
    )
    assert decoded_columns(tuple(SOURCE_COLUMNS)) == Columns(
        key=True, value=True, headers=True, timestamp=True, timestamp_type=True
    )
    for name, column in (("key", "key"), ("timestampType", "timestamp_type")):
        assert getattr(decoded_columns((name,)), column) is True


def test_the_table_of_arrow_types_is_what_spark_demands() -> None:
    assert {field.name: field.type for field in arrow_schema(WITH_HEADERS)} == ARROW_TYPES
