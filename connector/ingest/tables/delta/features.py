"""Delta table features. A table gets a feature only when a column needs it, since each feature excludes some readers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from pykafka_wire.ingest.tables.type_changes import TypeChange, conflict_error, type_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A Delta table feature.

    Attributes:
        name: Delta's name of the feature.
        property, value: the table property that enables the feature.
        readers: which readers can read a table with the feature, as text.
    """

    name: str
    property: str
    value: str
    readers: str


class HeldFeatures(NamedTuple):
    """The features that a table has, and those that its properties refuse."""

    enabled: tuple[Feature, ...] = ()
    refused: tuple[Feature, ...] = ()


#: Values of a feature's property with which the owner of a table refuses the feature.
DISABLED: Final = ("false", "none")
TYPE_WIDENING: Final = Feature(
    name="typeWidening",
    property="delta.enableTypeWidening",
    value="true",
    readers="deltalake 1.6, DuckDB through it, and Polars 2.1 refuse the table; Spark reads it with Delta 4.0 or newer.",
)
TIMESTAMP_NTZ: Final = Feature(
    name="timestampNtz",
    property="delta.feature.timestampNtz",
    value="supported",
    readers="deltalake, DuckDB through it, and Polars read the table; Delta before 2.4 does not.",
)
COLUMN_MAPPING: Final = Feature(
    name="columnMapping",
    property="delta.columnMapping.mode",
    value="name",
    readers=(
        "Polars 2.1 refuses the table; deltalake 1.6 reads it only through its QueryBuilder: to_pyarrow_dataset and "
        "to_pyarrow_table return nulls in columns that are added from now on."
    ),
)
VARIANT: Final = Feature(
    name="variantType",
    property="delta.feature.variantType",
    value="supported",
    readers="Polars 2.1 refuses the table, deltalake 1.6 reads such a column as bytes; Spark reads it with Delta 4.0 or newer.",
)

#: The features that a column of a topic may need.
_FEATURES: Final = (TYPE_WIDENING, TIMESTAMP_NTZ, COLUMN_MAPPING, VARIANT)
#: Characters that a column name may have only with column mapping.
_NEED_MAPPING: Final = frozenset(" ,;{}()\n\t=")
#: Types of whole numbers by size, with their decimal digits as Delta counts them.
_WHOLE: Final[dict[type[DataType], int]] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}


def needed_features(rows: StructType, held: StructType | None) -> list[Feature]:
    """Return the features that a table with the columns ``held`` needs to store rows; ``held`` is None for a new table."""
    types = list(_types(rows))
    needed = []
    if held is not None and any(map(is_widened, type_changes(held, rows))):
        needed.append(TYPE_WIDENING)
    if any(isinstance(data_type, TimestampNTZType) for data_type in types):
        needed.append(TIMESTAMP_NTZ)
    if any(
        isinstance(data_type, StructType) and _NEED_MAPPING.intersection("".join(data_type.names))
        for data_type in types
    ):
        needed.append(COLUMN_MAPPING)
    if any(isinstance(data_type, VariantType) for data_type in types):
        needed.append(VARIANT)
    return needed


def gained_features(rows: StructType, held: StructType | None, state: HeldFeatures) -> list[Feature]:
    """Return the features that a table with the columns ``held`` gets with rows, without those that it has or refuses."""
    return [each for each in needed_features(rows, held) if each not in (*state.enabled, *state.refused)]


def held_features(properties: Mapping[str, str], names: Container[str]) -> HeldFeatures:
    """Return the features that a table has, and those that its properties refuse.

    Args:
        properties: the table's properties. Features without a property of their own are not among them.
        names: Delta's names of the features that readers of the table must know; empty for tables of old protocols.
    """
    return HeldFeatures(
        enabled=tuple(each for each in _FEATURES if each.name in names or properties.get(each.property) == each.value),
        refused=tuple(each for each in _FEATURES if properties.get(each.property) in DISABLED),
    )


def wider_type(held: DataType, rows: DataType) -> DataType:
    """Return the table's type, in which each part is at least as wide as in ``rows``, without new columns."""
    if _is_wider(held, rows):
        return rows
    of_rows = dict(_children(rows)) if type(held) is type(rows) else {}
    if isinstance(held, StructType):
        fields = [
            StructField(
                field.name,
                wider_type(field.dataType, of_rows.get(field.name.lower(), field.dataType)),
                field.nullable,
                field.metadata,
            )
            for field in held
        ]
        return StructType(fields)
    if isinstance(held, ArrayType) and of_rows:
        return ArrayType(wider_type(held.elementType, of_rows["element"]), held.containsNull)
    if isinstance(held, MapType) and of_rows:
        value = wider_type(held.valueType, of_rows["value"])
        return MapType(wider_type(held.keyType, of_rows["key"]), value, held.valueContainsNull)
    return held


def is_widened(change: TypeChange) -> bool:
    """Return whether Delta's feature of type widening supports a change of a type."""
    return _is_wider(change.held, change.rows)


def is_free(change: TypeChange) -> bool:
    """Return whether a write of new columns changes a type without a feature: Parquet has one type for all small integers."""
    is_small = all(_WHOLE.get(type(kind), 99) <= _WHOLE[IntegerType] for kind in (change.held, change.rows))
    return is_small or isinstance(change.held, NullType)


def check_changes(identifier: str, changes: Iterable[TypeChange]) -> None:
    """Raise ColumnConflictError if a table cannot get the types of its rows, whatever its features."""
    if conflicts := [change for change in changes if not (is_widened(change) or is_free(change))]:
        raise conflict_error(identifier, conflicts, "Delta cannot widen the one type to the other")


def _types(data_type: DataType) -> Iterator[DataType]:
    yield data_type
    for _, inner in _children(data_type):
        yield from _types(inner)


def _children(data_type: DataType) -> list[tuple[str, DataType]]:
    """Return the types directly inside a type, by name."""
    if isinstance(data_type, StructType):
        return [(field.name.lower(), field.dataType) for field in data_type]
    if isinstance(data_type, ArrayType):
        return [("element", data_type.elementType)]
    if isinstance(data_type, MapType):
        return [("key", data_type.keyType), ("value", data_type.valueType)]
    return []


def _is_wider(held: DataType, new: DataType) -> bool:
    digits = _WHOLE.get(type(held))
    if isinstance(new, DoubleType):
        return isinstance(held, (FloatType, ByteType, ShortType, IntegerType))
    if isinstance(new, LongType):  # Delta widens a smaller type to another smaller type without the feature
        return isinstance(held, (ByteType, ShortType, IntegerType))
    if isinstance(new, DecimalType) and isinstance(held, DecimalType):
        return new != held and new.scale >= held.scale and new.precision - new.scale >= held.precision - held.scale
    if isinstance(new, DecimalType) and digits is not None:
        return new.precision - new.scale >= max(10, digits)
    return isinstance(held, DateType) and isinstance(new, TimestampNTZType)
