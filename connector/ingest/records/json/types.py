"""The inferred type of a table with JSON values that nobody has declared. The type is only widened.

How a place grows depends on its existing kind: objects extend a STRUCT or a MAP, arrays an ARRAY, and numbers a number type. A
value of another kind changes no type: it becomes a reject, for its own document only. In a new place, objects take precedence over
arrays, and arrays over other values. So no document can take a column away from another. New columns have the order of the
documents.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
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

from pykafka_wire.errors import UnfitRecordsError
from pykafka_wire.ingest.records.json.shapes import EXACT_NUMBER, FRACTION, LARGE, WHOLE, Shape, one_type, values_of
from pykafka_wire.ingest.spark.sql import equal_names

_log = logging.getLogger(__name__)

#: A new nested object with more fields than this becomes a map: its field names are data.
_MAX_FIELDS: Final = 100
#: The most columns of an inferred table, including nested columns: nobody declares a table with more.
_MAX_COLUMNS: Final = 2_000
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_MAX_DIGITS: Final = 38


def grown(held: DataType | None, shape: Shape, name: str = "") -> DataType | None:
    """Return the type of a place that has the type ``held``, after the values of a shape; None if nothing has a type yet.

    Args:
        held: the table's type of the place, None for a new place.
        name: the name of the field, empty for the whole row.

    Raises:
        UnfitRecordsError: two field names differ only in case, or there are too many columns.
    """
    return _new_type(shape, name) if held is None else widened(held, _seen_as(held, shape))


def _seen_as(held: DataType, shape: Shape) -> DataType | None:
    """Return the type of a shape's values that have the kind of a place's type; None if there are no such values."""
    if isinstance(held, StructType) and shape.fields is not None:
        inner = {field.name.lower(): field.dataType for field in held}
        shapes = [(name, of_name) for name, of_name in shape.fields.items() if not of_name.is_empty]
        seen = [(name, grown(inner.get(name.lower()), of_name, name)) for name, of_name in shapes]
        fields = [StructField(name, data_type) for name, data_type in seen if data_type is not None]
        _check_names(held, fields)
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
    """Return the type of a new place; None if all values are null or empty objects."""
    if shape.fields is not None:
        typed = [
            (inner, _new_type(of_inner, f"{name}.{inner}".lstrip("."))) for inner, of_inner in shape.fields.items()
        ]
        fields = [StructField(inner, data_type) for inner, data_type in typed if data_type is not None]
        if name and len(fields) > _MAX_FIELDS and (values := values_of(shape)) is not None:
            _warn_of_map(name, len(fields))
            return MapType(StringType(), _new_type(values, f"{name}.value") or StringType())
        if fields:
            _check_names((), fields)
            return StructType(fields)
    if shape.items is not None and (item := _new_type(shape.items, name or "element")) is not None:
        return ArrayType(item)
    return shape.scalar_type


def _check_names(held: Iterable[StructField], observed: Iterable[StructField]) -> None:
    """Raise UnfitRecordsError if two fields would become one column: both of the values, or one of them of the table."""
    known, names = [field.name for field in held], [field.name for field in observed]
    advice = "List the columns in schema; other fields are then ignored."
    if (two := equal_names(names)) is not None:
        raise UnfitRecordsError(
            f"values have the fields {' and '.join(two)}, which differ only in case: Delta and Spark treat them as one name. "
            f"{advice}"
        )
    if (two := equal_names([*known, *(name for name in names if name not in known)])) is not None:
        raise UnfitRecordsError(
            f"values have the field {two[1]}, but the table has {two[0]}: Delta and Spark ignore case in names. {advice}"
        )


def widened(held: DataType | None, observed: DataType | None) -> DataType | None:
    """Return the type of a table of the type ``held`` after values of the type ``observed``: new fields, and wider numbers.

    If the two types contradict each other, the table's type stays, and values that do not fit become rejects. A new column has the
    type of its values: one that a schema has declared stays a STRUCT, however many fields the schema has.

    Raises:
        UnfitRecordsError: two names differ only in case, or there are too many columns.
    """
    if held is None or observed is None:
        return observed if held is None else held
    if isinstance(held, StructType) and isinstance(observed, StructType):
        _check_names(held, observed)
        new = {field.name: field for field in observed}
        fields = []
        for field in held:
            other = new.pop(field.name, None)
            inner = field.dataType if other is None else widened(field.dataType, other.dataType)
            fields.append(StructField(field.name, inner or field.dataType))
        grown = StructType([*fields, *new.values()])
        if _n_columns(grown) > _MAX_COLUMNS:
            raise UnfitRecordsError(
                f"values have more than {_MAX_COLUMNS} fields, the newest {grown.names[-1]}: objects are used as maps, and their "
                "field names are data. Declare the columns in schema, with such an object as MAP<STRING, ...>."
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
    """Return a wider number type that Delta can widen the column to; the held type if the observed type is not a wider number."""
    if isinstance(held, _WHOLE) and isinstance(observed, _WHOLE):
        return max(held, observed, key=lambda data_type: _WHOLE.index(type(data_type)))
    if isinstance(observed, DoubleType | FloatType) and isinstance(held, LongType):
        return EXACT_NUMBER  # Delta cannot widen a BIGINT to a DOUBLE
    if isinstance(observed, DoubleType) and isinstance(held, FloatType | ByteType | ShortType | IntegerType):
        return observed
    if isinstance(held, (DecimalType, *_WHOLE)) and isinstance(observed, DecimalType):
        digits, scale = (held.precision, held.scale) if isinstance(held, DecimalType) else (20, 0)
        wide = max(digits - scale, observed.precision - observed.scale), max(scale, observed.scale)
        return DecimalType(sum(wide), wide[1]) if sum(wide) <= _MAX_DIGITS else held
    return observed if isinstance(held, DateType) and isinstance(observed, TimestampNTZType) else held


def _warn_of_map(name: str, n_fields: int) -> None:
    _log.warning(
        "Field %s has objects with %d different fields, more than %d: the column becomes a MAP with the field names as keys. "
        "Declare it in schema to get columns instead.",
        name,
        n_fields,
        _MAX_FIELDS,
    )


def _n_columns(data_type: DataType) -> int:
    if isinstance(data_type, StructType):
        return sum(1 + _n_columns(field.dataType) for field in data_type)
    return _n_columns(data_type.elementType) if isinstance(data_type, ArrayType) else 0
