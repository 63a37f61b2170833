"""Arrow columns as the bytes of Kafka records, whatever the format: the contract of its writers, and rows that do not fit.

Knows neither Spark nor any format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from pykafka_wire.errors import EncodeError
from pykafka_wire.wire.records.arrays import to_arrow


class ColumnWriter(Protocol):
    """Writes columns of one Arrow type under one schema. Made on the driver, where the two are checked once; picklable."""

    def write(self, column: Any) -> Any:
        """pa.BinaryArray, as long as ``column``: each row's bytes; null for null.

        Raises:
            EncodeError: rows do not fit the schema.
        """


@runtime_checkable
class WritesColumns(Protocol):
    """A format that writes whole columns."""

    def column_writer(self, column_type: pa.DataType) -> ColumnWriter:
        """What writes columns of a type, with the frame of the format.

        Raises:
            SchemaError: the schema cannot hold such a column.
            DecodeError: the schema is not valid.
            RegistryError: a schema that it refers to cannot be looked up.
        """


@dataclass(frozen=True, slots=True)
class Encoded:
    """A column's bytes, and row number -> reason for the rows that could not be written, which are null in ``column``."""

    column: Any
    reasons: dict[int, str]


def encode(writer: ColumnWriter, column: Any) -> Encoded:
    """All rows of ``column`` that fit. No policy is applied to the others."""
    reasons: dict[int, str] = {}
    rows = np.arange(len(column))
    while True:
        try:
            written = writer.write(column)
            break
        except EncodeError as error:
            reasons |= {int(rows[row]): reason for row, reason in error.reasons.items()}
            fit = np.ones(len(rows), dtype=np.bool_)
            fit[list(error.reasons)] = False
            kept = np.flatnonzero(fit)
            column, rows = column.take(to_arrow(kept)), rows[kept]
    if reasons:
        places = np.full(len(rows) + len(reasons), len(rows))
        places[rows] = np.arange(len(rows))
        written = pa.concat_arrays([written, pa.nulls(1, pa.binary())]).take(to_arrow(places))
    return Encoded(written, reasons)
