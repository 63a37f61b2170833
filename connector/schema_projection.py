"""A DataFrame's type against a reader's schema: which of its fields the schema has, by name.

Owns the comparison and its words; types are Spark's. What is done about a difference is decided by the source.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pykafka_wire.errors import SchemaError


class TypesContradictError(SchemaError):
    """A field has another type in the reader's schema."""


def missing_fields(wanted: DataType, available: DataType, column: str) -> list[str]:
    """Paths such as ``value.customer.name`` of the fields in ``wanted`` that ``available`` does not have.

    Raises:
        TypesContradictError: a field is there with another type.
    """
    return list(_missing(wanted, available, column))


def describe_missing(missing: list[str], available: DataType, column: str) -> str:
    """The fields that are missing, and what there is in their place."""
    path = missing[0]
    parent = _at(available, path.split(".")[1:-1])
    name = path.rpartition(".")[2]
    names = parent.names if isinstance(parent, StructType) else []
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    there = parent.simpleString() if parent is not None else available.simpleString()
    return f"{', '.join(missing)}{hint}; {path.rpartition('.')[0] or column} is {_short(there)}"


def changes(before: DataType, after: DataType, column: str) -> list[str]:
    """What is new, gone and different in a type, field by field, in words."""
    return list(_changes(before, after, column))


def _missing(wanted: DataType, available: DataType, path: str) -> Iterator[str]:
    if isinstance(wanted, StructType) and isinstance(available, StructType):
        there = {field.name: field.dataType for field in available.fields}
        for field in wanted.fields:
            if field.name in there:
                yield from _missing(field.dataType, there[field.name], f"{path}.{field.name}")
            else:
                yield f"{path}.{field.name}"
    elif isinstance(wanted, ArrayType) and isinstance(available, ArrayType):
        yield from _missing(wanted.elementType, available.elementType, f"{path}.element")
    elif isinstance(wanted, MapType) and isinstance(available, MapType):
        yield from _missing(wanted.keyType, available.keyType, f"{path}.key")
        yield from _missing(wanted.valueType, available.valueType, f"{path}.value")
    elif wanted != available:
        raise TypesContradictError(f"{path} is {_short(available.simpleString())}, not {_short(wanted.simpleString())}")


def _changes(before: DataType, after: DataType, path: str) -> Iterator[str]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        old = {field.name: field.dataType for field in before.fields}
        new = {field.name: field.dataType for field in after.fields}
        for name, found in new.items():
            if name in old:
                yield from _changes(old[name], found, f"{path}.{name}")
            else:
                yield f"{path}.{name} {_short(found.simpleString())} is new"
        yield from (f"{path}.{name} is gone" for name in old if name not in new)
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _changes(before.elementType, after.elementType, f"{path}.element")
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _changes(before.keyType, after.keyType, f"{path}.key")
        yield from _changes(before.valueType, after.valueType, f"{path}.value")
    elif before != after:
        yield f"{path} is {_short(after.simpleString())} in place of {_short(before.simpleString())}"


def _at(found: DataType | None, names: list[str]) -> DataType | None:
    """The type at a path; None where it cannot be followed."""
    for name in names:
        if isinstance(found, StructType) and name in found.names:
            found = found[name].dataType
        elif isinstance(found, ArrayType) and name == "element":
            found = found.elementType
        elif isinstance(found, MapType) and name in ("key", "value"):
            found = found.valueType if name == "value" else found.keyType
        else:
            return None
    return found


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
