"""``decode_protobuf`` as it was before it read columns: a Python object for each message. What the faster way is measured against.

Executors get this module by value: they cannot import it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column

from pykafka_wire.values import Registry
from pykafka_wire.values.bulk.reading import OneByOne
from pykafka_wire.values.converter import Format, read_column
from pykafka_wire.values.protobuf.format import Protobuf


@dataclass(frozen=True)
class RowByRow:
    """A format whose readers leave every row to be read alone."""

    format: Format

    @property
    def framing(self) -> Any:
        return self.format.framing

    @property
    def has_message_indexes(self) -> bool:
        return self.format.has_message_indexes

    def reader(self, schema_id: Any, column_type: Any) -> OneByOne:
        return OneByOne(column_type, self.format.reader(schema_id, column_type).read_one)


def decode_protobuf_by_rows(registry: Registry, ddl: str) -> Callable[[str], Column]:
    """An Arrow UDF from binary to the type that ``ddl`` describes."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    wanted = DataType.fromDDL(ddl)
    arrow_type = to_arrow_type(wanted, timezone="UTC")
    value_format = RowByRow(Protobuf(registry=registry))

    def decode(rows):  # type: ignore[no-untyped-def]  # Spark would read annotations, and find strings
        return read_column(value_format, arrow_type, rows).column

    return arrow_udf(decode, wanted)
