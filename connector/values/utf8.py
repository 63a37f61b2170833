"""The format ``string``: values that are UTF-8 text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.arrays import Flags
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.registry.framing import Framing, SchemaId
from pykafka_wire.wire.records.arrays import binary_array


@dataclass(frozen=True, slots=True)
class Utf8:
    """Values that are UTF-8, without a frame. Unlike a cast in Spark, a value that is not UTF-8 is an error."""

    framing: ClassVar[Framing] = "none"
    has_message_indexes: ClassVar[bool] = False

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> Utf8:
        return self

    def read_column(self, payloads: Payloads) -> tuple[Any, Flags]:
        """pa.StringArray, and bool[n]: the rows that are not UTF-8."""
        n_rows = len(payloads)
        left = np.zeros(n_rows, dtype=np.bool_)
        column = payloads.array()
        try:
            return column.cast(pa.string()), left  # which checks all of them
        except pa.ArrowInvalid:
            pass
        texts: list[bytes] = []
        for row in range(n_rows):
            value = payloads[row]
            left[row] = not _is_utf8(value)
            texts.append(b"" if left[row] else value)
        return binary_array(texts).cast(pa.string()), left

    def read_one(self, payload: bytes) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"its byte {error.start} is not UTF-8") from error

    def encode(self, value: Any) -> bytes:
        return str(value).encode()


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
