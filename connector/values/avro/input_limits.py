"""How far a few bytes of Avro can go: values that take no bytes at all, and records in records without end.

fastavro believes a count that an array states, and reads a record in a record by recursion in C, without a limit: ten bytes
can take a gigabyte, five thousand end the process. Most schemas allow neither. For those that do, the bytes are walked first,
in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pykafka_wire.errors import PoisonError

#: Array items, and fields of a record, that take no bytes (nulls, empty records). Few schemas have any.
_MAX_FREE: Final = 1_000
#: Python's own stack has a thousand frames, of which each level takes up to three.
_MAX_DEPTH: Final = 150
#: An Arrow array's offsets have 32 bits.
_MAX_FIXED_SIZE: Final = (1 << 31) - 1
#: One byte of a value becomes a whole symbol. Names of people's symbols are far shorter.
_MAX_SYMBOL: Final = 1_000

#: From a position to the one behind the value.
Skip = Callable[[bytes, int, "_Spent"], int]

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class _Spent:
    """What one value has used of its limits."""

    __slots__ = ("depth", "n_free")

    def __init__(self) -> None:
        self.depth = 0
        self.n_free = 0


class Bounds:
    """What a parsed schema allows; ``check`` is None where no bytes can get out of hand under it.

    Raises:
        PoisonError: one value of the schema takes no bytes and holds too many others, or itself; or the schema holds what
            fastavro lets pass and no value can have: a union without branches, an enum without symbols, a size below 0.
    """

    def __init__(self, schema: Any, named: dict[str, Any]) -> None:
        self._named = named
        self._free: dict[str, int | None] = {}
        self._skips: dict[str, Skip] = {}
        #: The records around the schema that is looked at.
        self._around: set[str] = set()
        self._is_needed = False
        skip = self._skip(schema)
        if self._n_free(schema) > _MAX_FREE:
            raise PoisonError("its schema holds too many values that take no bytes")
        self.check = self._checked(skip) if self._is_needed else None

    def _checked(self, skip: Skip) -> Callable[[bytes], None]:
        def check(payload: bytes) -> None:
            """Raises PoisonError where fastavro must not read the payload."""
            try:
                skip(payload, 0, _Spent())
            except IndexError as error:
                raise PoisonError("it is shorter than its schema says") from error

        return check

    def _named_schema(self, schema: Any) -> Any:
        return self._named[schema] if isinstance(schema, str) and schema in self._named else schema

    def _n_free(self, schema: Any) -> int:
        """How many values come with one value that takes no bytes; 0 where it takes some."""
        schema = self._named_schema(schema)
        if not isinstance(schema, dict):
            return 1 if schema == "null" else 0
        kind = schema["type"]
        if kind == "fixed":
            return 1 if schema["size"] <= 0 else 0
        if kind not in ("record", "error"):
            return self._n_free(kind) if isinstance(kind, (dict, list)) or kind == "null" else 0
        name = schema["name"]
        if name not in self._free:
            self._free[name] = None
            self._free[name] = min(_MAX_FREE + 1, 1 + sum(self._n_free(each["type"]) for each in schema["fields"]))
        found = self._free[name]
        if found is None:
            raise PoisonError(f"its schema's record {name} holds itself, so that no value ends")
        return found

    def _takes_bytes(self, schema: Any) -> bool:
        schema = self._named_schema(schema)
        if isinstance(schema, dict):
            kind = schema["type"]
            if kind in ("record", "error"):
                return any(self._takes_bytes(each["type"]) for each in schema["fields"])
            if kind == "fixed":
                return bool(schema["size"] > 0)
            return self._takes_bytes(kind) if isinstance(kind, (dict, list)) or kind == "null" else True
        return bool(schema != "null")

    def _skip(self, schema: Any) -> Skip:
        schema = self._named_schema(schema)
        if isinstance(schema, list):
            if not schema:
                raise PoisonError("its schema has a union without branches")
            return _union([self._skip(each) for each in schema])
        if not isinstance(schema, dict):
            return _primitive(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            is_free = not self._takes_bytes(schema["items"])
            self._is_needed |= is_free
            return _blocks(self._skip(schema["items"]), self._n_free(schema["items"]) if is_free else 0)
        if kind == "map":
            item, key = self._skip(schema["values"]), _primitive("string")
            return _blocks(lambda data, at, spent: item(data, key(data, at, spent), spent), 0)
        if kind == "enum":
            if not schema["symbols"] or max(map(len, schema["symbols"])) > _MAX_SYMBOL:
                raise PoisonError(
                    f"its schema's enum {schema['name']} has no symbols, or a symbol above {_MAX_SYMBOL} characters"
                )
            return _primitive("int")
        if kind == "fixed":
            size = schema["size"]
            if type(size) is not int or not 0 <= size <= _MAX_FIXED_SIZE:
                raise PoisonError(
                    f"the size of its schema's fixed {schema['name']} is not an integer from 0 to {_MAX_FIXED_SIZE}"
                )
            return _fixed(size)
        return self._skip(kind) if isinstance(kind, (dict, list)) else _primitive(kind)

    def _record(self, schema: dict[str, Any]) -> Skip:
        name = schema["name"]
        if name not in self._skips:
            fields: list[Skip] = []
            self._skips[name] = _record(fields)
            self._around.add(name)
            fields += [self._skip(each["type"]) for each in schema["fields"]]
            self._around.remove(name)
        self._is_needed |= name in self._around
        return self._skips[name]


def _record(fields: list[Skip]) -> Skip:
    def skip(data: bytes, at: int, spent: _Spent) -> int:
        spent.depth += 1
        if spent.depth > _MAX_DEPTH:
            raise PoisonError(f"its records are nested more than {_MAX_DEPTH} deep")
        for field in fields:
            at = field(data, at, spent)
        spent.depth -= 1
        return at

    return skip


def _union(branches: list[Skip]) -> Skip:
    def skip(data: bytes, at: int, spent: _Spent) -> int:
        branch, at = _long(data, at)
        if not 0 <= branch < len(branches):
            raise PoisonError("a union's branch that its schema does not have")
        return branches[branch](data, at, spent)

    return skip


def _blocks(item: Skip, n_free: int) -> Skip:
    """Items of an array or a map; ``n_free`` where each takes no bytes."""

    def skip(data: bytes, at: int, spent: _Spent) -> int:
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _long(data, at)
            if n_free:
                spent.n_free += count * n_free
                if spent.n_free > _MAX_FREE:
                    raise PoisonError(f"its arrays have more than {_MAX_FREE} items that take no bytes")
                continue
            for _ in range(count):  # each takes a byte at least, or the data ends
                at = item(data, at, spent)

    return skip


def _primitive(kind: Any) -> Skip:
    if kind in _SIZES:
        return _fixed(_SIZES[kind])
    if kind in ("int", "long"):
        return lambda data, at, spent: _long(data, at)[1]
    if kind in ("bytes", "string"):
        return _text
    raise PoisonError("its schema has a type that is unknown")


def _text(data: bytes, at: int, spent: _Spent) -> int:
    length, at = _long(data, at)
    return _advanced(data, at, length)


def _fixed(size: int) -> Skip:
    return lambda data, at, spent: _advanced(data, at, size)


def _advanced(data: bytes, at: int, length: int) -> int:
    if length < 0 or at + length > len(data):
        raise IndexError
    return at + length


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise PoisonError("an integer of more than ten bytes")
