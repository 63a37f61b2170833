"""What a value may take in memory for items that take no bytes of it, or few.

A null is one byte, and has a place in each column of the record that it stands for. Shared by both ways of reading, in columns and
one by one. Which schemas are not read at all, is in :mod:`~pykafka_wire.values.avro.schema`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: A quarter of a million nulls for records of 30 numbers, or an array of any length in which every tenth is a record. Twice what a
#: Protobuf value may take: its items have two bytes at least, Avro's one.
FREE_BYTES: Final = 64 << 20
FREE_PER_BYTE: Final = 64
#: The offset of a text, a list or a map.
_OFFSET_BYTES: Final = 4


def item_bytes(column_type: pa.DataType) -> int:
    """What an element of a column takes, null or not, without its text or the items of its own arrays."""
    if pa.types.is_struct(column_type):
        return sum(item_bytes(field.type) for field in column_type)
    if pa.types.is_null(column_type):
        return 0
    try:
        return -(-int(column_type.bit_width) // 8)
    except ValueError:  # a type without a fixed width
        return _OFFSET_BYTES
