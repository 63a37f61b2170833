"""The Spark type of each Avro schema, beside the one that Spark's own ``from_avro`` has for it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError, SchemaError
from pykafka_wire.values.avro.schema import parse
from pykafka_wire.values.avro.types import arrow_type
from tests.connector.values.avro_samples import Samples

N_RANDOM = 300


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **({"name": "F"} if kind == "fixed" else {}), **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
EMPTY = record(name="Empty")
DATE = logical("int", "date")
LONG_LOGICAL = [
    "time-micros",
    *(f"{kind}timestamp-{unit}" for kind in ("", "local-") for unit in ("millis", "micros", "nanos")),
]
SCHEMAS: list[Any] = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    ENUM,
    {"type": "fixed", "name": "F", "size": 7},
    # Logical types, and such as are on the wrong type, not valid, or unknown.
    *(logical("long", each) for each in LONG_LOGICAL),
    *(logical("int", each) for each in (*LONG_LOGICAL, "date", "time-millis")),
    logical("long", "date"),
    logical("string", "uuid"),
    *(logical("fixed", "uuid", size=size) for size in (15, 16)),
    *(logical("fixed", "duration", size=size) for size in (11, 12)),
    logical("bytes", "big-decimal"),
    logical("string", "something"),
    logical("string", "decimal", precision=3),
    *(
        logical("bytes", "decimal", precision=p, scale=s)
        for p, s in ((9, 2), (38, 38), (38, 0), (0, 0), (3, 4), (3, -1))
    ),
    logical("bytes", "decimal", precision=9),
    logical("bytes", "decimal"),
    *(logical("fixed", "decimal", size=size, precision=5, scale=1) for size in (2, 3, 9)),
    # Unions.
    *([kind] for kind in ("int", "string", "null")),
    *(["null", kind] for kind in ("int", "string", DATE, ENUM, EMPTY)),
    [EMPTY, "null"],
    ["int", "long"],
    ["long", "null", "int"],
    ["null", "float", "double"],
    [DATE, "long"],
    [logical("long", "timestamp-millis"), "null", "int"],
    ["int", "float"],
    ["int", "string"],
    ["null", "int", "long", "double"],
    ["string", "null", "bytes"],
    [ENUM, EMPTY, {"type": "array", "items": ["null", "int", "string"]}],
    [record(["int", "string"], "string"), "null", {"type": "map", "values": ["float", "double"]}],
    # Nested.
    EMPTY,
    record("int", record(["null", record("string", name="C")], name="B"), {"type": "array", "items": "C"}),
    {"type": "array", "items": "null"},
    {"type": "array", "items": {"type": "array", "items": ["null", "int"]}},
    {"type": "map", "values": {"type": "map", "values": DATE}},
    {"type": "record", "name": "a.b.R", "fields": [{"name": "x", "type": ENUM}, {"name": "X", "type": "a.b.E"}]},
]


def test_each_type_is_the_one_that_from_avro_gives(spark: Any) -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    java = spark._jvm.org.apache
    schemas = [*SCHEMAS, *(Samples(seed).record()[0] for seed in range(N_RANDOM))]
    for schema in schemas:
        text = json.dumps(schema)
        theirs = java.spark.sql.avro.SchemaConverters.toSqlType(java.avro.Schema.Parser().parse(text)).dataType()
        ours = from_arrow_type(arrow_type(parse(text)))
        assert json.loads(ours.json()) == json.loads(theirs.asNullable().json()), text


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(["null", "R"]), r"the schema\.f0 is the record R again"),
        (record({"type": "map", "values": {"type": "array", "items": "R"}}), r"the schema\.f0\[\]\[\] is the record R"),
        (record(["int", "string", "R"]), r"the schema\.f0\.member2 is the record R"),
    ],
)
def test_a_schema_without_a_type_is_an_error_here_as_for_from_avro(spark: Any, schema: Any, reason: str) -> None:
    java = spark._jvm.org.apache
    text = json.dumps(schema)
    with pytest.raises(Exception, match=r"(?s)recursive|DECIMAL_PRECISION"):
        java.spark.sql.avro.SchemaConverters.toSqlType(java.avro.Schema.Parser().parse(text))
    with pytest.raises(SchemaError, match=reason):
        arrow_type(parse(text))


def test_a_schema_of_many_parts_is_an_error_and_takes_no_memory() -> None:
    schema: Any = record("int", name="L0")
    for level in range(1, 30):
        schema = record(["null", schema], *[["null", f"L{level - 1}"]] * 7, name=f"L{level}")
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        arrow_type(parse(json.dumps(schema)))


def test_a_schema_is_parsed_after_those_it_refers_to() -> None:
    inner = json.dumps(record("long", name="shop.Item"))
    assert arrow_type(parse(json.dumps({"type": "array", "items": "shop.Item"}), [inner])) == pa.list_(
        pa.field("element", pa.struct([("f0", pa.int64())]))
    )
    with pytest.raises(DecodeError, match="its schema is not valid"):
        parse('{"type": "array", "items": "shop.Item"}')
