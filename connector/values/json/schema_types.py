"""The type of the values of a JSON Schema, for columns that nobody has declared.

A schema says what is valid, not how it is stored: what has no type of its own, such as values of several kinds, is STRING, and has
JSON text. ``connect.type`` is Kafka Connect's (``JsonSchemaData``). Drafts 4 to 2020-12 are read alike.
https://json-schema.org/draft/2020-12/json-schema-core
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from pykafka_wire.errors import DecodeError, SchemaError
from pykafka_wire.values.connect_types import CONNECT_TYPES, DECIMAL
from pykafka_wire.values.json.documents import schema_documents
from pykafka_wire.values.numeric_times import TimeUnit
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.single_json.encodings import ROOT, DecimalFormat, Encodings

_TEXT: Final = pa.string()
#: Of a schema that allows nothing but null.
_NULL: Final = pa.null()
#: Of a field or an item of which a part of the schema says nothing: another part may.
_UNKNOWN: Final = pa.large_binary()
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_FORMATS: Final = {"date-time": _INSTANT, "date": pa.date32()}
_CONNECT_NUMBERS: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
_MAX_DIGITS: Final = 38
_KINDS: Final = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object", type(None): "null"}
#: A few schemas that refer to each other can stand for any number of fields.
_MAX_PARTS: Final = 10_000
_MAX_DEPTH: Final = 64


def arrow_type(registry: Registry | None, schema: Schema) -> pa.DataType:
    """Return the type of a schema's values; a part that holds itself is STRING. Raises as :func:`type_and_encodings`."""
    return type_and_encodings(registry, schema, False)[0]


@cached
def type_and_encodings(
    registry: Registry | None, schema: Schema, has_connect_types: bool
) -> tuple[pa.DataType, Encodings]:
    """Return the type of a schema's values, and how their times and decimals are written.

    Args:
        has_connect_types: whether titles that Kafka Connect's converter gives to types count.

    Raises:
        DecodeError: the schema is not valid, or refers to one that is not there.
        SchemaError: it has more parts than a table has columns.
    """
    document, known = schema_documents(registry, schema)
    from referencing import Resource
    from referencing.jsonschema import DRAFT7

    resolver = known.resolver_with_root(Resource.from_contents(document, default_specification=DRAFT7))
    types = _JsonSchemaTypes(has_connect_types)
    found = types.of(document, resolver, (), (ROOT,))
    if types.contradictory:
        types = _JsonSchemaTypes(has_connect_types, types.contradictory)
        found = types.of(document, resolver, (), (ROOT,))
    column_type = _column_type(found)
    return column_type, Encodings(
        time_units=tuple(types.time_units.items()), decimal_formats=tuple(types.decimal_formats.items())
    )


class _JsonSchemaTypes:
    """Makes the type of one schema, and counts its parts.

    Attributes:
        contradictory: the paths of numbers whose time unit differs between parts of the schema. Their numbers are no times, if the
            paths are given.
    """

    def __init__(self, has_connect_types: bool, contradictory: Collection[tuple[str, ...]] = ()) -> None:
        self._n_parts = 0
        self._has_connect_types = has_connect_types
        self.contradictory = set(contradictory)
        self.time_units: dict[tuple[str, ...], TimeUnit] = {}
        self.decimal_formats: dict[tuple[str, ...], DecimalFormat] = {}

    def of(self, schema: Any, resolver: Any, above: tuple[int, ...], path: tuple[str, ...]) -> pa.DataType | None:
        """Return the type of a part of the schema; None where it says nothing of the type.

        Args:
            resolver: finds what ``$ref`` names, from where the part is.
            above: the parts that this one is a part of, by their identity.
            path: of its values, as :class:`Encodings` has it.
        """
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS:
            raise SchemaError(
                f"the JSON Schema has more than {_MAX_PARTS} parts: name the fields to read in valueSchema."
            )
        if not isinstance(schema, dict):  # true: anything is valid
            return None
        if id(schema) in above or len(above) > _MAX_DEPTH:
            return _TEXT
        above = (*above, id(schema))
        types = [self._own(schema, resolver, above, path)]
        if isinstance(schema.get("$ref"), str):
            other = _resolve(resolver, schema["$ref"])
            types.append(self.of(other.contents, other.resolver, above, path))
        for schema_part in _list(schema, "allOf"):
            types.append(self.of(schema_part, resolver, above, path))
        for name in ("oneOf", "anyOf"):
            types.append(
                _alternatives([self.of(schema_part, resolver, above, path) for schema_part in _list(schema, name)])
            )
        return _together([inner_type for inner_type in types if inner_type is not None])

    def _own(
        self, schema: Mapping[str, Any], resolver: Any, above: tuple[int, ...], path: tuple[str, ...]
    ) -> pa.DataType | None:
        """Return the type by what the schema itself says of values."""
        kinds = _kinds(schema)
        values = kinds - {"null"}
        if not values:
            return _NULL if kinds else None
        if values == {"object"}:
            properties, more = schema.get("properties"), schema.get("additionalProperties")
            if isinstance(properties, dict) and properties:
                return pa.struct(
                    [
                        (name, _known(self.of(definition, resolver, above, (*path, name))))
                        for name, definition in properties.items()
                    ]
                )
            if isinstance(more, dict) and more:
                return pa.map_(_TEXT, _column_type(self.of(more, resolver, above, path)))
            # Of another part of the schema, as in {"type": "object", "oneOf": […]}, or of nothing: then it is text.
            return None
        if values == {"array"}:
            items = schema.get("prefixItems") or schema.get("items")
            if isinstance(items, list):  # those behind them have a schema of their own
                more = schema.get("items" if "prefixItems" in schema else "additionalItems")
                items = [*items, more] if isinstance(more, dict) else items
            of_items = [
                self.of(item, resolver, above, path) for item in (items if isinstance(items, list) else [items])
            ]
            return pa.list_(pa.field("element", _known(_alternatives(of_items))))
        if values == {"boolean"}:
            return pa.bool_()
        if self._has_connect_types and (of_connect := self._of_connect(schema, values, path)) is not None:
            return of_connect
        if values == {"string"}:
            if schema.get("connect.type") == "bytes" or schema.get("contentEncoding") == "base64":
                return pa.binary()
            return _FORMATS.get(str(schema.get("format")), _TEXT)
        if values <= {"integer", "number"}:
            if schema.get("title") == DECIMAL:
                return _connect_decimal(schema.get("connect.parameters"))
            number = pa.float64() if "number" in values else pa.int64()
            return _CONNECT_NUMBERS.get(str(schema.get("connect.type")), number)
        return _TEXT

    def _of_connect(self, schema: Mapping[str, Any], values: set[str], path: tuple[str, ...]) -> pa.DataType | None:
        """Return the type by the name that Kafka Connect's converter gives as the title; None where it says nothing."""
        title = str(schema.get("title"))
        if values == {"string"} and title == DECIMAL and schema.get("connect.type") == "bytes":
            self.decimal_formats[path] = "base64"
            return _connect_decimal(schema.get("connect.parameters"))
        connect_type = CONNECT_TYPES.get(title)
        if connect_type is None or connect_type.kind not in ("date", "timestamp"):
            return None
        if values <= {"integer", "number"} and connect_type.unit is not None:
            if self.time_units.setdefault(path, connect_type.unit) != connect_type.unit:
                self.contradictory.add(path)
            return None if path in self.contradictory else connect_type.type
        return (
            connect_type.type
            if values == {"string"} and connect_type.unit is None and connect_type.type == _INSTANT
            else None
        )


def _connect_decimal(parameters: Any) -> pa.DataType:
    """Return the type of Kafka Connect's decimals under ``decimal.format=NUMERIC``; text where a DECIMAL could not hold them."""
    given = parameters if isinstance(parameters, dict) else {}
    try:
        scale, precision = int(given["scale"]), int(given.get("connect.decimal.precision", _MAX_DIGITS))
    except (KeyError, TypeError, ValueError):
        return _TEXT
    return pa.decimal128(precision, scale) if 0 <= scale <= precision <= _MAX_DIGITS and precision else _TEXT


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    parts = schema.get(name)
    return parts if isinstance(parts, list) else []


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """Return the kinds of values in JSON Schema's words; empty where it names none."""
    named = schema.get("type")
    if isinstance(named, str | list):
        return {named} if isinstance(named, str) else set(map(str, named))
    values = _list(schema, "enum") or [schema[name] for name in ("const",) if name in schema]
    kinds = {_KINDS.get(type(value), "number") for value in values}
    return kinds or ({"object"} if isinstance(schema.get("properties"), dict) else set())


def _resolve(resolver: Any, reference: str) -> Any:
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(reference)
    except (Unresolvable, ValueError) as error:  # a URL that is none
        raise DecodeError(f"its schema refers to {reference[:200]!r}, which the registry does not have") from error


def _known(column_type: pa.DataType | None) -> pa.DataType:
    return _UNKNOWN if column_type is None else column_type


def _column_type(column_type: pa.DataType | None) -> pa.DataType:
    """Return the type of a column: text for what nothing is known of."""
    if column_type is None or column_type in (_NULL, _UNKNOWN):
        return _TEXT
    if pa.types.is_struct(column_type):
        return pa.struct([(field.name, _column_type(field.type)) for field in column_type])
    if pa.types.is_list(column_type):
        return pa.list_(pa.field("element", _column_type(column_type.value_type)))
    return column_type


def _alternatives(types: list[pa.DataType | None]) -> pa.DataType | None:
    """Return the type of values that are of one of these."""
    known = [inner_type for inner_type in types if inner_type is not None]
    if not known:
        return None
    values = [inner_type for inner_type in known if inner_type != _NULL]
    if len(known) < len(types):
        return _TEXT
    return reduce(_wider, values) if values else _NULL


def _together(types: list[pa.DataType]) -> pa.DataType | None:
    """Return the type of values that are of all of these."""
    return reduce(_narrower, types) if types else None


def _merged_parts(
    one: pa.DataType, other: pa.DataType, merge: Callable[[pa.DataType, pa.DataType], pa.DataType]
) -> pa.DataType | None:
    """Return two structs with all fields of both, or two lists, whose common parts are merged; None for other types."""
    is_a = pa.types
    if is_a.is_struct(one) and is_a.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = merge(fields.get(field.name, field.type), field.type)
        return pa.struct(list(fields.items()))
    if is_a.is_list(one) and is_a.is_list(other):
        return pa.list_(pa.field("element", merge(one.value_type, other.value_type)))
    return None


def _narrower(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that holds the values that are of both: all fields, the narrower number, what is known better than as text."""
    is_a = pa.types
    if one == other or other in (_UNKNOWN, _NULL, _TEXT):
        return one
    if one in (_UNKNOWN, _NULL, _TEXT):
        return other
    merged = _merged_parts(one, other, _narrower)
    if merged is not None:
        return merged
    if all(is_a.is_integer(number_type) or is_a.is_floating(number_type) for number_type in (one, other)):
        return min(one, other, key=lambda number_type: (is_a.is_floating(number_type), number_type.bit_width))
    return other if is_a.is_struct(other) else one


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that holds the values of both: all fields, the wider number, else text."""
    is_a = pa.types
    if one == other:
        return one
    if _UNKNOWN in (one, other):
        return _TEXT
    merged = _merged_parts(one, other, _wider)
    if merged is not None:
        return merged
    if is_a.is_integer(one) and is_a.is_integer(other):
        return max(one, other, key=lambda number_type: number_type.bit_width)
    if all(is_a.is_integer(number_type) or is_a.is_floating(number_type) for number_type in (one, other)):
        return pa.float64()
    return _TEXT
