"""The Arrow types of a read's columns; knows nothing of Spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: The Arrow type that Spark expects for each source column (``to_arrow_schema(schema, timezone="UTC")``).
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
}
