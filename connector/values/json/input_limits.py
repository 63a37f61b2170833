"""How many fields a JSON document may have in the items of its arrays and maps: ``{}`` or ``null`` can stand for a wide struct.

A document's own fields are in proportion to the column's type, and an item's to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.arrow_conversion import conversion_to
from pykafka_wire.values.single_json.encodings import UNKNOWN, Encodings

#: Of all items of a document, or of all rows of a block. In Arrow a field takes 16 bytes at most.
MAX_FIELDS: Final = 1 << 22


def document_conversion(column_type: pa.DataType, encodings: Encodings = UNKNOWN) -> Callable[[Any, int], Any]:
    """Return what turns a parsed document, of so many bytes, into a value that ``pa.array(…, column_type)`` takes; it raises
    DecodeError.

    Raises:
        OptionError: no value has such a type.
    """
    convert, count = conversion_to(column_type, encodings), _counter(column_type)
    # An item has two bytes at least, so that smaller documents need not be counted.
    few_bytes = 2 * MAX_FIELDS // max(item_fields(column_type), 1)

    def convert_counted(document: Any, n_bytes: int) -> Any:
        if count is not None and n_bytes > few_bytes and count(document) > MAX_FIELDS:
            raise DecodeError(f"its arrays and maps hold more than {MAX_FIELDS} fields of the column's type")
        return convert(document)

    return convert_counted


def n_fields(column_type: pa.DataType) -> int:
    """Return the fields of a type and of the structs in it, without what is in arrays and maps."""
    return 1 + sum(n_fields(field.type) for field in column_type) if pa.types.is_struct(column_type) else 1


def item_fields(column_type: pa.DataType) -> int:
    """Return what :func:`n_fields` does, of the largest item of an array or map in a type; 0 where it has none."""
    items = _items(column_type)
    if items is not None:
        return max(sum(map(n_fields, items)), *map(item_fields, items))
    return max((item_fields(field.type) for field in column_type), default=0) if pa.types.is_struct(column_type) else 0


def _items(column_type: pa.DataType) -> list[pa.DataType] | None:
    """Return what an array, or a map, has for each item."""
    if pa.types.is_map(column_type):
        return [column_type.key_type, column_type.item_type]
    return [column_type.value_type] if pa.types.is_list(column_type) else None


def _counter(column_type: pa.DataType) -> Callable[[Any], int] | None:
    """Count the fields of the items in a parsed value; None where there are none. What has another type counts as nothing."""
    items = _items(column_type)
    if items is not None:
        size, inner = sum(map(n_fields, items)), _counter(items[-1])

        def count_items(value: Any) -> int:
            if not isinstance(value, (list, dict)):
                return 0
            values: Iterable[Any] = value.values() if isinstance(value, dict) else value
            return len(value) * size + (0 if inner is None else sum(map(inner, values)))

        return count_items
    if not pa.types.is_struct(column_type):
        return None
    fields = [(field.name, counter) for field in column_type if (counter := _counter(field.type)) is not None]

    def count_fields(value: Any) -> int:
        return sum(count(value.get(name)) for name, count in fields) if isinstance(value, dict) else 0

    return count_fields if fields else None
