"""Kafka Connect's schemas in JSON: the column types that they declare, and which column accepts the values of which schema.

The rule: **a value's own schema decides, never its text**. A text that looks like base64 is not bytes, and a number of
milliseconds is not a whole number. https://github.com/apache/kafka/tree/trunk/connect/json
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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
    TimestampType,
)

from pykafka_wire.ingest.records.json.shapes import EXACT_NUMBER
from pykafka_wire.ingest.records.json.survey import Kind
from pykafka_wire.values.connect_types import CONNECT_TYPES, DECIMAL, ConnectType

#: A Connect schema as JSON; None for documents without a schema.
Schema: TypeAlias = dict[str, Any] | None

_MAX_DIGITS: Final = 38
_SIMPLE: Final[dict[str, DataType]] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
#: Connect's types that a named type may have, under Avro's names.
_CARRIERS: Final = {"int32": "int", "int64": "long", "string": "string", "struct": "record"}
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_FRACTIONS: Final = (FloatType, DoubleType)
#: The type, in a schema, of a value that its column does not accept.
_UNFIT: Final = "unfit"


def declared_type(schema: Schema) -> DataType | None:
    """Return the column type of a Connect schema; None for a type that Connect does not have.

    A nested struct without fields is read as text: no table can store an empty STRUCT.
    """
    if schema is None:
        return None
    kind, named = schema.get("type"), named_type(schema)
    if named is not None:
        return column_type(named)
    if is_decimal(schema):
        return _decimal_type(schema.get("parameters") or {})
    if kind == "struct":
        fields = [(str(field.get("field")), _type_within(field)) for field in schema.get("fields") or []]
        return StructType([StructField(field, inner) for field, inner in fields])
    if kind == "array":
        return ArrayType(_type_within(schema.get("items")))
    if kind == "map":
        if (schema.get("keys") or {}).get("type") != "string":
            return StringType()  # Connect writes such a map as an array of pairs
        return MapType(StringType(), _type_within(schema.get("values")))
    return _SIMPLE.get(str(kind))


def _type_within(schema: Schema) -> DataType:
    data_type = declared_type(schema)
    return StringType() if data_type is None or data_type == StructType() else data_type


def named_type(schema: Schema) -> ConnectType | None:
    """Return the type that a schema's name declares; None for no name, or a name that changes nothing."""
    connect_type = None if schema is None else CONNECT_TYPES.get(str(schema.get("name")))
    carrier = None if schema is None else _CARRIERS.get(str(schema.get("type")))
    return connect_type if connect_type is not None and carrier in connect_type.carriers else None


def column_type(named: ConnectType) -> DataType:
    """Return the column type of a named type. A time of day is a BIGINT, microseconds since midnight: Delta has no such type."""
    if named.kind == "timestamp":
        return TimestampType() if named.type.tz else TimestampNTZType()
    return {"date": DateType(), "time": LongType()}.get(named.kind, StringType())


def is_decimal(schema: Schema) -> bool:
    """Return whether a schema is Connect's decimal type."""
    return schema is not None and schema.get("name") == DECIMAL


def _decimal_type(parameters: dict[str, Any]) -> DataType:
    """Return the column type of Connect's decimals; text if a DECIMAL could not hold them."""
    scale, digits = int(parameters.get("scale", 0)), int(parameters.get("connect.decimal.precision", _MAX_DIGITS))
    return DecimalType(digits, scale) if 0 <= scale <= digits <= _MAX_DIGITS and digits else StringType()


def row_schema(text: str | None, kind: Kind) -> Schema:
    """Return the part of a schema that describes the row."""
    schema: Schema = None if text is None else json.loads(text)
    if kind != "change" or schema is None:
        return schema
    return next((field for field in schema.get("fields") or [] if field.get("field") == "after"), None)


def fields_by_name(schema: Schema) -> dict[str, Schema]:
    """Return the schemas of a struct's fields, by lower-case name."""
    return {str(field.get("field")).lower(): field for field in (schema or {}).get("fields") or []}


def time_of(schema: Schema, wanted: DataType) -> ConnectType | None:
    """Return a schema's date or time type, if a column of the wanted type accepts it."""
    named = named_type(schema)
    if named is None or named.kind not in ("date", "timestamp", "time"):
        return None
    # A date fits a timestamp column, dates and timestamps have a text, and a BIGINT may have become a DECIMAL.
    is_widened = named.kind == "date" and isinstance(wanted, TimestampNTZType)
    is_widened |= named.kind == "time" and isinstance(wanted, DecimalType)
    is_text = named.kind != "time" and named.unit is not None and isinstance(wanted, StringType)
    return named if is_widened or is_text or column_type(named) == wanted else None


def is_unfit(schema: Schema) -> bool:
    """Return whether :func:`fitting` has marked the schema: its column does not accept the values."""
    return schema is not None and schema.get("type") == _UNFIT


def fitting(schema: Schema, wanted: DataType | None) -> Schema:
    """Return a schema with a mark at each place whose values the wanted type does not accept."""
    if schema is None or wanted is None:
        return schema
    kind = schema.get("type")
    if kind == "struct" and isinstance(wanted, StructType):
        types = {field.name.lower(): field.dataType for field in wanted}
        fields = [fitting(field, types.get(str(field.get("field")).lower())) for field in schema.get("fields") or []]
        return {**schema, "fields": fields}
    if kind == "array" and isinstance(wanted, ArrayType):
        return {**schema, "items": fitting(schema.get("items"), wanted.elementType)}
    if kind == "map" and isinstance(wanted, MapType):
        return {**schema, "values": fitting(schema.get("values"), wanted.valueType)}
    return schema if _is_taken(schema, wanted) else {"type": _UNFIT, "field": schema.get("field")}


def _is_taken(schema: Schema, wanted: DataType) -> bool:
    """Return whether a column accepts values of a schema: the same type, a narrower type, or values with an unambiguous text."""
    declared = declared_type(schema)
    if declared is None or declared == wanted or time_of(schema, wanted) is not None:
        return True
    named = named_type(schema)
    if named is not None and named.unit is not None:
        return False
    if isinstance(wanted, StringType):
        return is_decimal(schema) or _is_its_text(schema)
    if is_decimal(schema):
        return isinstance(wanted, DecimalType)
    if isinstance(declared, _WHOLE):
        is_exact = isinstance(declared, ByteType | ShortType) or not isinstance(wanted, FloatType)
        return isinstance(wanted, (*_WHOLE, *_FRACTIONS, DecimalType)) and is_exact
    return isinstance(declared, _FRACTIONS) and (isinstance(wanted, _FRACTIONS) or wanted == EXACT_NUMBER)


def _is_its_text(schema: Schema) -> bool:
    """Return whether the JSON text of a schema's values shows what they are; false for base64 of bytes and for numbers of dates."""
    if schema is None:
        return True
    named = named_type(schema)
    if (
        isinstance(declared_type(schema), BinaryType)
        or is_decimal(schema)
        or (named is not None and named.unit is not None)
    ):
        return False
    parts = [*(schema.get("fields") or []), schema.get("items"), schema.get("keys"), schema.get("values")]
    return all(_is_its_text(part) for part in parts)
