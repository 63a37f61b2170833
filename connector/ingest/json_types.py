"""The type of JSON values that nobody has declared: found in the values themselves, and only widened.

Spark's ``schema_of_variant_agg`` finds it. Owns what of it a table can store, and how it grows with what the table has already.
"""

from __future__ import annotations

import logging
import re
from functools import reduce
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.tables import quoted, type_ddl

_log = logging.getLogger(__name__)

#: What a BIGINT becomes at its first fraction: Delta widens it to no DOUBLE, and to this without losing a digit.
WIDENED_BIGINT: Final = DecimalType(38, 18)
#: An object within a document with more fields than this, when it is seen first, is a map: its names are values.
_MAX_FIELDS: Final = 100
#: A table with more columns than this, nested ones among them, is no table that anyone has declared.
_MAX_COLUMNS: Final = 2_000
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_MAX_DIGITS: Final = 38


def inferred_type(found: str | None) -> DataType | None:
    """Return the type that ``schema_of_variant_agg`` has found; None where the values have none, as nulls and empty objects."""
    if found is None:
        return None
    # Names with other characters are in backticks, so that no name can hold this.
    return _storable(DataType.fromDDL(re.sub(r"(`[^`]*`)|OBJECT<", lambda part: part[1] or "STRUCT<", found)))


def _storable(found: DataType) -> DataType | None:
    """Return a type that a table can have: exact whole numbers, doubles, and text for values of several kinds."""
    if isinstance(found, StructType):
        fields = [(each.name, _storable(each.dataType)) for each in found]
        kept = [StructField(name, inner) for name, inner in fields if inner is not None]
        return StructType(kept) if kept else None
    if isinstance(found, ArrayType):
        inner = _storable(found.elementType)
        return None if inner is None else ArrayType(inner)
    if isinstance(found, DecimalType):
        return DecimalType(_MAX_DIGITS, 0) if found.scale == 0 else DoubleType()
    if isinstance(found, VariantType):
        return StringType()
    return None if isinstance(found, NullType) else found


def widened(held: DataType | None, found: DataType | None) -> DataType | None:
    """Return the type of a table that has ``held`` after values of ``found``: with new fields, and numbers as wide as they are.

    Where the two contradict each other the table's type stays, and values that do not fit it go to the rejects.

    Raises:
        IngestError: a new field has the name of one that the table has, but for its case, or there are too many columns.
    """
    if held is None or found is None:
        return _grown(found, "") if held is None and found is not None else held
    if isinstance(held, StructType) and isinstance(found, StructType):
        new = {each.name.lower(): each for each in found}
        fields = []
        for each in held:
            other = new.pop(each.name.lower(), None)
            if other is not None and other.name != each.name:
                raise IngestError(
                    f"values have the field {other.name}, and the table has {each.name}: Delta does not tell upper from lower "
                    "case. Name the columns in schema, which leaves others out."
                )
            inner = each.dataType if other is None else widened(each.dataType, other.dataType)
            fields.append(StructField(each.name, inner or each.dataType))
        grown = StructType(
            [*fields, *(StructField(each.name, _grown(each.dataType, each.name)) for each in new.values())]
        )
        if _n_columns(grown) > _MAX_COLUMNS:
            raise IngestError(
                f"values have more than {_MAX_COLUMNS} fields, the newest {grown.names[-1]}: objects are used as maps, whose names "
                "are values. Declare the columns in schema, such an object as a MAP<STRING, ...>."
            )
        return grown
    if isinstance(held, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(widened(held.elementType, found.elementType) or held.elementType)
    if isinstance(held, MapType):
        values = (
            found.valueType
            if isinstance(found, MapType)
            else _one_type(found)
            if isinstance(found, StructType)
            else None
        )
        return MapType(held.keyType, widened(held.valueType, values) or held.valueType)
    return _wider_number(held, found)


def _wider_number(held: DataType, found: DataType) -> DataType:
    """Return a wider number, as far as Delta widens a column; the held type where the other one is no wider number."""
    if isinstance(held, _WHOLE) and isinstance(found, _WHOLE):
        return max(held, found, key=lambda each: _WHOLE.index(type(each)))
    if isinstance(found, DoubleType | FloatType) and isinstance(held, LongType):
        return WIDENED_BIGINT
    if isinstance(found, DoubleType) and isinstance(held, FloatType | ByteType | ShortType | IntegerType):
        return found
    if isinstance(held, DecimalType | LongType) and isinstance(found, DecimalType):
        digits, scale = (held.precision, held.scale) if isinstance(held, DecimalType) else (20, 0)
        wide = max(digits - scale, found.precision - found.scale), max(scale, found.scale)
        return DecimalType(sum(wide), wide[1]) if sum(wide) <= _MAX_DIGITS else held
    return found if isinstance(held, DateType) and isinstance(found, TimestampNTZType) else held


def _grown(found: DataType, name: str) -> DataType:
    """Return a new column's type: a map in place of an object with very many fields, unless it is the whole row."""
    if isinstance(found, StructType):
        if name and len(found) > _MAX_FIELDS:
            _log.warning(
                "Field %s has objects with %d different fields, more than %d: it becomes a MAP, whose keys they are. Declare it in "
                "schema to have columns instead.",
                name,
                len(found),
                _MAX_FIELDS,
            )
            return MapType(StringType(), _one_type(found))
        return StructType(
            [StructField(each.name, _grown(each.dataType, f"{name}.{each.name}".lstrip("."))) for each in found]
        )
    if isinstance(found, ArrayType):
        return ArrayType(_grown(found.elementType, name or "element"))
    return found


def _one_type(found: StructType) -> DataType:
    """Return the type of a map's values, from fields: theirs, a number's where all are numbers, else text."""

    def one(held: DataType, other: DataType) -> DataType:
        if held == other:
            return held
        numbers = (LongType, DoubleType, DecimalType)
        return DoubleType() if isinstance(held, numbers) and isinstance(other, numbers) else StringType()

    return reduce(one, (each.dataType for each in found))


def _n_columns(found: DataType) -> int:
    if isinstance(found, StructType):
        return sum(1 + _n_columns(each.dataType) for each in found)
    return _n_columns(found.elementType) if isinstance(found, ArrayType) else 0


def column_ddl(found: DataType) -> str:
    """Return a type as the options ``valueSchema`` and ``keySchema`` take it: the columns of a struct, or a type."""
    if isinstance(found, StructType):
        return ", ".join(f"{quoted(each.name)} {type_ddl(each.dataType)}" for each in found)
    return type_ddl(found)
