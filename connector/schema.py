"""The columns of the source and of the sink, and how Spark's schema and Arrow's agree on them.

Columns and types equal those of ``spark-sql-kafka-0-10``, so that a query moves from one to the other unchanged.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from pykafka_wire.errors import SchemaError
from pykafka_wire.wire.records.decode import Columns

#: Source columns in order: Spark's type name and the Arrow type that Spark expects for it
#: (``to_arrow_schema(schema, timezone="UTC")``).
SOURCE_COLUMNS: Final[dict[str, tuple[str, pa.DataType]]] = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": ("int", pa.int32()),
    "headers": (
        "array<struct<key:string,value:binary>>",
        pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    ),
}


def source_schema(include_headers: bool) -> str:
    """The source's schema as DDL; ``headers`` is there only when asked for, as in Spark's own connector."""
    return ", ".join(
        f"{name} {spark_type}"
        for name, (spark_type, _) in SOURCE_COLUMNS.items()
        if include_headers or name != "headers"
    )


def check_source_schema(schema: StructType) -> tuple[str, ...]:
    """Names of the columns to read, in the order of ``schema``: all of the source's columns or a subset of them.

    Raises:
        SchemaError: a name or a type that the source does not have.
    """
    for field in schema.fields:
        known = SOURCE_COLUMNS.get(field.name)
        if known is None:
            raise SchemaError(
                f"the source has no column {field.name!r}. Its columns are {source_schema(True)}; "
                ".schema(…) may name a subset of them."
            )
        spark_type = field.dataType.simpleString()
        if spark_type != known[0]:
            raise SchemaError(
                f"column {field.name!r} is {known[0]}, not {spark_type}: name it with its own type in .schema(…) and "
                "cast it in the query."
            )
    return tuple(field.name for field in schema.fields)


def decoded_columns(names: tuple[str, ...]) -> Columns:
    """What the decoder must decode for these columns; topic, partition and offset come with every record."""
    return Columns(
        key="key" in names,
        value="value" in names,
        headers="headers" in names,
        timestamp="timestamp" in names,
        timestamp_type="timestampType" in names,
    )


def arrow_schema(schema: StructType) -> Any:  # Any: pyarrow has no types
    """The Arrow schema that Spark demands of each batch, field by field and nullability included."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2 there is no such argument: UTC is the default.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)
