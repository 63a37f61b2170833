"""Types of JSON that grow: what a table has, and what values bring."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql.types import MapType, StructType

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.json_types import inferred_type, widened

pytestmark = pytest.mark.spark  # it parses DDL


def fields(n: int, kind: str) -> str:
    return ", ".join(f"f{number}: {kind}" for number in range(n))


@pytest.mark.parametrize(
    "held, found, wanted",
    [
        ("a INT", "a BIGINT", "a BIGINT"),
        ("a BIGINT", "a INT", "a BIGINT"),
        ("a INT", "a DOUBLE", "a DOUBLE"),
        ("a BIGINT", "a DOUBLE", "a DECIMAL(38,18)"),
        ("a DECIMAL(38,18)", "a DOUBLE", "a DECIMAL(38,18)"),
        ("a DOUBLE", "a BIGINT", "a DOUBLE"),
        ("a BIGINT", "a DECIMAL(38,0)", "a DECIMAL(38,0)"),
        ("a DECIMAL(10,2)", "a DECIMAL(12,3)", "a DECIMAL(12,3)"),
        ("a DECIMAL(38,0)", "a DECIMAL(12,3)", "a DECIMAL(38,0)"),
        ("a DATE", "a TIMESTAMP_NTZ", "a TIMESTAMP_NTZ"),
        ("a STRING", "a BIGINT", "a STRING"),
        ("a STRUCT<b: BIGINT>", "a STRUCT<b: DOUBLE, c: STRING>", "a STRUCT<b: DECIMAL(38,18), c: STRING>"),
        ("a ARRAY<BIGINT>", "a ARRAY<DOUBLE>", "a ARRAY<DECIMAL(38,18)>"),
        ("a MAP<STRING, BIGINT>", "a STRUCT<x: DOUBLE, y: DOUBLE>", "a MAP<STRING, DECIMAL(38,18)>"),
    ],
)
def test_a_type_only_grows_and_as_delta_widens_columns(spark: Any, held: str, found: str, wanted: str) -> None:
    assert widened(StructType.fromDDL(held), StructType.fromDDL(found)) == StructType.fromDDL(wanted)


def test_an_object_with_very_many_fields_is_a_map(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pykafka_wire.ingest")
    grown = widened(None, inferred_type(f"OBJECT<id: BIGINT, tags: OBJECT<{fields(101, 'BIGINT')}>>"))
    assert grown == StructType.fromDDL("id BIGINT, tags MAP<STRING, BIGINT>")
    assert "Field tags has objects with 101 different fields" in caplog.text
    mixed = widened(None, inferred_type(f"OBJECT<tags: OBJECT<s: STRING, {fields(100, 'DOUBLE')}>>"))
    assert mixed == StructType.fromDDL("tags MAP<STRING, STRING>")
    whole = inferred_type(f"OBJECT<{fields(150, 'BIGINT')}>")
    assert widened(None, whole) == whole, "a row may have many columns"
    known = StructType.fromDDL(f"tags STRUCT<{fields(50, 'BIGINT')}>")
    assert not isinstance(widened(known, inferred_type(f"OBJECT<tags: OBJECT<{fields(150, 'BIGINT')}>>")), MapType)
    with pytest.raises(IngestError, match="values have more than 2000 fields"):
        widened(known, inferred_type(f"OBJECT<{fields(2_100, 'BIGINT')}>"))
