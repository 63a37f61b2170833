"""Which schemas are not read: those whose values take no bytes and are many, or without end, and those that no value can have.

Most schemas allow neither. What bytes can claim under the others is limited where they are read, in
:mod:`~pykafka_wire.values.avro.cursor`. So is the memory that a value's array items take: a null is one byte, and has a place in
each column of the record that it stands for.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError

#: A quarter of a million nulls for records of 30 numbers, or an array of any length in which every tenth is a record. Twice what a
#: Protobuf value may take: its items have two bytes at least, Avro's one.
FREE_BYTES: Final = 64 << 20
FREE_PER_BYTE: Final = 64
#: The offset of a text, a list or a map.
_OFFSET_BYTES: Final = 4
#: Values that come with one value and take no bytes (nulls, empty records). Few schemas have any.
_MAX_FREE: Final = 1_000
#: An Arrow array's offsets have 32 bits.
_MAX_FIXED_SIZE: Final = (1 << 31) - 1
#: One byte of a value becomes a whole symbol. Names of people's symbols are far shorter.
_MAX_SYMBOL: Final = 1_000


def check_limits(schema: Any, named: dict[str, Any]) -> None:
    """Raises DecodeError for a valid schema that is not read: see the module's text."""
    limits = _Limits(named)
    limits.check(schema)
    if limits.n_free(schema) > _MAX_FREE:
        raise DecodeError("its schema holds too many values that take no bytes")


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


class _Limits:
    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._free: dict[str, int | None] = {}
        self._checked: set[str] = set()

    def n_free(self, schema: Any) -> int:
        """How many values come with one value that takes no bytes; 0 where it takes some."""
        schema = self._named_schema(schema)
        if not isinstance(schema, dict):
            return 1 if schema == "null" else 0
        kind = schema["type"]
        if kind == "fixed":
            return 1 if schema["size"] == 0 else 0
        if kind not in ("record", "error"):
            return 1 if kind == "null" else 0
        name = schema["name"]
        if name not in self._free:
            self._free[name] = None
            self._free[name] = min(_MAX_FREE + 1, 1 + sum(self.n_free(each["type"]) for each in schema["fields"]))
        found = self._free[name]
        if found is None:
            raise DecodeError(f"its schema's record {name} contains itself without an end")
        return found

    def check(self, schema: Any) -> None:
        schema = self._named_schema(schema)
        if isinstance(schema, list):
            if not schema:
                raise DecodeError("its schema has a union without branches")
            for each in schema:
                self.check(each)
            return
        if not isinstance(schema, dict):
            return
        kind = schema["type"]
        if kind in ("record", "error"):
            if schema["name"] not in self._checked:
                self._checked.add(schema["name"])
                for each in schema["fields"]:
                    self.check(each["type"])
        elif kind in ("array", "map"):
            self.check(schema["items" if kind == "array" else "values"])
        elif kind == "enum":
            if not schema["symbols"] or max(map(len, schema["symbols"])) > _MAX_SYMBOL:
                raise DecodeError(
                    f"its schema's enum {schema['name']} has no symbols, or a symbol above {_MAX_SYMBOL} characters"
                )
        elif kind == "fixed" and (type(schema.get("size")) is not int or not 0 <= schema["size"] <= _MAX_FIXED_SIZE):
            raise DecodeError(
                f"the size of its schema's fixed {schema['name']} is not an integer from 0 to {_MAX_FIXED_SIZE}"
            )

    def _named_schema(self, schema: Any) -> Any:
        return self._named[schema] if isinstance(schema, str) and schema in self._named else schema
