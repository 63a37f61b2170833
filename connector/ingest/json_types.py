"""The type of JSON values that nobody has declared: found in the values themselves, and only widened.

Spark's ``schema_of_variant_agg`` finds it. Owns what of it a table can store, and how it grows with what the table has already.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pykafka_wire.errors import IngestError
from pykafka_wire.ingest.tables import quoted, type_ddl


def inferred(records: DataFrame, column: str) -> DataType | None:
    """The type of all JSON texts in a binary column, as :func:`inferred_type`; what is not JSON is skipped."""
    # Confluent's frame before the text, if there is one, is a zero byte and four more.
    text = f"CAST(IF(substring({column}, 1, 1) = X'00', substring({column}, 6), {column}) AS STRING)"
    found = records.select(F.expr(f"schema_of_variant_agg(try_parse_json({text}))")).first()
    return inferred_type(None if found is None else found[0])


def inferred_type(found: str | None) -> DataType | None:
    """The type that ``schema_of_variant_agg`` has found; None where the values have none, as nulls and empty objects."""
    if found is None:
        return None
    # Names with other characters are in backticks, so that no name can hold this.
    return _storable(DataType.fromDDL(re.sub(r"(`[^`]*`)|OBJECT<", lambda part: part[1] or "STRUCT<", found)))


def _storable(found: DataType) -> DataType | None:
    """A type that a table can have: exact whole numbers, doubles, and text for values of several kinds."""
    if isinstance(found, StructType):
        fields = [(each.name, _storable(each.dataType)) for each in found]
        kept = [StructField(name, inner) for name, inner in fields if inner is not None]
        return StructType(kept) if kept else None
    if isinstance(found, ArrayType):
        inner = _storable(found.elementType)
        return None if inner is None else ArrayType(inner)
    if isinstance(found, DecimalType):
        return DecimalType(38, 0) if found.scale == 0 else DoubleType()
    if isinstance(found, VariantType):
        return StringType()
    return None if isinstance(found, NullType) else found


def widened(held: DataType | None, found: DataType | None) -> DataType | None:
    """The type of a table that has ``held`` after values of ``found``: with new fields, and whole numbers as large as they are.

    Where the two contradict each other the table's type stays, and values that do not fit it go to the rejects.

    Raises:
        IngestError: a new field has the name of one that the table has, but for its case.
    """
    if held is None or found is None:
        return found if held is None else held
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
        return StructType([*fields, *new.values()])
    if isinstance(held, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(widened(held.elementType, found.elementType) or held.elementType)
    if isinstance(held, LongType) and isinstance(found, DecimalType):
        return found
    return held


def column_ddl(found: DataType) -> str:
    """A type as the options ``valueSchema`` and ``keySchema`` take it: the columns of a struct, or a type."""
    if isinstance(found, StructType):
        return ", ".join(f"{quoted(each.name)} {type_ddl(each.dataType)}" for each in found)
    return type_ddl(found)
