"""A DataFrame's type against a reader's schema: what is missing, what contradicts, what has changed, each by its path."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType

from pykafka_wire.columns.spark_schema import spark_type
from pykafka_wire.source.dataframe_types import TypesContradictError, changes, describe_missing, missing_fields
from pykafka_wire.values.ddl import arrow_type


def of(ddl: str) -> DataType:
    return spark_type(arrow_type(ddl))


ORDER = of(
    "id BIGINT, parts ARRAY<STRUCT<number: INT, name: STRING>>, prices MAP<STRING, STRUCT<amount: DECIMAL(9,2)>>"
)


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        ("id BIGINT", []),
        ("prices MAP<STRING, STRUCT<amount: DECIMAL(9,2)>>, id BIGINT", []),
        ("parts ARRAY<STRUCT<name: STRING>>", []),
        ("note STRING, id BIGINT", ["value.note"]),
        ("parts ARRAY<STRUCT<size: INT>>", ["value.parts.element.size"]),
        ("prices MAP<STRING, STRUCT<vat: INT>>", ["value.prices.value.vat"]),
    ],
)
def test_fields_are_found_by_name_at_every_depth(wanted: str, missing: list[str]) -> None:
    assert missing_fields(of(wanted), ORDER, "value") == missing


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("id INT", "value.id is bigint, not int"),
        ("id STRUCT<a: INT>", "value.id is bigint, not struct<a:int>"),
        ("parts ARRAY<STRUCT<number: STRING>>", "value.parts.element.number is int, not string"),
        ("prices MAP<INT, STRUCT<amount: DECIMAL(9,2)>>", "value.prices.key is string, not int"),
        ("prices MAP<STRING, STRUCT<amount: DECIMAL(9,3)>>", r"value.prices.value.amount is decimal\(9,2\), not decimal\(9,3\)"),
        ("BINARY", "value is struct<.*, not binary"),
    ],
)  # fmt: skip
def test_another_type_is_named_with_both(wanted: str, text: str) -> None:
    with pytest.raises(TypesContradictError, match=text):
        missing_fields(of(wanted), ORDER, "value")


def test_what_is_missing_is_named_with_what_there_is() -> None:
    assert describe_missing(["value.idd"], of("id INT, x INT"), "value") == (
        "value.idd (did you mean id?); value is struct<id:int,x:int>"
    )
    nested = missing_fields(of("parts ARRAY<STRUCT<nam: STRING>>"), ORDER, "value")
    assert describe_missing(nested, ORDER, "value") == (
        "value.parts.element.nam (did you mean name?); value.parts.element is struct<number:int,name:string>"
    )
    many = of(", ".join(f"f{n} INT" for n in range(500)))
    assert len(describe_missing(["value.x"], many, "value")) < 400


def test_changes_of_a_type_are_listed_field_by_field() -> None:
    before = of("a INT, b ARRAY<STRUCT<x: INT, y: INT>>, c MAP<STRING, STRUCT<z: INT>>, d STRING")
    after = of("a BIGINT, b ARRAY<STRUCT<x: INT, n: DATE>>, c MAP<STRING, STRUCT<z: FLOAT>>")
    assert changes(before, after, "value") == [
        "value.a is bigint in place of int",
        "value.b.element.n date is new",
        "value.b.element.y is gone",
        "value.c.value.z is float in place of int",
        "value.d is gone",
    ]
