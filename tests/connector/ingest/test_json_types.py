"""Types of JSON that grow: what a table has, and what values bring."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, MapType, StructField, StructType

from pykafka_wire.errors import IngestError, UnfitRecordsError
from pykafka_wire.ingest.records.json.columns import inferred, row_type
from pykafka_wire.ingest.records.json.declared_types import fitting, is_unfit
from pykafka_wire.ingest.records.json.survey import Kind, key_names, survey, survey_of
from pykafka_wire.ingest.records.json.types import widened
from tests.connector.ingest.laws.generated import examples

pytestmark = pytest.mark.spark  # it parses DDL


def fields(n: int, kind: str) -> str:
    return ", ".join(f"f{number}: {kind}" for number in range(n))


def found(**values: Any) -> Any:
    return inferred([json.dumps(values).encode()])


def numbered(n: int, value: Any) -> dict[str, Any]:
    return {f"f{number}": value for number in range(n)}


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
        ("a BIGINT", "a DECIMAL(38,18)", "a DECIMAL(38,18)"),
        ("a INT", "a DECIMAL(38,18)", "a DECIMAL(38,18)"),
        ("a DOUBLE", "a DECIMAL(38,18)", "a DOUBLE"),
        ("a MAP<STRING, BIGINT>", "a STRUCT<x: DOUBLE, y: DOUBLE>", "a MAP<STRING, DECIMAL(38,18)>"),
    ],
)
def test_a_type_only_grows_and_as_delta_widens_columns(spark: Any, held: str, found: str, wanted: str) -> None:
    assert widened(StructType.fromDDL(held), StructType.fromDDL(found)) == StructType.fromDDL(wanted)


def test_an_object_with_very_many_fields_is_a_map(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pykafka_wire.ingest")
    grown = widened(None, found(id=1, tags=numbered(101, 1)))
    assert grown == StructType.fromDDL("id BIGINT, tags MAP<STRING, BIGINT>")
    assert "Field tags has objects with 101 different fields" in caplog.text
    mixed = widened(None, found(tags={"s": "", **numbered(100, 0.5)}))
    assert mixed == StructType.fromDDL("tags MAP<STRING, STRING>")
    exact = widened(None, found(tags={"n": 12345678901234567890, **numbered(100, 0.5)}))
    assert exact == StructType.fromDDL("tags MAP<STRING, DECIMAL(38,18)>")
    whole = found(**numbered(150, 1))
    assert widened(None, whole) == whole, "a row may have many columns"
    known = StructType.fromDDL(f"tags STRUCT<{fields(50, 'BIGINT')}>")
    assert not isinstance(widened(known, found(tags=numbered(150, 1))), MapType)
    with pytest.raises(IngestError, match="values have more than 2000 fields"):
        widened(known, found(**numbered(2_100, 1)))


#: The type of a value: a simple one, or a struct of many fields of a simple one, within structs, arrays and maps.
SIMPLE = st.sampled_from(["int32", "int64", "string", "boolean", "double", "bytes"])
DECLARED = st.recursive(
    st.one_of(SIMPLE, st.tuples(st.sampled_from([99, 100, 101, 300]), SIMPLE)),
    lambda inner: st.tuples(st.sampled_from([1, 2, "array", "map"]), inner),
    max_leaves=4,
)


def connect_schema(declared: Any) -> dict[str, Any]:
    """Return the Connect schema of a type."""
    if isinstance(declared, str):
        return {"type": declared}
    kind, inner = declared[0], connect_schema(declared[1])
    if isinstance(kind, int):
        return {"type": "struct", "fields": [{**inner, "field": f"f{number}"} for number in range(kind)]}
    if kind == "array":
        return {"type": "array", "items": inner}
    return {"type": "map", "keys": {"type": "string"}, "values": inner}


def unfit_places(schema: Any) -> int:
    if isinstance(schema, dict):
        return is_unfit(schema) + sum(map(unfit_places, schema.values()))
    return sum(map(unfit_places, schema)) if isinstance(schema, list) else 0


@given(first=DECLARED, second=DECLARED, has_table=st.booleans())
@examples(100)
def test_a_new_column_takes_the_values_of_the_schema_that_made_it(first: Any, second: Any, has_table: bool) -> None:
    fields = [{**connect_schema(kind), "field": name} for name, kind in (("x", first), ("y", second))]
    schema = {"type": "struct", "fields": fields}
    document = json.dumps({"schema": schema, "payload": {"x": None, "y": None}}).encode()
    held = StructType([StructField("other", LongType())]) if has_table else None
    grown = row_type(survey_of([document], "row"), "row", held)
    assert unfit_places(fitting(schema, grown)) == 0, grown


@pytest.mark.parametrize(
    ("held", "document", "wanted"),
    [
        ("id BIGINT", {"ID": 2}, "values have the field ID, but the table has id"),
        ("`ſ` BIGINT", {"s": 2}, "values have the field s, but the table has ſ"),
        ("a STRUCT<id: BIGINT>", {"a": {"Id": 2}}, "values have the field Id, but the table has id"),
        ("id BIGINT", {"x": 1, "X": 2}, "values have the fields x and X, which differ only in case"),
    ],
)
def test_an_error_says_whether_the_table_or_the_values_have_the_other_name(
    spark: Any, held: str, document: Any, wanted: str
) -> None:
    found = survey_of([json.dumps(document).encode()], "row")
    with pytest.raises(UnfitRecordsError, match=wanted):
        row_type(found, "row", StructType.fromDDL(held))


def test_tasks_find_what_one_process_finds(spark: Any) -> None:
    keys = [json.dumps({"id": n} if n % 5 else {"id": n, "at": "x"}).encode() for n in range(300)]
    values = [json.dumps({"schema": None, "payload": {"n": n / 2}} if n % 3 else {"n": n}).encode() for n in range(300)]
    keys[7], values[7], values[8] = b"text", b"{damaged", None  # type: ignore[call-overload]
    places = "n BIGINT, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
    moment = datetime(2026, 11, 26, tzinfo=timezone.utc)
    rows = [(n, n % 2, n, moment, *pair) for n, pair in enumerate(zip(keys, values, strict=True))]
    records = spark.createDataFrame(rows, places).repartition(3)
    kinds: dict[str, Kind] = {"value": "row", "key": "key"}
    seen = survey(records, kinds)
    for column, texts in (("value", values), ("key", keys)):
        assert seen[column] == survey_of(texts, kinds[column])
    assert (seen["value"].is_loose, seen["value"].n_others, seen["key"].names) == (True, 1, {("id",), ("at", "id")})
    named = {row.offset: (row.timestamp, row.names) for row in key_names(records).collect()}
    assert len(named) == 299 and 7 not in named
    assert {named[0][1] == ["at", "id"], named[1][1] == ["id"], named[1][0].timestamp() == moment.timestamp()} == {True}


@pytest.mark.parametrize(
    ("held", "document"),
    [
        (None, {"a": 1, "A": 2}),
        (None, {"s": [{"x": 1, "X": 2}]}),
        ("id BIGINT", {"ID": 1}),
        ("id BIGINT", {"id": 1, "ID": 2}),
        ("s STRUCT<x: BIGINT>", {"s": {"X": 1}}),
        ("id BIGINT", {"s": {"x": 1, "X": 2}}),
        ("s BIGINT", {"\u017f": 1}),  # to Spark alone
        ("i BIGINT", {"\u0130": 1}),
        ("id BIGINT", numbered(2_500, 1)),
    ],
)
def test_fields_that_a_column_excludes_are_never_left_out_in_silence(
    held: str | None, document: dict[str, Any]
) -> None:
    with pytest.raises(UnfitRecordsError):
        inferred([json.dumps(document).encode()], None if held is None else StructType.fromDDL(held))


def test_a_field_of_nulls_and_the_keys_of_a_map_exclude_no_column() -> None:
    wide = numbered(101, 1) | {"F1": 1}
    held = inferred([b'{"id": 1, "ID": null}', json.dumps({"m": wide}).encode()])
    assert held == StructType.fromDDL("id BIGINT, m MAP<STRING, BIGINT>")
    assert inferred([b'{"ID": null, "m": {"a": 1, "A": 2}}'], held) == held
