"""Avro written here beside Spark's own ``to_avro``: the same bytes under the same schema, and the schemas that columns have.

`make test` tries some schemas, `make conformance-values` more (CONFORMANCE_VALUES).
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.values.avro.column_writer import column_writer
from pykafka_wire.values.avro.schema import parse
from pykafka_wire.values.avro.types import arrow_type, derived_schema
from tests.connector.values.avro_samples import Samples
from tests.connector.values.test_avro_column_writer import WritableSamples, row_of

pytestmark = pytest.mark.spark
#: Schemas of one query, one a column, and rows of each.
N_SCHEMAS, N_ROWS = 8, 25
N_QUERIES = max(int(os.environ.get("CONFORMANCE_VALUES", "0")) // 500, 1)


def differences(spark: Any, columns: dict[str, tuple[str, Any]]) -> list[tuple[str, int, bytes, bytes]]:
    """Where the values of columns, ``{name: (schema, pa.Array)}``, are other bytes than those of to_avro."""
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import from_arrow_schema

    table = pa.table({name: column for name, (_, column) in columns.items()})
    frame = spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True)).coalesce(1)
    theirs = frame.select([to_avro(col(name), schema).alias(name) for name, (schema, _) in columns.items()]).toArrow()
    found = []
    for name, (schema, column) in columns.items():
        ours = column_writer(parse(schema), column.type).write(column).to_pylist()
        for row, (one, other) in enumerate(zip(ours, theirs[name].to_pylist(), strict=True)):
            if one != other:
                found.append((f"{name}: {schema}", row, one, other))
    return found


def sample(seed: int) -> tuple[str, Any] | None:
    """A random schema and a column of it, with a null at its end; None for schemas that are left out here.

    Left out are maps, whose entries to_avro writes in the order of a hash table, the type null, and records without fields.
    """
    samples = WritableSamples(seed)
    schema, _ = samples.record()
    text = json.dumps(schema)
    if any(each in text for each in ('"map"', '"fields": []', '"type": "null"', '"items": "null"')):
        return None
    parsed = parse(text)
    rows = [row_of(schema, samples.value(schema), parsed) for _ in range(N_ROWS - 1)]
    return text, pa.array([*rows, None], arrow_type(parsed))


def test_random_values_have_the_bytes_of_to_avro(spark: Any) -> None:
    samples = filter(None, map(sample, itertools.count(1)))
    n_values = 0
    for _ in range(N_QUERIES):
        columns = {f"c{nth}": next(samples) for nth in range(N_SCHEMAS)}
        assert differences(spark, columns) == []
        n_values += N_SCHEMAS * N_ROWS
    print(f"{N_QUERIES * N_SCHEMAS} schemas, {n_values} values: the bytes of to_avro")


def test_a_map_is_written_as_by_to_avro(spark: Any) -> None:
    column = pa.array([[], [("a", 1)], [("b", None)], None], pa.map_(pa.string(), pa.int32()))
    schema = json.dumps({"type": "map", "values": ["null", "int"]})
    assert differences(spark, {"m": (schema, column)}) == []


def test_a_derived_schema_has_the_types_that_spark_gives(spark: Any) -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    kinds = [Samples(seed).record()[1] for seed in range(40)]
    kinds.append(
        pa.struct(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("small", pa.int16()),
                pa.field("items", pa.list_(pa.field("element", pa.int8(), nullable=False))),
            ]
        )
    )
    java = spark._jvm.org.apache.spark.sql
    for kind in kinds:
        spark_type = java.types.DataType.fromJson(from_arrow_type(kind).json())
        theirs = java.avro.SchemaConverters.toAvroType(spark_type, False, "topLevelRecord", "").toString()
        assert comparable(derived_schema(kind)) == comparable(theirs), kind


def comparable(text: str) -> Any:
    """A schema without what differs on purpose: a nullable field's default, and the order of its branches."""

    def plain(schema: Any, namespace: str) -> Any:
        if isinstance(schema, list):
            return sorted((plain(each, namespace) for each in schema), key=json.dumps)
        if not isinstance(schema, dict):
            return schema
        found = {name: each for name, each in schema.items() if name not in ("default", "namespace", "name")}
        inner = schema.get("namespace", namespace)
        if "name" in schema and schema["type"] in ("record", "fixed"):
            found["full name"] = f"{inner}.{schema['name']}" if inner else schema["name"]
        elif "name" in schema:
            found["name"] = schema["name"]
        return {
            name: [plain(one, inner) for one in each] if name == "fields" else plain(each, inner)
            for name, each in found.items()
        }

    return plain(json.loads(text), "")
