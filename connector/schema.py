"""The columns of the source and of the sink, and how Spark's schema and Arrow's agree on them.

Columns and types equal those of ``spark-sql-kafka-0-10``, so that a query moves from one to the other unchanged.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

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
#: In DDL the session decides what ``timestamp`` means (``spark.sql.timestampType``); these words always mean the same.
_DDL_TYPES: Final = {"timestamp": "timestamp_ltz"}
#: Columns in which a record may have null.
_NULLABLE_COLUMNS: Final = frozenset({"key", "value", "headers"})


def source_schema(include_headers: bool) -> str:
    """The source's schema as DDL; ``headers`` is there only when asked for, as in Spark's own connector."""
    return ", ".join(
        f"{name} {_DDL_TYPES.get(spark_type, spark_type)}"
        for name, (spark_type, _) in SOURCE_COLUMNS.items()
        if include_headers or name != "headers"
    )


def check_source_schema(schema: StructType) -> tuple[str, ...]:
    """Names of the columns to read, in the order of ``schema``: all of the source's columns or a subset of them.

    Raises:
        SchemaError: a name or a type that the source does not have, or NOT NULL where Kafka has nulls.
    """
    for field in schema.fields:
        known = SOURCE_COLUMNS.get(field.name)
        if known is None:
            raise SchemaError(
                f"the source has no column {field.name!r}. Its columns are {source_schema(True)}; "
                ".schema(…) may name a subset of them."
            )
        spark_type = field.dataType.simpleString()
        if spark_type == "timestamp_ntz" and known[0] == "timestamp":
            raise SchemaError(
                f"column {field.name!r} is TIMESTAMP_LTZ, not TIMESTAMP_NTZ, which the word TIMESTAMP means in this session "
                "(spark.sql.timestampType). Write timestamp TIMESTAMP_LTZ in .schema(…), and cast the column in the query."
            )
        if spark_type != known[0]:
            raise SchemaError(
                f"column {field.name!r} is {known[0]}, not {spark_type}: name it with its own type in .schema(…) and "
                "cast it in the query."
            )
        if field.name in _NULLABLE_COLUMNS and not (field.nullable and _allows_nulls(field.dataType)):
            raise SchemaError(
                f"column {field.name!r} cannot be NOT NULL: Kafka records may have no key, no value (a tombstone) and no "
                f"headers. Leave NOT NULL out of .schema(…), and filter in the query: .where('{field.name} IS NOT NULL')."
            )
    return tuple(field.name for field in schema.fields)


def _allows_nulls(spark_type: DataType) -> bool:
    """Whether arrays and structs within a type may hold nulls."""
    if isinstance(spark_type, ArrayType):
        return spark_type.containsNull and _allows_nulls(spark_type.elementType)
    if isinstance(spark_type, StructType):
        return all(field.nullable and _allows_nulls(field.dataType) for field in spark_type.fields)
    return True


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
