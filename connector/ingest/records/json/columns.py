"""Expressions that read a JSON column of a range: with or without Kafka Connect's envelope, with or without Debezium's.

Connect's JsonConverter writes ``{"schema": …, "payload": …}`` if ``schemas.enable`` is on. The schema in a document decides how its
numbers and texts become dates, timestamps and decimals. https://github.com/apache/kafka/tree/trunk/connect/json
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name of it)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from pykafka_wire.errors import DecodeError
from pykafka_wire.ingest.records.json.declared_types import (
    Schema,
    column_type,
    declared_type,
    fields_by_name,
    fitting,
    is_decimal,
    is_unfit,
    row_schema,
    time_of,
)
from pykafka_wire.ingest.records.json.shapes import (
    EXACT_NUMBER,
    INEXACT,
    MAX_EXACT_WHOLE,
    NUMBERS,
    SURE_DIGITS,
    TEXT,
    WRITTEN_DIGITS,
    Shape,
    merged,
    values_of,
)
from pykafka_wire.ingest.records.json.survey import JsonSurvey, Kind, survey_of
from pykafka_wire.ingest.records.json.types import grown, widened
from pykafka_wire.ingest.spark.sql import column_ddl, type_ddl
from pykafka_wire.values.connect_types import VARIABLE_DECIMAL, ConnectType
from pykafka_wire.values.json.enveloped_documents import DOCUMENT, ENVELOPE
from pykafka_wire.values.numeric_times import END_DAY, FIRST_DAY, INFINITE, INFINITE_TEXTS, TimeUnit
from pykafka_wire.values.single_json.encodings import decimal_of_base64

#: The columns to read if no field has a type: the documents must still be valid JSON.
_NOTHING: Final = "_pykafka_wire_nothing BOOLEAN"
_NO_FIELDS: Final = f"STRUCT<{_NOTHING}>"
#: Texts that represent numbers.
_INFINITE_NUMBERS: Final = ("NaN", "Infinity", "+Infinity", "-Infinity")
_MAX_DIGITS: Final = 38
_PER_DAY: Final[dict[TimeUnit, int]] = {
    "days": 1, "milliseconds": 86_400_000, "microseconds": 86_400_000_000, "nanoseconds": 86_400_000_000_000,
}  # fmt: skip


def inferred(documents: Iterable[bytes | None], held: DataType | None = None) -> DataType | None:
    """Return the inferred type of JSON texts, as an extension of ``held``. Texts that are not JSON are skipped."""
    return row_type(survey_of(documents, "row"), "row", held)


# Types.


def without_absent(wanted: DataType | None, surveyed: JsonSurvey, kind: Kind) -> DataType | None:
    """Return a row's type without the columns that no document has. Delta fills missing columns, and computes generated columns.

    If keys no longer have a column, the primary key has lost the column. A key with a null in that column still has the column.
    """
    declared = [declared_type(row_schema(schema, kind)) for schema in surveyed.schemas]
    names = {name.lower() for data_type in declared if isinstance(data_type, StructType) for name in data_type.names}
    shapes = [(surveyed.plain.fields or {}), (surveyed.payload.fields or {})]
    names |= {name.lower() for fields in shapes for name, shape in fields.items() if not shape.is_empty}
    if kind == "key":
        names = {name.lower() for fields in surveyed.names for name in fields}
    if not isinstance(wanted, StructType) or (kind == "key" and not names):
        return wanted
    kept = [field for field in wanted if field.name.lower() in names]
    return StructType(kept) if kept else None


def row_type(surveyed: JsonSurvey, kind: Kind, held: DataType | None) -> DataType | None:
    """Return the type of a table's rows or keys: ``held``, extended by the types that the survey found."""
    declared = [declared_type(row_schema(schema, kind)) for schema in surveyed.schemas]
    undeclared = merged([surveyed.plain, *([surveyed.payload] if surveyed.is_loose else [])])
    is_of_objects = undeclared.fields is not None or any(isinstance(data_type, StructType) for data_type in declared)
    is_of_others = not undeclared.is_empty or any(data_type is not None for data_type in declared)
    if isinstance(held, StructType) and held.names == ["value"] and is_of_others and not is_of_objects:
        held = held["value"].dataType  # the documents are no objects
    return grown(reduce(widened, (data_type for data_type in declared if data_type is not None), held), undeclared)


# Reading.


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReading:
    """How to read a JSON column.

    Attributes:
        ddl: the type to read the column as.
        row: takes the column's name; returns the value in its type, and the reason if the value does not fit; the second is None
            if every value fits.
        is_separated: whether the source reads documents in and without Connect's envelope as two fields.
    """

    ddl: str
    is_separated: bool
    row: Callable[[str], tuple[Column, Column | None]]


def reading(
    surveyed: JsonSurvey, kind: Kind, wanted: DataType | None, extra: Sequence[str] = (), *, is_declared: bool = False
) -> JsonReading:
    """Return how to read a column's documents as rows of a type.

    Args:
        wanted: the type of the row, None if nothing has a type.
        extra: further fields of Debezium's envelope, as DDL.
        is_declared: whether the user has declared the type. If not, a value is lost if its own schema gives it another type than
            the column's.
    """
    schemas = [row_schema(schema, kind) for schema in surveyed.schemas]
    if not is_declared:
        schemas = [fitting(schema, wanted) for schema in schemas]
    plain = None if is_declared else surveyed.plain
    raw_plain = _raw(wanted, None, plain)
    raws = [_raw(wanted, schema, surveyed.payload) for schema in schemas]
    raw_payload = reduce(_one_raw, raws) if raws else None
    is_plain, is_enveloped = surveyed.n_plain > 0 or not surveyed.n_enveloped, surveyed.n_enveloped > 0
    by_schema = len(surveyed.schemas) > 1
    is_mixed = is_plain and is_enveloped and kind != "change"
    parts = []
    if is_mixed:
        parts.append(f"{DOCUMENT} {_NO_FIELDS if raw_plain is None else type_ddl(raw_plain)}")
    elif is_plain and (raw_plain is not None or kind == "change"):
        parts.append(_document_ddl(raw_plain, kind, extra))
    if is_enveloped:
        inner = _document_ddl(raw_payload, kind, extra)
        is_fields = kind == "change" or isinstance(raw_payload, StructType)
        payload_ddl = f"payload STRUCT<{inner}>" if is_fields else f"payload {inner or 'STRING'}"
        if is_mixed:
            parts.append(f"{ENVELOPE} STRUCT<schema STRING, {payload_ddl}>")
        else:
            parts += [payload_ddl, *(["schema STRING"] if by_schema else [])]

    def row(column: str) -> tuple[Column, Column | None]:
        document, envelope = F.col(column), F.col(column)
        if is_mixed:
            document, envelope = document.getField(DOCUMENT), envelope.getField(ENVELOPE)
            is_inside = envelope.isNotNull()
        elif is_plain:  # or a change, in an envelope or not
            is_inside = envelope.getField("payload").isNotNull() if is_enveloped else F.lit(False)
        else:
            is_inside = F.lit(True)
        cases: list[tuple[Column, Column | None]] = []
        if is_enveloped:
            payload = envelope.getField("payload")
            inside = payload.getField("after") if kind == "change" else payload
            options = [_converted(inside, raw_payload, schema, wanted, surveyed.payload) for schema in schemas]
            value, lost = (
                _by_schema(envelope.getField("schema"), surveyed.schemas, options) if by_schema else options[0]
            )
            missing = F.when(payload.isNull(), F.lit("its payload is null")) if kind == "row" else None
            cases.append((value, _first_reason(missing, _reason(lost))))
        if is_plain:
            document = document.getField("after") if kind == "change" else document
            value, lost = _converted(document, raw_plain, None, wanted, plain)
            cases.append((value, _reason(lost)))
        if len(cases) == 1:
            return cases[0]
        (first, why), (second, other) = cases
        why = F.lit(None).cast("string") if why is None else why
        other = F.lit(None).cast("string") if other is None else other
        return F.when(is_inside, first).otherwise(second), F.when(is_inside, why).otherwise(other)

    return JsonReading(ddl=", ".join(parts) or _NOTHING, row=row, is_separated=is_mixed)


def _document_ddl(raw: DataType | None, kind: Kind, extra: Sequence[str]) -> str:
    if kind != "change":
        return "" if raw is None else column_ddl(raw)
    # A row of unknown type is read as text, which shows whether there is a row.
    return ", ".join((*extra, f"after {type_ddl(raw or StringType())}"))


def _reason(lost: Column | None) -> Column | None:
    return (
        None
        if lost is None
        else F.when(lost, F.lit("a value does not fit the type of its column, or the range or digits of that type"))
    )


def _first_reason(*reasons: Column | None) -> Column | None:
    given = [reason for reason in reasons if reason is not None]
    return F.coalesce(*given) if given else None


def _by_schema(
    schema: Column, schemas: Sequence[str | None], options: Sequence[tuple[Column, Column | None]]
) -> tuple[Column, Column | None]:
    """Return the conversion for the schema of each document, chosen among several. A document with another schema is lost."""
    text = _normal(schema)
    value, lost = F.lit(None), F.lit(True)
    # Last in the order: a payload without a schema has none of the others, nor a schema of Connect's.
    for candidate, (other, other_lost) in sorted(
        zip(schemas, options, strict=True), key=lambda pair: pair[0] is not None
    ):
        is_this = schema.isNull() | text.isNotNull() if candidate is None else text == _normal(F.lit(candidate))
        value = F.when(is_this, other).otherwise(value)
        lost = F.when(is_this, F.lit(False) if other_lost is None else other_lost).otherwise(lost)
    return value, lost


def _normal(text: Column) -> Column:
    """Return a JSON text in a normal form: equal contents give equal texts."""
    return F.to_json(F.try_parse_json(text))


def _raw(wanted: DataType | None, schema: Schema, observed: Shape | None) -> DataType | None:
    """Return the type in which a value is read before it is converted to the wanted type."""
    if wanted is None:
        return None
    if is_unfit(schema):
        return StringType()
    if wanted == EXACT_NUMBER and not is_decimal(schema):  # digits beyond the scale are rounded, not rejected
        return _raw_number(None if schema is not None else observed)
    if isinstance(wanted, StructType) and (schema is None or schema.get("type") == "struct"):
        fields, shapes = fields_by_name(schema), _shapes(observed)
        raws = [
            _raw(field.dataType, fields.get(field.name.lower()), shapes.get(field.name.lower())) for field in wanted
        ]
        return StructType(
            [StructField(field.name, raw or StringType()) for field, raw in zip(wanted, raws, strict=True)]
        )
    if isinstance(wanted, ArrayType):
        inner = None if observed is None else observed.items
        return ArrayType(_raw(wanted.elementType, (schema or {}).get("items"), inner) or StringType())
    if isinstance(wanted, MapType):
        inner = values_of(observed)
        return MapType(wanted.keyType, _raw(wanted.valueType, (schema or {}).get("values"), inner) or StringType())
    if schema is None:
        # The source would accept a number in quotes; here a text is not a number.
        has_texts = observed is not None and observed.kinds & TEXT and isinstance(wanted, DecimalType | IntegralType)
        is_inexact = observed is not None and observed.kinds & INEXACT and isinstance(wanted, DoubleType)
        return _raw_number(observed) if has_texts or is_inexact else wanted
    time = time_of(schema, wanted)
    if time is not None:
        return StringType() if time.unit is None else LongType()
    if isinstance(wanted, DoubleType) and schema.get("type") == "int64":
        return StringType()  # a DOUBLE does not keep all digits
    if schema.get("name") == VARIABLE_DECIMAL and isinstance(wanted, StringType):
        return StructType([StructField("scale", IntegerType()), StructField("value", StringType())])
    if is_decimal(schema) and isinstance(wanted, DecimalType | StringType):
        # Only a variant distinguishes texts from numbers in the same place.
        return {"base64": StringType(), "numeric": wanted, "both": VariantType()}[_decimal_format(observed)]
    return wanted


def _raw_number(observed: Shape | None) -> DataType:
    """Return a type that reads a number with all its digits: text, or a variant if the place has texts, too."""
    return VariantType() if observed is not None and observed.kinds & TEXT else StringType()


def _decimal_format(observed: Shape | None) -> Literal["base64", "numeric", "both"]:
    """Return the format of decimals, judged by their values: Connect's ``decimal.format``, which may have changed."""
    if observed is None or not observed.kinds & NUMBERS:
        return "base64"
    return "both" if observed.kinds & TEXT else "numeric"


def _is_changed(wanted: DataType, schema: Schema, observed: Shape | None) -> bool:
    """Return whether a value needs conversion after it was read as the wanted type: a base64 decimal, or a time in another unit."""
    if schema is None:
        return False
    if isinstance(wanted, StructType):
        fields, shapes = fields_by_name(schema), _shapes(observed)
        return any(
            _is_changed(field.dataType, fields.get(field.name.lower()), shapes.get(field.name.lower()))
            for field in wanted
        )
    if isinstance(wanted, ArrayType):
        return _is_changed(wanted.elementType, schema.get("items"), None if observed is None else observed.items)
    if isinstance(wanted, MapType):
        return _is_changed(wanted.valueType, schema.get("values"), values_of(observed))
    time = time_of(schema, wanted)
    is_text = is_decimal(schema) and isinstance(wanted, StringType) and _decimal_format(observed) != "numeric"
    return is_text or (time is not None and time.unit != "microseconds")


def _shapes(observed: Shape | None) -> dict[str, Shape]:
    """Return the shapes of an object's fields, by lower-case name."""
    fields = None if observed is None else observed.fields
    return {name.lower(): shape for name, shape in (fields or {}).items()}


def _one_raw(one: DataType | None, other: DataType | None) -> DataType | None:
    """Return one type in which values of two schemas can be read: text if the schemas differ, or a variant if one needs a
    variant."""
    if one == other or other is None or one is None:
        return one if other is None else other
    if isinstance(one, StructType) and isinstance(other, StructType) and one.names == other.names:
        pairs = zip(one, other, strict=True)
        return StructType([StructField(a.name, _one_raw(a.dataType, b.dataType) or StringType()) for a, b in pairs])
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_one_raw(one.elementType, other.elementType) or StringType())
    if isinstance(one, MapType) and isinstance(other, MapType):
        return MapType(one.keyType, _one_raw(one.valueType, other.valueType) or StringType())
    return VariantType() if VariantType() in (one, other) else StringType()


def _converted(
    value: Column,
    raw: DataType | None,
    schema: Schema,
    wanted: DataType | None,
    observed: Shape | None,
    is_item: bool = False,
) -> tuple[Column, Column | None]:
    """Return a value in the wanted type, and whether the conversion lost the value; the second is None if no value can be lost.

    Args:
        is_item: whether the value is inside an array or a map, where Spark allows no Python function.
    """
    if wanted is None or raw is None:  # the value has no type
        return F.when(value.isNotNull(), F.struct()), None
    if isinstance(raw, VariantType) and not isinstance(wanted, VariantType):
        value = F.when(~F.is_variant_null(value), value)
    if is_unfit(schema):
        return F.lit(None).cast(wanted), value.isNotNull()
    expected = _raw(wanted, schema, observed)
    if expected == wanted and raw == wanted and not _is_changed(wanted, schema, observed):
        return value, None
    if isinstance(wanted, StructType) and isinstance(raw, StructType):
        fields, shapes = fields_by_name(schema), _shapes(observed)
        done = [
            _converted(
                value.getField(field.name),
                raw[field.name].dataType,
                fields.get(field.name.lower()),
                field.dataType,
                shapes.get(field.name.lower()),
                is_item,
            )
            for field in wanted
        ]
        whole = F.struct(*(inner.alias(field.name) for field, (inner, _) in zip(wanted, done, strict=True)))
        return F.when(value.isNotNull(), whole), _any([lost for _, lost in done])
    if isinstance(wanted, ArrayType | MapType) and type(raw) is type(wanted):
        name, child = ("items", "elementType") if isinstance(wanted, ArrayType) else ("values", "valueType")
        inner = values_of(observed)
        if isinstance(wanted, ArrayType):
            inner = None if observed is None else observed.items
        types = getattr(raw, child), (schema or {}).get(name), getattr(wanted, child), inner, True

        def item_value(item: Column) -> Column:
            return _converted(item, *types)[0]

        def is_lost(item: Column) -> Column:
            return _lost(_converted(item, *types)[1])

        if isinstance(wanted, ArrayType):
            return F.transform(value, item_value), F.exists(value, is_lost)
        return F.transform_values(value, lambda _, item: item_value(item)), F.exists(F.map_values(value), is_lost)
    if isinstance(raw, VariantType) and not isinstance(expected, VariantType):
        value, raw = F.try_variant_get(value, "$", "string"), StringType()
    if isinstance(
        wanted, StructType | ArrayType | MapType
    ):  # the value was read as text, since another schema gives it another type
        begin = "[" if isinstance(wanted, ArrayType) else "{"
        parsed = F.when(F.ltrim(value).startswith(begin), F.from_json(value, type_ddl(expected or wanted)))
        done_value, lost = _converted(parsed, expected or wanted, schema, wanted, observed, is_item)
        return done_value, (value.isNotNull() & parsed.isNull()) | _lost(lost)
    done_value, is_infinite = _scalar(value, raw, schema, wanted, observed, is_item)
    lost = value.isNotNull() & done_value.isNull()
    return done_value, lost if is_infinite is None else lost & ~is_infinite


def _lost(lost: Column | None) -> Column:
    return F.lit(False) if lost is None else F.coalesce(lost, F.lit(False))


def _any(columns: Sequence[Column | None]) -> Column | None:
    given = [column for column in columns if column is not None]
    return reduce(lambda one, other: one | other, map(_lost, given)) if given else None


def _scalar(
    value: Column, raw: DataType, schema: Schema, wanted: DataType, observed: Shape | None, is_item: bool
) -> tuple[Column, Column | None]:
    """Return a value in the wanted type, or null if it does not fit; and whether the value means infinity."""
    if schema is not None:
        time = time_of(schema, wanted)
        if time is not None and time.unit is None:
            is_infinite = value.isin(*sorted(INFINITE_TEXTS))
            return F.when(~is_infinite, _time_of_text(value, wanted)), is_infinite
        if time is not None and time.unit is not None:
            number = value if isinstance(raw, LongType) else value.try_cast("bigint")
            return _time_of_number(number, time, wanted), number.isin(*sorted(INFINITE[time.unit]))
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        if schema.get("name") == VARIABLE_DECIMAL and isinstance(raw, StructType):
            return _with_scale(value.getField("value"), value.getField("scale"), is_item), None
        if is_decimal(schema) and isinstance(wanted, DecimalType | StringType):
            written = _decimal_format(observed)
            text = F.try_variant_get(value, "$", "string") if isinstance(raw, VariantType) else value
            if written == "numeric":
                return _decimal_of_number(text, scale, wanted), None
            of_text = _decimal_of_text(text, scale, wanted, is_item)
            if written == "base64":
                return of_text, None
            is_text = F.schema_of_variant(value) == "STRING"
            return F.when(is_text, of_text).otherwise(_decimal_of_number(text, scale, wanted)), None
    if isinstance(wanted, BinaryType) and isinstance(raw, StringType):
        return F.try_to_binary(value, F.lit("base64")), None
    if isinstance(raw, VariantType):
        text = F.try_variant_get(value, "$", "string")
        is_number = F.schema_of_variant(value) != "STRING"
        if isinstance(wanted, DoubleType):
            is_number |= text.isin(*_INFINITE_NUMBERS)
        value, raw = F.when(is_number, text), StringType()
        if isinstance(wanted, DecimalType) and wanted != EXACT_NUMBER:
            return F.when(~value.rlike(rf"E|\.\d{{{wanted.scale}}}\d*[1-9]"), value.try_cast(wanted)), None
    if isinstance(wanted, DoubleType) and isinstance(raw, StringType) and (schema or {}).get("type") in (None, "int64"):
        return _double_of_text(value), None
    return value.try_cast(wanted), None


def _decimal_of_text(text: Column, scale: int, wanted: DataType, is_item: bool) -> Column:
    """Return a decimal from its bytes in base64; null if digits would be rounded."""
    if not isinstance(wanted, DecimalType):
        return _with_scale(text, F.lit(scale), is_item)
    whole = _unscaled(text)
    number = F.concat(whole.cast("string"), F.lit(f"E{-scale}")).try_cast(wanted)
    return F.when(_has_zeros(whole, scale - wanted.scale), number)


def _decimal_of_number(number: Column, scale: int, wanted: DataType) -> Column:
    """Return a decimal from a number or its text; null if digits would be rounded."""
    if not isinstance(wanted, DecimalType) or scale <= wanted.scale:
        return number.try_cast(wanted)
    exact = DecimalType(_MAX_DIGITS, min(scale, _MAX_DIGITS))
    decimal = number.try_cast(wanted)
    return F.when(decimal.try_cast(exact) == number.try_cast(exact), decimal)


def _double_of_text(text: Column) -> Column:
    """Return a number if a DOUBLE holds all its digits; otherwise null."""
    number = text.try_cast("double")
    number = F.when((F.abs(number) != float("inf")) | text.isin(*_INFINITE_NUMBERS), number)

    def digits(of: Column) -> Column:
        return F.regexp_replace(F.regexp_replace(of, "[eE].*$|[^0-9]", ""), "^0+|0+$", "")

    written, kept = digits(text), digits(number.cast("string"))
    n_digits = F.length(written)
    is_fraction_of_double = (n_digits <= WRITTEN_DIGITS) & (F.abs(number) < MAX_EXACT_WHOLE)
    return F.when((n_digits <= SURE_DIGITS) | is_fraction_of_double | (written == kept), number)


def _time_of_text(text: Column, wanted: DataType) -> Column:
    """Return a date or timestamp from ISO-8601 text; null outside the years 1 to 9999."""
    if isinstance(wanted, TimestampType):  # the year depends on the session's time zone
        micros = F.unix_micros(text.try_cast(wanted))
        return F.when(_is_within(micros, "microseconds"), F.timestamp_micros(micros))
    moment = F.regexp_replace(text, "Z$", "").try_cast(wanted)
    return F.when(F.year(moment).between(1, 9999), moment)


def _time_of_number(number: Column, time: ConnectType, wanted: DataType) -> Column:
    """Return a date, a timestamp, the microseconds of a time of day, or the text of a date or timestamp, from a number in a
    schema's unit; null outside the years 1 to 9999."""
    unit, zone = time.unit, ""
    assert unit is not None, "it is a number"
    if unit == "days":
        date = F.when(_is_within(number, unit), F.date_from_unix_date(number.cast("int")))
        return date if isinstance(wanted, DateType) else date.cast(wanted)
    # Whole microseconds, rounded down.
    micros = {"milliseconds": F.try_multiply(number, F.lit(1_000)), "microseconds": number}.get(
        unit, F.call_function("div", number - F.pmod(number, F.lit(1_000)), F.lit(1_000))
    )
    if isinstance(wanted, LongType | DecimalType):
        return micros.cast(wanted)
    if isinstance(wanted, TimestampType):
        return F.when(_is_within(number, unit), F.timestamp_micros(micros))
    if isinstance(column_type(time), TimestampType):
        zone = "Z"
    moment = F.timestamp_add("MICROSECOND", micros, F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"))
    moment = F.when(_is_within(number, unit), moment)
    return F.concat(moment.cast("string"), F.lit(zone)) if isinstance(wanted, StringType) else moment


def _is_within(number: Column, unit: TimeUnit) -> Column:
    """Return whether a number of a unit is in the years 1 to 9999."""
    if unit == "nanoseconds":  # their range is 1678 to 2262
        return F.lit(True)
    return (number >= FIRST_DAY * _PER_DAY[unit]) & (number < END_DAY * _PER_DAY[unit])


def _has_zeros(whole: Column, n: int) -> Column:
    """Return whether the last ``n`` digits of a whole number with up to 38 digits are zeros, so that a decimal can omit them."""
    if n <= 0:
        return F.lit(True)
    if n >= _MAX_DIGITS:
        return whole == 0
    return whole % F.lit(str(10**n)).cast(DecimalType(n + 1, 0)) == 0


def _unscaled(value: Column) -> Column:
    """Return a whole number of up to 38 digits from base64 of big-endian two's complement bytes; null if it is larger."""
    digits = F.hex(F.try_to_binary(value, F.lit("base64")))
    sign = F.when(F.substring(digits, 1, 1) >= "8", F.lit("F")).otherwise(F.lit("0"))
    whole = F.call_function("lpad", digits, F.lit(32), sign)
    high = F.conv(F.substring(whole, 1, 16), 16, -10).try_cast("decimal(20,0)")
    low = F.conv(F.substring(whole, 17, 16), 16, 10).try_cast("decimal(20,0)")
    total = F.try_add(F.try_multiply(high, F.lit(str(2**64)).cast("decimal(20,0)")), low)
    return F.when(F.length(digits) <= 32, total)


def _with_scale(value: Column, scale: Column, is_item: bool) -> Column:
    """Return a decimal from its bytes in base64, as text with all digits; null for more than 38 digits inside an array or map."""
    if not is_item:
        # A lambda, since Spark treats a function with annotations as a function of Arrow arrays.
        return F.udf(lambda text, places: _decimal_text(text, places), StringType())(value, scale)
    number = _unscaled(value)
    digits = F.abs(number).cast("string")
    padded = F.call_function("lpad", digits, F.greatest(F.length(digits), scale + 1), F.lit("0"))
    before = F.call_function("left", padded, F.length(padded) - scale)
    sign = F.when(number < 0, F.lit("-")).otherwise(F.lit(""))
    fraction = F.concat(sign, before, F.lit("."), F.call_function("right", padded, scale))
    whole = F.concat(sign, digits, F.call_function("repeat", F.lit("0"), -scale))
    return F.when(number.isNull() | scale.isNull(), F.lit(None)).when(scale > 0, fraction).otherwise(whole)


def _decimal_text(value: str | None, scale: int | None) -> str | None:
    if value is None or scale is None:
        return None
    try:
        return format(decimal_of_base64(value, scale), "f")
    except DecodeError:
        return None
