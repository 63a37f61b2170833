"""The type of a table whose JSON values nobody has declared: found in the values themselves, and only widened.

Owns how a place of the table grows with what is found there. **The place's own sort decides**: an object lets a STRUCT or a MAP
grow, an array an ARRAY, a number a number. A value of another sort changes no type: it is a reject, of its own document alone.
Where a place is new, objects come before arrays, and arrays before other values. So no document takes a column from another one.
New columns have the order in which the documents have them.
"""

from __future__ import annotations

import logging
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
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from pykafka_wire.errors import IngestError, UnfitRecordsError
from pykafka_wire.ingest.records.json.shapes import EXACT_NUMBER, FRACTION, LARGE, WHOLE, Shape, one_type, values_of
from pykafka_wire.ingest.sql import clash, quoted, type_ddl

_log = logging.getLogger(__name__)

#: An object within a document with more fields than this, when it is seen first, is a map: its names are values.
_MAX_FIELDS: Final = 100
#: A table with more columns than this, nested ones among them, is no table that anyone has declared.
_MAX_COLUMNS: Final = 2_000
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_MAX_DIGITS: Final = 38


def grown(held: DataType | None, shape: Shape, name: str = "") -> DataType | None:
    """Return the type that a place of ``held`` has after values of a shape; None where nothing has a type yet.

    Args:
        held: the table's type of the place, None for a new one.
        name: of the field, empty for the whole row.

    Raises:
        UnfitRecordsError: two fields differ in case only, or there are too many columns.
    """
    return _new_type(shape, name) if held is None else widened(held, _seen_as(held, shape))


def _seen_as(held: DataType, shape: Shape) -> DataType | None:
    """Return the type of those of a shape's values that are of the sort of a place's type; None where there are none."""
    if isinstance(held, StructType) and shape.fields is not None:
        inner = {field.name.lower(): field.dataType for field in held}
        shapes = [(name, of_name) for name, of_name in shape.fields.items() if not of_name.is_empty]
        seen = [(name, grown(inner.get(name.lower()), of_name, name)) for name, of_name in shapes]
        fields = [StructField(name, data_type) for name, data_type in seen if data_type is not None]
        _check_names([*held, *(field for field in fields if field.name not in held.names)])
        return StructType(fields)
    if isinstance(held, ArrayType) and shape.items is not None:
        return ArrayType(grown(held.elementType, shape.items, "element") or held.elementType)
    if isinstance(held, MapType) and (values := values_of(shape)) is not None:
        return MapType(held.keyType, grown(held.valueType, values, "value") or held.valueType)
    if isinstance(held, (*_WHOLE, FloatType)) and shape.kinds & FRACTION:
        return DoubleType()
    if isinstance(held, (*_WHOLE, DecimalType)) and shape.kinds & LARGE:
        return DecimalType(_MAX_DIGITS, 0)
    return LongType() if isinstance(held, _WHOLE) and shape.kinds & WHOLE else None


def _new_type(shape: Shape, name: str) -> DataType | None:
    """Return the type of a new place; None where its values have none, as nulls and empty objects."""
    if shape.fields is not None:
        typed = [
            (inner, _new_type(of_inner, f"{name}.{inner}".lstrip("."))) for inner, of_inner in shape.fields.items()
        ]
        fields = [StructField(inner, data_type) for inner, data_type in typed if data_type is not None]
        if name and len(fields) > _MAX_FIELDS and (values := values_of(shape)) is not None:
            _warn_of_map(name, len(fields))
            return MapType(StringType(), _new_type(values, f"{name}.value") or StringType())
        if fields:
            _check_names(fields)
            return StructType(fields)
    if shape.items is not None and (item := _new_type(shape.items, name or "element")) is not None:
        return ArrayType(item)
    return shape.scalar_type


def _check_names(fields: list[StructField]) -> None:
    """Raise UnfitRecordsError where two fields would be one column."""
    two = clash(StructType([StructField(field.name, StringType()) for field in fields]))
    if two is not None:
        raise UnfitRecordsError(
            f"values have the fields {two}, whose names differ in case only: they are one name to Delta and to Spark. Name the "
            "columns in schema, which leaves others out."
        )


def widened(held: DataType | None, observed: DataType | None) -> DataType | None:
    """Return the type of a table that has ``held`` after values of ``observed``: with new fields, and numbers as wide as they are.

    Where the two contradict each other the table's type stays, and values that do not fit it go to the rejects.

    Raises:
        IngestError: a new field has the name of one that the table has, but for its case.
        UnfitRecordsError: there are too many columns.
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
            raise UnfitRecordsError(
                f"values have more than {_MAX_COLUMNS} fields, the newest {grown.names[-1]}: objects are used as maps, whose names "
                "are values. Declare the columns in schema, such an object as a MAP<STRING, ...>."
            )
        return grown
    if isinstance(held, ArrayType) and isinstance(observed, ArrayType):
        return ArrayType(widened(held.elementType, observed.elementType) or held.elementType)
    if isinstance(held, MapType):
        values = observed.valueType if isinstance(observed, MapType) else None
        if isinstance(observed, StructType):
            values = one_type(field.dataType for field in observed)
        return MapType(held.keyType, widened(held.valueType, values) or held.valueType)
    return _wider_number(held, observed)


def _wider_number(held: DataType, observed: DataType) -> DataType:
    """Return a wider number, as far as Delta widens a column; the held type where the other one is no wider number."""
    if isinstance(held, _WHOLE) and isinstance(observed, _WHOLE):
        return max(held, observed, key=lambda data_type: _WHOLE.index(type(data_type)))
    if isinstance(observed, DoubleType | FloatType) and isinstance(held, LongType):
        return EXACT_NUMBER  # Delta widens a BIGINT to no DOUBLE
    if isinstance(observed, DoubleType) and isinstance(held, FloatType | ByteType | ShortType | IntegerType):
        return observed
    if isinstance(held, (DecimalType, *_WHOLE)) and isinstance(observed, DecimalType):
        digits, scale = (held.precision, held.scale) if isinstance(held, DecimalType) else (20, 0)
        wide = max(digits - scale, observed.precision - observed.scale), max(scale, observed.scale)
        return DecimalType(sum(wide), wide[1]) if sum(wide) <= _MAX_DIGITS else held
    return observed if isinstance(held, DateType) and isinstance(observed, TimestampNTZType) else held


def _grown(observed: DataType, name: str) -> DataType:
    """Return a new column's type: a map in place of an object with very many fields, unless it is the whole row."""
    if isinstance(observed, StructType):
        if name and len(observed) > _MAX_FIELDS:
            _warn_of_map(name, len(observed))
            return MapType(StringType(), one_type(field.dataType for field in observed))
        return StructType(
            [StructField(field.name, _grown(field.dataType, f"{name}.{field.name}".lstrip("."))) for field in observed]
        )
    if isinstance(observed, ArrayType):
        return ArrayType(_grown(observed.elementType, name or "element"))
    return observed


def _warn_of_map(name: str, n_fields: int) -> None:
    _log.warning(
        "Field %s has objects with %d different fields, more than %d: it becomes a MAP, whose keys they are. Declare it in "
        "schema to have columns instead.",
        name,
        n_fields,
        _MAX_FIELDS,
    )


def _n_columns(data_type: DataType) -> int:
    if isinstance(data_type, StructType):
        return sum(1 + _n_columns(field.dataType) for field in data_type)
    return _n_columns(data_type.elementType) if isinstance(data_type, ArrayType) else 0


def column_ddl(data_type: DataType) -> str:
    """Return a type as the options ``valueSchema`` and ``keySchema`` take it: the columns of a struct, or a type."""
    if isinstance(data_type, StructType):
        return ", ".join(f"{quoted(field.name)} {type_ddl(field.dataType)}" for field in data_type)
    return type_ddl(data_type)
