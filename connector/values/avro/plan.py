"""Makes the steps that read values, from the writer's schema, the reader's schema and the wanted Arrow type.

Owns the part of Avro's schema resolution (https://avro.apache.org/docs/1.12.0/specification/#schema-resolution) that is done in
columns. The rest, and schemas that do not fit the wanted type, become a step in which all lanes fail:
:class:`~pykafka_wire.values.avro.scalar_steps.Unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.values.avro import nested_steps, scalar_steps
from pykafka_wire.values.avro.scalar_steps import Step
from pykafka_wire.wire.records.arrays import binary_array

Schema = Any  # as fastavro parses it: a name, a list (union) or a dict
Named = Mapping[str, Schema]
#: Converts a reader's default to a pa.Array of one element of a type. May raise any exception.
MakeConstant = Callable[[Any, pa.DataType], Any]

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
#: Written type -> types that it may be read as (the specification's promotions).
_PROMOTIONS: Final[dict[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
#: Each use of a type in a schema is a step. More than this is an attack, not a topic's schema.
_MAX_STEPS: Final = 10_000


class Plan:
    """Makes the steps of one pair of schemas.

    Args:
        written: the named types of the writer's schema.
        read: the named types of the reader's.
        constant: makes a column of a reader's default.
    """

    def __init__(self, written: Named, read: Named, constant: MakeConstant) -> None:
        self._written = written
        self._read = read
        self._constant = constant
        self._n_steps = 0

    def step(
        self, written: Schema, read: Schema | None, wanted: pa.DataType | None, inside: frozenset[str] = frozenset()
    ) -> Step:
        """The step that reads a value of ``written`` into ``wanted``, resolved to ``read`` if that is given.

        If ``wanted`` is None, the step only skips values. ``inside`` has the names of the enclosing records.
        """
        written = _definition(written, self._written)
        read = None if read is None else _definition(read, self._read)
        unreadable = scalar_steps.Unreadable(pa.null() if wanted is None else wanted)
        self._n_steps += 1
        if self._n_steps > _MAX_STEPS:
            return unreadable
        if isinstance(written, list):
            branches = [self.step(each, read, wanted, inside) for each in written]
            return nested_steps.Union(branches, pa.null() if wanted is None else wanted)
        if isinstance(read, list):
            # The specification takes the first matching branch, Java the first one without promotion: supported here
            # if both are the same branch.
            matching = [each for each in (_definition(one, self._read) for one in read) if _matches(written, each)]
            if not matching or (len(matching) > 1 and _kind(matching[0]) != _kind(written)):
                return unreadable
            read = matching[0]
        if read is not None and not _matches(written, read):
            return unreadable
        kind = _kind(written)
        if wanted is None:
            return self._skip(written, kind, inside)
        if kind == "null":
            return scalar_steps.Null(wanted)
        if kind == "record":
            return self._record(written, read, wanted, inside)
        if kind in ("array", "map"):
            return self._items(written, read, wanted, inside)
        if kind == "enum":
            symbols = tuple(written["symbols"])
            if not pa.types.is_string(wanted) or (read is not None and not set(symbols) <= set(read["symbols"])):
                return unreadable
            return scalar_steps.Enum(binary_array([each.encode() for each in symbols]).view(pa.string()))
        return _scalar(written, written if read is None else read, wanted) or unreadable

    def _skip(self, written: Schema, kind: str, inside: frozenset[str]) -> Step:
        if kind == "record":
            if written["name"] in inside:
                return scalar_steps.Unreadable(pa.null())
            inside |= {written["name"]}
            fields = [(self.step(field["type"], None, None, inside), -1) for field in written["fields"]]
            return nested_steps.Record(fields, (), pa.struct([]))
        if kind in ("array", "map"):
            item = self.step(written["items" if kind == "array" else "values"], None, None, inside)
            key = scalar_steps.Text(pa.string(), True) if kind == "map" else None
            return nested_steps.items(item, pa.null(), key)
        if kind == "fixed":
            return scalar_steps.Fixed(written["size"])
        made: dict[str, Step] = {
            "null": scalar_steps.Null(pa.null()),
            "boolean": scalar_steps.Boolean(),
            "float": scalar_steps.Floating("<f4", pa.float32()),
            "double": scalar_steps.Floating("<f8", pa.float64()),
            "bytes": scalar_steps.Text(pa.binary(), False),
            "string": scalar_steps.Text(pa.binary(), False),
        }
        return made.get(kind) or scalar_steps.integer(pa.int64(), 64)

    def _record(self, written: Schema, read: Schema | None, wanted: pa.DataType, inside: frozenset[str]) -> Step:
        if not pa.types.is_struct(wanted) or written["name"] in inside:
            return scalar_steps.Unreadable(wanted)
        inside |= {written["name"]}
        names = [field.name for field in wanted]
        if len(set(names)) != len(names):
            return scalar_steps.Unreadable(wanted)
        found: list[tuple[Step, int]] = []
        left = dict.fromkeys(names)
        readers = None if read is None else _reader_fields(written, read)
        for field in written["fields"]:
            reader = None if readers is None else readers.get(field["name"])
            name = field["name"] if readers is None else (reader["name"] if reader else None)
            if name in left:
                place = names.index(name)
                del left[name]
                kind = None if reader is None else reader["type"]
                found.append((self.step(field["type"], kind, wanted.field(place).type, inside), place))
            else:
                # Skipped, but it must still resolve to the reader's field: only the simple cases are decided here.
                if reader is not None and not self._is_resolvable(field["type"], reader["type"]):
                    return scalar_steps.Unreadable(wanted)
                found.append((self.step(field["type"], None, None, inside), -1))
        absent: list[tuple[Step, int]] = []
        defaults = {} if read is None else {each["name"]: each for each in read["fields"]}
        if readers is not None:
            matched = {each["name"] for each in readers.values()}
            if any("default" not in each for name, each in defaults.items() if name not in matched):
                return scalar_steps.Unreadable(wanted)
        for name in left:
            place = names.index(name)
            column = wanted.field(place).type
            made = self._default(defaults[name], column) if name in defaults else scalar_steps.Null(column)
            absent.append((made, place))
        return nested_steps.Record(tuple(found), tuple(absent), wanted)

    def _is_resolvable(self, written: Schema, read: Schema) -> bool:
        """Whether every value of ``written`` is one of ``read``, judged by their names alone; False if that does not suffice."""
        one, other = _definition(written, self._written), _definition(read, self._read)
        return isinstance(one, str) and one in _PRIMITIVES and one == other

    def _default(self, field: Schema, wanted: pa.DataType) -> Step:
        kind = field["type"]
        first = _definition(kind[0] if isinstance(kind, list) else kind, self._read)
        # Only for these types is the JSON default the Python value: bytes are text in JSON, records need their own defaults.
        if _kind(first) not in ("null", "boolean", "int", "long", "float", "double", "string", "enum") or _logical(
            first
        ):
            return scalar_steps.Unreadable(wanted)
        if field["default"] is None:
            return scalar_steps.Null(wanted)
        try:
            return scalar_steps.Constant(self._constant(field["default"], wanted))
        except Exception:  # the default does not fit the column: decoding row by row reports why
            return scalar_steps.Unreadable(wanted)

    def _items(self, written: Schema, read: Schema | None, wanted: pa.DataType, inside: frozenset[str]) -> Step:
        if _kind(written) == "array":
            if not pa.types.is_list(wanted):
                return scalar_steps.Unreadable(wanted)
            inner = None if read is None else read["items"]
            return nested_steps.items(self.step(written["items"], inner, wanted.value_type, inside), wanted)
        if not pa.types.is_map(wanted) or not pa.types.is_string(wanted.key_type):
            return scalar_steps.Unreadable(wanted)
        inner = None if read is None else read["values"]
        item = self.step(written["values"], inner, wanted.item_type, inside)
        return nested_steps.items(item, wanted, scalar_steps.Text(pa.string(), True))


def _scalar(written: Schema, read: Schema, wanted: pa.DataType) -> Step | None:
    """The step for a primitive or ``fixed`` value; None if it is not supported in columns."""
    is_a = pa.types
    kind, target, logical = _kind(written), _kind(read), _logical(read)
    if logical != _logical(written) or (logical and kind != target):
        return None
    if kind == "boolean":
        return scalar_steps.Boolean() if is_a.is_boolean(wanted) else None
    if kind in ("int", "long"):
        return _integer(kind, target, logical, wanted)
    if kind in ("float", "double"):
        return scalar_steps.Floating("<f4" if kind == "float" else "<f8", wanted) if is_a.is_floating(wanted) else None
    if logical == "decimal":
        if not is_a.is_decimal(wanted) or wanted.bit_width != 128 or wanted.scale != written.get("scale", 0):
            return None
        return scalar_steps.DecimalNumber(wanted, written["size"] if kind == "fixed" else None)
    if kind == "fixed":
        return scalar_steps.Fixed(written["size"]) if is_a.is_binary(wanted) and not logical else None
    if logical == "uuid":
        return scalar_steps.uuid_text() if kind == "string" and is_a.is_string(wanted) else None
    if logical or (kind == "bytes" and target == "bytes" and not is_a.is_binary(wanted)):
        return None
    is_text = "string" in (kind, target)
    if is_a.is_string(wanted) and is_text:
        return scalar_steps.Text(wanted, True)
    return scalar_steps.Text(wanted, is_text) if is_a.is_binary(wanted) else None


def _integer(kind: str, target: str, logical: str, wanted: pa.DataType) -> Step | None:
    is_a = pa.types
    bits = 32 if kind == "int" else 64
    if logical == "date":
        return scalar_steps.date() if kind == "int" and is_a.is_date32(wanted) else None
    if logical in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"):
        fits = kind == "long" and is_a.is_timestamp(wanted) and wanted.unit == "us"
        return scalar_steps.timestamp(wanted, millis=logical.endswith("millis")) if fits else None
    if logical:
        return None
    if is_a.is_signed_integer(wanted) and target in ("int", "long"):
        return scalar_steps.integer(wanted, bits)
    # If the reader's type is float, an integer is rounded twice, to 64 bits and then to 32.
    return scalar_steps.integer(wanted, bits) if is_a.is_float64(wanted) and target != "float" else None


def _definition(schema: Schema, named: Named) -> Schema:
    """A schema with its name looked up, and a primitive without attributes as its name alone."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else named[schema]
    if isinstance(schema, dict) and not isinstance(schema.get("type"), str):
        return _definition(schema["type"], named)
    if isinstance(schema, dict) and schema["type"] in _PRIMITIVES and "logicalType" not in schema:
        return schema["type"]
    if isinstance(schema, dict) and schema["type"] not in _COMPLEX and schema["type"] not in _PRIMITIVES:
        return _definition(schema["type"], named)
    return schema


_COMPLEX: Final = frozenset({"record", "error", "enum", "fixed", "array", "map"})


def _kind(schema: Schema) -> str:
    if isinstance(schema, list):
        return "union"
    kind = schema if isinstance(schema, str) else schema["type"]
    return "record" if kind == "error" else str(kind)


def _logical(schema: Schema) -> str:
    return "" if isinstance(schema, (str, list)) else str(schema.get("logicalType") or "")


def _matches(written: Schema, read: Schema) -> bool:
    """Whether a value of one can be read as the other, judged by their outermost types."""
    one, other = _kind(written), _kind(read)
    if one != other:
        return other in _PROMOTIONS.get(one, ())
    if one == "fixed" and written["size"] != read["size"]:
        return False
    return one not in ("record", "enum", "fixed") or written["name"] == read["name"]


def _reader_fields(written: Schema, read: Schema) -> dict[str, Schema]:
    """The reader's field for each name that the writer uses, by name and then by alias."""
    names = {field["name"] for field in written["fields"]}
    found = {field["name"]: field for field in read["fields"] if field["name"] in names}
    for field in read["fields"]:
        if field["name"] not in names:
            for alias in field.get("aliases", ()):
                if alias in names and alias not in found:
                    found[alias] = field
                    break
    return found
