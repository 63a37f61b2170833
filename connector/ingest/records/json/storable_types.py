"""Types without empty records: no file format can store a record without fields.

Wherever such a record is in a value, its field, list or map is omitted, and the rest of the value lands.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def storable_type(data_type: DataType) -> DataType | None:
    """Return a type without its empty records; None if nothing is left."""
    if isinstance(data_type, StructType):
        fields = [(field, storable_type(field.dataType)) for field in data_type]
        kept = [StructField(field.name, inner, field.nullable) for field, inner in fields if inner is not None]
        return StructType(kept) if kept else None
    if isinstance(data_type, ArrayType):
        item = storable_type(data_type.elementType)
        return None if item is None else ArrayType(item, data_type.containsNull)
    if isinstance(data_type, MapType):
        value = storable_type(data_type.valueType)
        return None if value is None else MapType(data_type.keyType, value, data_type.valueContainsNull)
    return data_type


def storable(value: Column, data_type: DataType) -> Column:
    """Return a value converted to its :func:`storable_type`, which must not be None."""
    kept = storable_type(data_type)
    if kept == data_type:
        return value
    if isinstance(data_type, StructType) and isinstance(kept, StructType):
        fields = [storable(value.getField(name), data_type[name].dataType).alias(name) for name in kept.names]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(data_type, MapType):
        return F.transform_values(value, lambda _, item: storable(item, data_type.valueType))
    assert isinstance(data_type, ArrayType), "other types have something to store"
    return F.transform(value, lambda item: storable(item, data_type.elementType))


def empty_places(data_type: DataType, path: str) -> Iterator[str]:
    """Yield the paths of the empty records in a type."""
    if storable_type(data_type) is None:
        yield path
    elif isinstance(data_type, StructType):
        for field in data_type:
            yield from empty_places(field.dataType, f"{path}.{field.name}".lstrip("."))
    elif isinstance(data_type, ArrayType):
        yield from empty_places(data_type.elementType, f"{path}[]")
    elif isinstance(data_type, MapType):
        yield from empty_places(data_type.valueType, f"{path}{{}}")
