"""Avro written here beside Spark's own ``to_avro``: the same bytes under the same schema."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.values.avro.column_writer import ColumnWriter
from pykafka_wire.values.avro.schema import parse

pytestmark = pytest.mark.spark


def differences(spark: Any, columns: dict[str, tuple[str, Any]]) -> list[tuple[str, int, bytes, bytes]]:
    """Where the values of columns, ``{name: (schema, pa.Array)}``, are other bytes than those of to_avro."""
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import col

    table = pa.table({name: column for name, (_, column) in columns.items()})
    frame = spark.createDataFrame(table).coalesce(1)
    theirs = frame.select([to_avro(col(name), schema).alias(name) for name, (schema, _) in columns.items()]).toArrow()
    found = []
    for name, (schema, column) in columns.items():
        ours = ColumnWriter(parse(schema), column.type).write(column).to_pylist()
        for row, (one, other) in enumerate(zip(ours, theirs[name].to_pylist(), strict=True)):
            if one != other:
                found.append((f"{name}: {schema}", row, one, other))
    return found


def test_a_map_is_written_as_by_to_avro(spark: Any) -> None:
    column = pa.array([[], [("a", 1)], [("b", None)], None], pa.map_(pa.string(), pa.int32()))
    schema = json.dumps({"type": "map", "values": ["null", "int"]})
    assert differences(spark, {"m": (schema, column)}) == []
