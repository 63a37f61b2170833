"""The columns of a read and their Arrow types; knows nothing of Spark.

Columns and types equal those of ``spark-sql-kafka-0-10``, so that a query moves from one to the other unchanged.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

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


def decoded_columns(names: tuple[str, ...]) -> Columns:
    """What the decoder must decode for these columns; topic, partition and offset come with every record."""
    return Columns(
        key="key" in names or "keyError" in names,
        value="value" in names or "valueError" in names,
        headers="headers" in names,
        timestamp="timestamp" in names,
        timestamp_type="timestampType" in names,
    )
