"""Writes an Arrow column as Protobuf messages, all rows together: the bytes of google.protobuf's serialization.

Fields are in the order of their numbers, and the entries of a map in that of their keys: the same row has the same bytes.

Owns the check of a column's type against a message. What fits, and how, is in :mod:`~pykafka_wire.values.protobuf.write_plan`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pykafka_wire.values.protobuf.write_plan import WritePlan
from pykafka_wire.values.step_writing import StepWriter, refuse


class ColumnWriter(StepWriter):
    """Writes columns of one Arrow type as one message type; picklable.

    Args:
        descriptor: google.protobuf's, of the message.
        column_type: of the columns.
        prefix: the bytes before each value, such as Confluent's frame with the message indexes.

    Raises:
        SchemaError: the message cannot hold such a column.
    """

    def __init__(self, descriptor: Any, column_type: pa.DataType, prefix: bytes = b"") -> None:
        plan = WritePlan()
        step = plan.content(descriptor, column_type, "")
        refuse(plan.problems, column_type, "Protobuf")
        assert step is not None
        super().__init__(step, prefix)
