"""Spark's DDL of types, read without Spark, and by Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pykafka_wire.values.ddl import DdlError, arrow_type

TYPES = [
    "id BIGINT",
    "a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h long, i float, j real, k double",
    "a string, b binary, c date, d timestamp_ltz, e timestamp_ntz, f timestamp",
    "a decimal, b DECIMAL(9), c dec(38,38), d numeric( 5 , 2 )",
    "`a``b ü` int NOT NULL COMMENT 'it''s' , `c` string comment \"d\"",
    "struct<a: int, b struct<c: array<map<string, struct<d: bigint not null>>>>>",
    "array<struct<decimal: decimal(10,2), `struct`: string>>",
    "MAP<STRING,ARRAY<INT>>",
    "bigint",
    "decimal(12,4)",
    "a: int, b: string",
    "timestamp TIMESTAMP, date DATE, map map<int,int>",
]


def nullable(found: DataType) -> DataType:
    """The type with nulls allowed everywhere."""
    if isinstance(found, StructType):
        return StructType([StructField(each.name, nullable(each.dataType)) for each in found.fields])
    if isinstance(found, ArrayType):
        return ArrayType(nullable(found.elementType))
    if isinstance(found, MapType):
        return MapType(nullable(found.keyType), nullable(found.valueType))
    return found


@pytest.mark.spark
def test_types_are_read_as_spark_reads_them(spark: Any) -> None:
    for ddl in TYPES:
        assert from_arrow_type(arrow_type(ddl)) == nullable(DataType.fromDDL(ddl)), ddl


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("", "it ends where a field is expected"),
        ("id", "'id' at character 1 where a type such as BIGINT"),
        ("id bigint,", "it ends where a field is expected"),
        ("id bigint x", "'x' at character 11 where its end is expected"),
        ("id bigint, id int", "the field id is there twice"),
        ("a array<int", "it ends where '>' is expected"),
        ("a struct<>", "'>' at character 10 where a field is expected"),
        ("a map<string>", "'>' at character 13 where ',' is expected"),
        ("a decimal(39,1)", r"a decimal has 1 to 38 digits"),
        ("a decimal(3,x)", "'x' at character 13 where a number of digits is expected"),
        (
            "a interval",
            "'interval' at character 3 where a type such as BIGINT, DOUBLE, STRING or TIMESTAMP is expected",
        ),
        ("a int not", "it ends where NULL is expected"),
        ("a int; drop", "unexpected '; drop'"),
        ("a " + "array<" * 200, "it is nested deeper than 100 types"),
    ],
)
def test_what_is_no_type_is_refused_with_its_place(ddl: str, text: str) -> None:
    with pytest.raises(DdlError) as raised:
        arrow_type(ddl)
    assert text in str(raised.value)


def test_timestamps_have_a_zone_unless_the_type_says_otherwise() -> None:
    assert arrow_type("a timestamp, b timestamp_ntz") == pa.struct(
        [("a", pa.timestamp("us", tz="UTC")), ("b", pa.timestamp("us"))]
    )
