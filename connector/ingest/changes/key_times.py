"""A normal form for times in the keys of changes, so that equal times are equal texts.

Debezium writes a MySQL ``TIMESTAMP(6)`` without decimal places in a snapshot, and with six in a change: two texts for the key of
one row. This module defines one text for each time in UTC. Other texts stay unchanged.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import DataType, StringType, StructType

#: The end of every text that needs normalising. Most texts do not end like this, and are spared the regular expression.
_END: Final = "0Z"
_TIME: Final = r"^(\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.0+|(\.\d*[1-9])0+)Z$"
_SHORT: Final = "$1$2Z"


def with_equal_times(key: Column, data_type: DataType) -> Column:
    """Return a key in which equal times are equal texts; in a struct, the columns are normalised."""
    if isinstance(data_type, StringType):
        return F.when(key.endswith(_END), F.regexp_replace(key, _TIME, _SHORT)).otherwise(key)
    if not isinstance(data_type, StructType) or not any(isinstance(field.dataType, StringType) for field in data_type):
        return key
    columns = [with_equal_times(key.getField(field.name), field.dataType).alias(field.name) for field in data_type]
    return F.when(key.isNotNull(), F.struct(*columns))


def equal_time_sql(text: str) -> str:
    """Return the SQL expression of :func:`with_equal_times` for an SQL expression of a text."""
    return f"IF(endswith({text}, '{_END}'), regexp_replace({text}, r'{_TIME}', '{_SHORT}'), {text})"
