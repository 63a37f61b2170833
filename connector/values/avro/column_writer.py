"""Writes an Arrow column as Avro, all rows together.

Owns the check of a column's type against a schema. What fits, and how, is in :mod:`~pykafka_wire.values.avro.write_plan`.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from pykafka_wire.values.avro.schema import ParsedSchema, kind_of
from pykafka_wire.values.avro.write_plan import WritePlan
from pykafka_wire.values.avro.write_steps import DecimalNumber, Required, Text
from pykafka_wire.values.step_writing import StepWriter, refuse


class ColumnWriter(StepWriter):
    """Writes columns of one Arrow type under one schema; picklable, and needs no library where it writes.

    Args:
        column_type: of the columns.
        prefix: Confluent's frame before each value, if there is one.

    Raises:
        SchemaError: the schema cannot hold such a column.
    """

    def __init__(self, schema: ParsedSchema, column_type: pa.DataType, prefix: bytes = b"") -> None:
        plan = WritePlan(schema)
        step = plan.step(schema.root, column_type, "")
        refuse(plan.problems, column_type, "Avro")
        if prefix and kind_of(schema.definition(schema.root)) == "bytes":
            # Behind a frame, Confluent's serializers write the type bytes without its length.
            assert isinstance(step, Required) and isinstance(step.step, (Text, DecimalNumber))
            step = replace(step, step=replace(step.step, has_length=False))
        super().__init__(step, prefix)
