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


def inferred_type(ddl: str | None) -> DataType | None:
    """Return the type that ``schema_of_variant_agg`` has found; None where the values have none, as nulls and empty objects."""
    if ddl is None:
        return None
    # Names with other characters are in backticks, so that no name can hold this.
    return _storable(DataType.fromDDL(re.sub(r"(`[^`]*`)|OBJECT<", lambda part: part[1] or "STRUCT<", ddl)))


def _storable(observed: DataType) -> DataType | None:
    """Return a type that a table can have: exact whole numbers, doubles, and text for values of several kinds."""
    if isinstance(observed, StructType):
        fields = [(field.name, _storable(field.dataType)) for field in observed]
        kept = [StructField(name, inner) for name, inner in fields if inner is not None]
        return StructType(kept) if kept else None
    if isinstance(observed, ArrayType):
        inner = _storable(observed.elementType)
        return None if inner is None else ArrayType(inner)
    if isinstance(observed, DecimalType):
        return DecimalType(_MAX_DIGITS, 0) if observed.scale == 0 else DoubleType()
    if isinstance(observed, VariantType):
        return StringType()
    return None if isinstance(observed, NullType) else observed


def widened(held: DataType | None, observed: DataType | None) -> DataType | None:
    """Return the type of a table that has ``held`` after values of ``found``: with new fields, and numbers as wide as they are.

    Where the two contradict each other the table's type stays, and values that do not fit it go to the rejects.

    Raises:
        IngestError: a new field has the name of one that the table has, but for its case, or there are too many columns.
    """
    if held is None or observed is None:
        return _grown(observed, "") if held is None and observed is not None else held
    if isinstance(held, StructType) and isinstance(observed, StructType):
        new = {field.name.lower(): field for field in observed}
        fields = []
        for field in held:
            other = new.pop(field.name.lower(), None)
            if other is not None and other.name != field.name:
                raise IngestError(
                    f"values have the field {other.name}, and the table has {field.name}: Delta does not tell upper from lower "
                    "case. Name the columns in schema, which leaves others out."
                )
            inner = field.dataType if other is None else widened(field.dataType, other.dataType)
            fields.append(StructField(field.name, inner or field.dataType))
        grown = StructType(
            [*fields, *(StructField(field.name, _grown(field.dataType, field.name)) for field in new.values())]
        )
        if _n_columns(grown) > _MAX_COLUMNS:
            raise IngestError(
                f"values have more than {_MAX_COLUMNS} fields, the newest {grown.names[-1]}: objects are used as maps, whose names "
                "are values. Declare the columns in schema, such an object as a MAP<STRING, ...>."
            )
        return grown
    if isinstance(held, ArrayType) and isinstance(observed, ArrayType):
        return ArrayType(widened(held.elementType, observed.elementType) or held.elementType)
    if isinstance(held, MapType):
        values = (
            observed.valueType
            if isinstance(observed, MapType)
            else _one_type(observed)
            if isinstance(observed, StructType)
            else None
        )
        return MapType(held.keyType, widened(held.valueType, values) or held.valueType)
    return _wider_number(held, observed)


def _wider_number(held: DataType, observed: DataType) -> DataType:
    """Return a wider number, as far as Delta widens a column; the held type where the other one is no wider number."""
    if isinstance(held, _WHOLE) and isinstance(observed, _WHOLE):
        return max(held, observed, key=lambda data_type: _WHOLE.index(type(data_type)))
    if isinstance(observed, DoubleType | FloatType) and isinstance(held, LongType):
        return WIDENED_BIGINT
    if isinstance(observed, DoubleType) and isinstance(held, FloatType | ByteType | ShortType | IntegerType):
        return observed
    if isinstance(held, DecimalType | LongType) and isinstance(observed, DecimalType):
        digits, scale = (held.precision, held.scale) if isinstance(held, DecimalType) else (20, 0)
        wide = max(digits - scale, observed.precision - observed.scale), max(scale, observed.scale)
        return DecimalType(sum(wide), wide[1]) if sum(wide) <= _MAX_DIGITS else held
    return observed if isinstance(held, DateType) and isinstance(observed, TimestampNTZType) else held


def _grown(observed: DataType, name: str) -> DataType:
    """Return a new column's type: a map in place of an object with very many fields, unless it is the whole row."""
    if isinstance(observed, StructType):
        if name and len(observed) > _MAX_FIELDS:
            _log.warning(
                "Field %s has objects with %d different fields, more than %d: it becomes a MAP, whose keys they are. Declare it in "
                "schema to have columns instead.",
                name,
                len(observed),
                _MAX_FIELDS,
            )
            return MapType(StringType(), _one_type(observed))
        return StructType(
            [StructField(field.name, _grown(field.dataType, f"{name}.{field.name}".lstrip("."))) for field in observed]
        )
    if isinstance(observed, ArrayType):
        return ArrayType(_grown(observed.elementType, name or "element"))
    return observed


def _one_type(row_type: StructType) -> DataType:
    """Return the type of a map's values, from fields: theirs, a number's where all are numbers, else text."""

    def one(held: DataType, other: DataType) -> DataType:
        if held == other:
            return held
        numbers = (LongType, DoubleType, DecimalType)
        return DoubleType() if isinstance(held, numbers) and isinstance(other, numbers) else StringType()

    return reduce(one, (field.dataType for field in row_type))


def _n_columns(data_type: DataType) -> int:
    if isinstance(data_type, StructType):
        return sum(1 + _n_columns(field.dataType) for field in data_type)
    return _n_columns(data_type.elementType) if isinstance(data_type, ArrayType) else 0


def column_ddl(data_type: DataType) -> str:
    """Return a type as the options ``valueSchema`` and ``keySchema`` take it: the columns of a struct, or a type."""
    if isinstance(data_type, StructType):
        return ", ".join(f"{quoted(field.name)} {type_ddl(field.dataType)}" for field in data_type)
    return type_ddl(data_type)
