"""Avro schemas as fastavro parses them, with the logical types that are valid, as Apache Avro's Java library judges them.

Owns the way from a schema's text to the parsed form that the rest of this package works on. Knows no registry.
https://avro.apache.org/docs/1.12.0/specification/#schema-declaration
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykafka_wire.errors import ConnectorError, PoisonError
from pykafka_wire.values.avro.input_limits import check_limits
from pykafka_wire.values.optional_libraries import library

#: A parsed schema: the name of a type, a list (a union) or a dict. Any, since it is a JSON document.
Schema = Any

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_COMPLEX: Final = frozenset({"record", "error", "enum", "fixed", "array", "map"})
#: Logical type -> the types that may carry it. On any other type it is ignored, as the specification wants it.
_CARRIERS: Final[dict[str, frozenset[str]]] = {
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    **{
        f"{kind}-{unit}": frozenset({"long"})
        for kind in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    },
    "decimal": frozenset({"bytes", "fixed"}),
    "uuid": frozenset({"string", "fixed"}),
    "duration": frozenset({"fixed"}),
}
#: Spark's decimals have 38 digits at most, Arrow's 76. A schema's precision must not size an allocation.
_MAX_PRECISION: Final = 1_000
_UUID_BYTES: Final = 16
_DURATION_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSchema:
    """A schema, and all types that it or the schemas it refers to name, by full name."""

    root: Schema
    named: Mapping[str, Schema]

    def definition(self, schema: Schema) -> Schema:
        """A schema with its name looked up, and a primitive type without a logical type as its name alone."""
        while True:
            if isinstance(schema, str):
                return schema if schema in PRIMITIVES else self.named[schema]
            if isinstance(schema, list):
                return schema
            kind = schema["type"]
            if isinstance(kind, str) and kind in PRIMITIVES:
                return schema if "logicalType" in schema else kind
            if isinstance(kind, str) and kind in _COMPLEX:
                return schema
            schema = kind


def parse(text: str, referenced: Sequence[str] = ()) -> ParsedSchema:
    """A schema's text, parsed after the schemas that it refers to.

    Raises:
        PoisonError: it is no Avro schema, or one whose values are not read (:mod:`~pykafka_wire.values.avro.input_limits`).
    """
    fastavro = library("fastavro", "Avro")
    named: dict[str, Schema] = {}
    root: Schema = None
    try:
        for each in (*referenced, text):
            root = fastavro.parse_schema(with_valid_logical_types(json.loads(each)), named_schemas=named)
        check_limits(root, named)
    except (ConnectorError, PoisonError):
        raise
    except Exception as error:  # a SchemaParseException, or whatever else an invalid schema makes the library raise
        reason = f": {error}" if isinstance(error, (ValueError, fastavro.schema.SchemaParseException)) else ""
        raise PoisonError(f"its schema is not valid ({type(error).__name__}{reason})") from error
    return ParsedSchema(root=root, named=named)


def with_valid_logical_types(schema: Any) -> Any:
    """A schema's JSON without the logical types that are unknown or not valid: their values are those of the type beneath."""
    if isinstance(schema, list):
        return [with_valid_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: each if name == "default" else with_valid_logical_types(each) for name, each in schema.items()}
    if "logicalType" in found and not _is_valid(found):
        del found["logicalType"]
    return found


def _is_valid(schema: dict[str, Any]) -> bool:
    logical, kind = schema["logicalType"], schema.get("type")
    if not isinstance(logical, str) or not isinstance(kind, str) or kind not in _CARRIERS.get(logical, ()):
        return False
    size = schema.get("size")
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            return False
        if not 0 < precision <= _MAX_PRECISION or not 0 <= scale <= precision:
            return False
        return kind == "bytes" or (type(size) is int and precision <= max_digits(size))
    if kind == "fixed":
        return size == (_UUID_BYTES if logical == "uuid" else _DURATION_BYTES)
    return True


def max_digits(size: int) -> int:
    """The decimal digits that every number of as many digits fits into so many bytes with."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size > 0 else 0


def kind_of(definition: Schema) -> str:
    """``union``, or the name of the type; errors are records."""
    if isinstance(definition, list):
        return "union"
    kind = definition if isinstance(definition, str) else definition["type"]
    return "record" if kind == "error" else str(kind)


def logical_of(definition: Schema) -> str:
    """The logical type, or an empty text."""
    return "" if isinstance(definition, (str, list)) else str(definition.get("logicalType") or "")
