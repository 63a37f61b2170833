"""Avro schemas, from their text to the form that the rest of this package works on, as Apache Avro's Java library reads them.

Knows no registry. fastavro's parser is not used: it rejects schemas that the Java library prints itself.
https://avro.apache.org/docs/1.12.0/specification/#schema-declaration
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykafka_wire.errors import DecodeError

#: A parsed schema: the name of a type, a list (a union) or a dict. Any, since it is a JSON document.
Schema = Any

#: The property of a parsed type that has Kafka Connect's name of it.
CONNECT_TYPE: Final = "connectType"
#: The property of a reader's enum whose symbols do not matter: a value keeps the symbol that its writer has given it.
WRITTEN_SYMBOLS: Final = "__written_symbols"
#: The property of a reader's named type that not all types of its name have: the full names that writers give the type, the name
#: in its own version first. It stands in the schema under a name of its own, and no alias of another type applies to it.
WRITTEN_NAMES: Final = "__written_names"
#: What does not tell a named type, or a field, from another one.
_UNTOLD: Final = frozenset({"doc", "aliases"})
_MEANINGS: Final = {"logicalType", CONNECT_TYPE}
PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
#: Of a type, a field, a symbol or a part of a namespace. The Java library checks no namespace, and nothing at all where its
#: validation is off: Debezium's namespaces have hyphens, its fields what columns of databases are called.
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
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
#: Values that come with one value and take no bytes (nulls, empty records). Few schemas have any.
_MAX_FREE: Final = 1_000
#: An Arrow array's offsets have 32 bits.
_MAX_FIXED_SIZE: Final = (1 << 31) - 1
#: One byte of a value becomes a whole symbol. Names of people's symbols are far shorter.
_MAX_SYMBOL: Final = 1_000
_UUID_BYTES: Final = 16
_DURATION_BYTES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSchema:
    """A schema, and all types that it or the schemas it refers to name, by full name."""

    root: Schema
    named: Mapping[str, Schema]

    def definition(self, schema: Schema) -> Schema:
        """Return a schema with its name looked up, and a primitive type without a logical type as its name alone."""
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else self.named[schema]
        if isinstance(schema, dict) and schema["type"] in PRIMITIVES and not schema.keys() & _MEANINGS:
            return schema["type"]
        return schema


def parse(text: str, referenced: Sequence[str] = (), *, has_connect_types: bool = False) -> ParsedSchema:
    """Return a schema's text, parsed after the schemas that it refers to.

    Args:
        has_connect_types: whether types keep the names that Kafka Connect's converters give them, as :data:`CONNECT_TYPE`.

    Raises:
        DecodeError: it is no Avro schema, or one whose values are not read: they take no bytes and are
            many, or without end, or there can be none.
    """
    named: dict[str, Schema] = {}
    root: Schema = None
    try:
        for schema_text in (*referenced, text):
            parser = _SchemaParser(named, has_connect_types)
            root = parser.schema(json.loads(schema_text), "")
            parser.check_names()
        if _FreeValues(named).of(root) > _MAX_FREE:
            raise DecodeError("its schema holds too many values that take no bytes")
    except (ValueError, RecursionError) as error:  # text that is not JSON, or nested deeper than Python goes
        reason = f": {error}" if isinstance(error, ValueError) else ""
        raise DecodeError(f"its schema is not valid ({type(error).__name__}{reason})") from error
    return ParsedSchema(root=root, named=named)


class _SchemaParser:
    """Reads the JSON of one text as Apache Avro's Java library does, but for defaults, which are looked at where they are used.

    In what it returns, each named type has its full name, each use of one is that name, and logical types that are unknown or not
    valid are left out: their values are those of the type beneath.

    Args:
        named: the types by full name; those of the text are added.
    """

    def __init__(self, named: dict[str, Schema], has_connect_types: bool) -> None:
        self._named = named
        self._has_connect_types = has_connect_types
        #: Names that were used before they were defined.
        self._early: set[str] = set()

    def check_names(self) -> None:
        """Raise DecodeError for a name that stands for no type."""
        for name in self._early - self._named.keys():
            raise _invalid(f"the type {name} is unknown")

    def schema(self, parsed: Any, namespace: str) -> Schema:
        """Return a part of the JSON; ``namespace`` is that of the named type around."""
        if isinstance(parsed, str):
            return self._reference(parsed, namespace)
        if isinstance(parsed, list):
            return self._union(parsed, namespace)
        kind = parsed.get("type") if isinstance(parsed, dict) else None
        if isinstance(kind, (dict, list)):
            return self.schema(kind, namespace)
        if not isinstance(kind, str):
            raise _invalid("a type is neither a name nor an object with a type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(self._with_connect_type(_with_valid_logical_type(parsed)), kind, namespace)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {**parsed, inner: self.schema(parsed.get(inner), namespace)}
        if kind in PRIMITIVES:
            return self._with_connect_type(_with_valid_logical_type(parsed))
        return self._reference(kind, namespace)

    def _with_connect_type(self, parsed: dict[str, Any]) -> dict[str, Any]:
        name = parsed.get("connect.name") if self._has_connect_types else None
        return {**parsed, CONNECT_TYPE: name} if isinstance(name, str) else parsed

    def _reference(self, name: str, namespace: str) -> Schema:
        if name in PRIMITIVES:
            return name
        full_name = _full_name(name, namespace)
        if full_name in self._named:
            return full_name
        if name in self._named:  # of a type without a namespace: Java prints it by its name alone, wherever it is used
            return name
        self._early.add(full_name)
        return full_name

    def _union(self, union: list[Any], namespace: str) -> Schema:
        branches = [self.schema(branch, namespace) for branch in union]
        names = [branch if isinstance(branch, str) else _name_in_union(branch) for branch in branches]
        if len(set(names)) < len(names):
            raise _invalid("a union has a type twice")
        if not branches:
            raise DecodeError("its schema has a union without branches")
        return branches

    def _named_type(self, parsed: dict[str, Any], kind: str, namespace: str) -> Schema:
        own_namespace = parsed.get("namespace")
        if not isinstance(parsed.get("name"), str):
            raise _invalid(f"a {kind} has no name")
        name = _full_name(parsed["name"], own_namespace if isinstance(own_namespace, str) else namespace)
        if name in PRIMITIVES or not all(map(_NAME.fullmatch, name.rpartition(".")[::2] if "." in name else (name,))):
            raise _invalid(f"a {kind} cannot be named {name[:100]!r}")
        made = {key: value for key, value in parsed.items() if key != "namespace"} | {"name": name}
        known = self._named.setdefault(name, made)
        if kind == "enum":
            _check_symbols(made)
        elif kind == "fixed":
            if type(made.get("size")) is not int or not 0 <= made["size"] <= _MAX_FIXED_SIZE:
                raise DecodeError(
                    f"the size of its schema's fixed {name} is not an integer from 0 to {_MAX_FIXED_SIZE}"
                )
        else:
            made["fields"] = self._fields(name, parsed.get("fields"))
        if known is not made and _content(known) != _content(made):
            raise _invalid(f"the type {name} is defined twice, differently")
        return made

    def _fields(self, record: str, fields: Any) -> list[dict[str, Any]]:
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise _invalid(f"the record {record} has no fields")
        names = [field.get("name") for field in fields]
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
            raise _invalid(
                f"a field of the record {record} has no name, one that is not valid, or that of another field"
            )
        namespace = record.rpartition(".")[0]
        return [{**field, "type": self.schema(field.get("type"), namespace)} for field in fields]


def _content(named_type: dict[str, Any]) -> dict[str, Any]:
    """Return what tells a named type from another one of its name, as Java compares them: documentation and aliases do not."""
    content = {name: value for name, value in named_type.items() if name not in _UNTOLD}
    if "fields" in content:
        content["fields"] = [
            {name: by_name(value) if name == "type" else value for name, value in field.items() if name not in _UNTOLD}
            for field in content["fields"]
        ]
    return content


def by_name(schema: Schema) -> Schema:
    """Return a type within another one with the names of named types in their place."""
    if isinstance(schema, list):
        return [by_name(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] in ("record", "error", "enum", "fixed"):
        return schema["name"]
    return {name: by_name(value) if name in ("items", "values") else value for name, value in schema.items()}


def _full_name(name: str, namespace: str) -> str:
    return name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"


def _name_in_union(branch: Schema) -> str:
    """Return what no two branches may share."""
    if isinstance(branch, list):
        raise _invalid("a union has a union as a branch")
    return str(branch.get("name") or branch["type"])


def _check_symbols(enum: dict[str, Any]) -> None:
    symbols = enum.get("symbols")
    if not isinstance(symbols, list) or not all(
        isinstance(symbol, str) and _NAME.fullmatch(symbol) for symbol in symbols
    ):
        raise _invalid(f"the enum {enum['name']} has no symbols, or one that is no name")
    if len(set(symbols)) < len(symbols) or enum.get("default", symbols and symbols[0]) not in symbols:
        raise _invalid(f"the enum {enum['name']} has a symbol twice, or a default that is none of its symbols")
    if not symbols or max(map(len, symbols)) > _MAX_SYMBOL:
        raise DecodeError(
            f"its schema's enum {enum['name']} has no symbols, or a symbol above {_MAX_SYMBOL} characters"
        )


def _invalid(reason: str) -> DecodeError:
    return DecodeError(f"its schema is not valid: {reason}")


def _with_valid_logical_type(schema: dict[str, Any]) -> dict[str, Any]:
    if "logicalType" not in schema or _is_valid(schema):
        return schema
    return {name: value for name, value in schema.items() if name != "logicalType"}


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
    """Return the decimal digits that every number of as many digits fits into so many bytes with."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size > 0 else 0


def kind_of(definition: Schema) -> str:
    """Return ``union``, or the name of the type; errors are records."""
    if isinstance(definition, list):
        return "union"
    kind = definition if isinstance(definition, str) else definition["type"]
    return "record" if kind == "error" else str(kind)


def written_names(named: Schema) -> Sequence[str]:
    """Return the full names that writers give a named type (:data:`WRITTEN_NAMES`), the name in its own version first."""
    names: Sequence[str] = named.get(WRITTEN_NAMES) or (named["name"],)
    return names


def aliases_of(named: Schema) -> list[str]:
    """Return the full names of a named type's aliases."""
    namespace = str(named["name"]).rpartition(".")[0]
    return [alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in named.get("aliases", ())]


def short_name(name: str) -> str:
    """Return the last part of a full name."""
    return name.rpartition(".")[2]


def logical_of(definition: Schema) -> str:
    """Return the logical type, or an empty text."""
    return "" if isinstance(definition, (str, list)) else str(definition.get("logicalType") or "")


class _FreeValues:
    """How many values come with one value that takes no bytes; 0 where it takes some."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._of: dict[str, int | None] = {}

    def of(self, schema: Any) -> int:
        """Return the least bytes of a value. Raises DecodeError for a record that contains itself without an end."""
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = kind_of(schema)
        if kind == "fixed":
            return 1 if schema["size"] == 0 else 0
        if kind != "record":
            return 1 if kind == "null" else 0
        name = schema["name"]
        if name not in self._of:
            self._of[name] = None
            self._of[name] = min(_MAX_FREE + 1, 1 + sum(self.of(field["type"]) for field in schema["fields"]))
        n_free = self._of[name]
        if n_free is None:
            raise DecodeError(f"its schema's record {name} contains itself without an end")
        return n_free
