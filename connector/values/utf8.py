"""The format ``string``: values that are UTF-8 text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.arrays import Flags, not_utf8
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.registry.framing import Framing, SchemaId


@dataclass(frozen=True, slots=True)
class Utf8:
    """Values that are UTF-8, without a frame. Unlike a cast in Spark, a value that is not UTF-8 is an error."""

    framing: ClassVar[Framing] = "none"
    has_message_indexes: ClassVar[bool] = False

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> Utf8:
        return self

    def read_column(self, payloads: Payloads) -> tuple[Any, Flags]:
        """Return a pa.StringArray, and bool[n]: the rows that are not UTF-8."""
        column = payloads.array().view(pa.string())
        wrong = not_utf8(column)
        if wrong is None:
            return column, np.zeros(len(payloads), dtype=np.bool_)
        return pc.if_else(pa.array(wrong), "", column), wrong

    def read_one(self, payload: bytes) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"its byte {error.start} is not UTF-8") from error

    def encode(self, value: Any) -> bytes:
        return str(value).encode()
