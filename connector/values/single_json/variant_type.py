"""Spark's VARIANT as a type of Arrow."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: As Spark has it in Arrow (``to_arrow_type(VariantType())``): the metadata tells it from a struct.
VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def is_variant(column_type: pa.DataType) -> bool:
    """Return whether an Arrow type is Spark's VARIANT."""
    if not pa.types.is_struct(column_type) or column_type.num_fields != 2:
        return False
    fields = {field.name: field for field in column_type}
    return "value" in fields and (getattr(fields.get("metadata"), "metadata", None) or {}).get(b"variant") == b"true"


def holds_variant(column_type: pa.DataType) -> bool:
    """Return whether it is one, or a part of it is."""
    if is_variant(column_type):
        return True
    return any(holds_variant(column_type.field(nth).type) for nth in range(column_type.num_fields))
