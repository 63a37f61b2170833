"""The columns of a read, with their types in Spark's words.

Columns and types equal those of ``spark-sql-kafka-0-10``, so that a query moves from one to the other unchanged. Their Arrow types
are in :mod:`~pykafka_wire.columns.arrow_types`: this module imports nothing, because Spark asks a new process for the schema.
"""

from __future__ import annotations

from typing import Final

#: Source columns in order, with Spark's type names.
SOURCE_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
#: Options, in lower case, with which a read has other columns than these, or other types.
SCHEMA_OPTIONS: Final = frozenset({"keyformat", "valueformat", "columns"})
#: In DDL the session decides what ``timestamp`` means (``spark.sql.timestampType``); these words always mean the same.
_DDL_TYPES: Final = {"timestamp": "timestamp_ltz"}


def source_schema(include_headers: bool) -> str:
    """Return the source's schema as DDL; ``headers`` is there only when asked for, as in Spark's own connector."""
    return ", ".join(
        f"{name} {_DDL_TYPES.get(known, known)}"
        for name, known in SOURCE_COLUMNS.items()
        if include_headers or name != "headers"
    )
