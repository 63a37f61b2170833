"""Names, string literals, types and long conditions in Spark's SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def sql_text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def any_of(conditions: Sequence[Column]) -> Column:
    """Return whether one of the conditions is true. The tree of a thousand conditions has ten levels: a thousand levels overflow
    the JVM's stack."""
    middle = len(conditions) // 2
    if middle:
        return any_of(conditions[:middle]) | any_of(conditions[middle:])
    return conditions[0] if conditions else F.lit(False)


def type_ddl(data_type: DataType) -> str:
    """Return a type as SQL, with quoted field names."""
    if isinstance(data_type, StructType):
        return (
            "STRUCT<" + ", ".join(f"{quoted(column.name)}: {type_ddl(column.dataType)}" for column in data_type) + ">"
        )
    if isinstance(data_type, ArrayType):
        return f"ARRAY<{type_ddl(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"MAP<{type_ddl(data_type.keyType)}, {type_ddl(data_type.valueType)}>"
    return data_type.simpleString()


def column_ddl(data_type: DataType) -> str:
    """Return a type as text for the options ``valueSchema`` and ``keySchema``: the columns of a struct, or another type."""
    if isinstance(data_type, StructType):
        return ", ".join(f"{quoted(field.name)} {type_ddl(field.dataType)}" for field in data_type)
    return type_ddl(data_type)


def clash(schema: DataType, path: str = "") -> str | None:
    """Return the first two names in a type that Delta or Spark treats as equal, as text: names ignore case."""
    if isinstance(schema, StructType):
        if (two := equal_names(schema.names)) is not None:
            return " and ".join(f"{path}{name}" for name in two)
        inner = ((column.dataType, f"{path}{column.name}.") for column in schema)
    else:
        children = ("elementType", "keyType", "valueType")
        inner = ((getattr(schema, child), path) for child in children if hasattr(schema, child))
    return next(filter(None, (clash(*child) for child in inner)), None)


def equal_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two names that Delta or Spark treats as equal: names ignore case."""
    seen: dict[str, tuple[int, str]] = {}
    for number, name in enumerate(names):
        other, other_name = min(seen.setdefault(folded, (number, name)) for folded in _folded(name))
        if other != number:
            return other_name, name
    return None


def _folded(name: str) -> set[str]:
    """Return the forms under which names are compared: Delta's lower case, and Java's ``equalsIgnoreCase``, where ſ equals s."""
    upper = (each.upper() if len(each.upper()) == 1 else each for each in name)
    return {name.lower(), "".join(each.lower()[0] for each in upper)}
