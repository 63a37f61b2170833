"""Times in the keys of changes, as texts that are equal where the times are.

Debezium writes a ``TIMESTAMP(6)`` of MySQL without decimal places in a snapshot, and with six in a change: two texts of one row.
Owns the one text of a time in UTC. Other texts stay as they are.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import DataType, StringType, StructType

#: A time with zeros that say nothing; most texts do not end so, and cost no regular expression.
_END: Final = "0Z"
_TIME: Final = r"^(\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.0+|(\.\d*[1-9])0+)Z$"
_SHORT: Final = "$1$2Z"


def with_equal_times(key: Column, data_type: DataType) -> Column:
    """Return a key in which equal times are equal texts; of a struct, in its columns."""
    if isinstance(data_type, StringType):
        return F.when(key.endswith(_END), F.regexp_replace(key, _TIME, _SHORT)).otherwise(key)
    if not isinstance(data_type, StructType) or not any(isinstance(field.dataType, StringType) for field in data_type):
        return key
    columns = [with_equal_times(key.getField(field.name), field.dataType).alias(field.name) for field in data_type]
    return F.when(key.isNotNull(), F.struct(*columns))


def equal_time_sql(text: str) -> str:
    """Return the SQL of :func:`with_equal_times` for the SQL of a text."""
    return f"IF(endswith({text}, '{_END}'), regexp_replace({text}, r'{_TIME}', '{_SHORT}'), {text})"
