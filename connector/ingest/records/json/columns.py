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
    BOOLEAN,
    EXACT_NUMBER,
    INEXACT,
    MAX_EXACT_WHOLE,
    NAN,
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
from pykafka_wire.ingest.spark.sql import any_of, column_ddl, type_ddl
from pykafka_wire.values.connect_types import VARIABLE_DECIMAL, ConnectType
from pykafka_wire.values.json.enveloped_documents import DOCUMENT, part_name
from pykafka_wire.values.numeric_times import END_DAY, FIRST_DAY, INFINITE, INFINITE_TEXTS, TimeUnit
from pykafka_wire.values.single_json.encodings import SCALES, decimal_of_base64

#: What the documents of a table are: objects, whose fields are columns; or other values, in the column ``value``. It stays.
Documents = Literal["objects", "values"]
#: The columns to read if no field has a type: the documents must still be valid JSON.
_NOTHING: Final = "_pykafka_wire_nothing BOOLEAN"
_NO_FIELDS: Final = f"STRUCT<{_NOTHING}>"
_PAYLOAD: Final = "payload"
_ISO_DATE: Final = "^[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
#: Texts that represent numbers.
_INFINITE_NUMBERS: Final = ("NaN", "Infinity", "+Infinity", "-Infinity")
#: Base64 as encoders write it, of one byte or more: Spark accepts blanks and missing padding, too.
_BASE64: Final = r"^(?=.)([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
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


def row_type(
    surveyed: JsonSurvey, kind: Kind, held: DataType | None, documents: Documents | None = None
) -> DataType | None:
    """Return the type of a table's rows or keys: ``held``, extended by the types that the survey found.

    Args:
        held: the columns of the table; the type of its keys.
        documents: what the table says of its documents. If it says nothing, its columns show it, or the survey decides.
    """
    declared, undeclared = _types(surveyed, kind, held)
    if kind == "row" and isinstance(held, StructType) and (value := _value_column(held)) is not None:
        if documents is None and _is_undecided(held):
            documents = _documents_in(surveyed, kind)
        held = value if documents == "values" else held
    return grown(reduce(widened, declared, held), undeclared)


def documents_to_note(
    surveyed: JsonSurvey, kind: Kind, held: DataType | None, data_type: DataType | None
) -> Documents | None:
    """Return the kind of a table's documents, if the table has to record the kind because its columns do not show it.

    Args:
        held: the columns of the table.
        data_type: their type after the surveyed documents.
    """
    if kind != "row" or data_type is None or not _is_undecided(data_type):
        return None
    if held is not None and _documents_in(surveyed, kind) is None:
        return None
    return "objects" if isinstance(data_type, StructType) else "values"


def _types(surveyed: JsonSurvey, kind: Kind, held: DataType | None) -> tuple[list[DataType], Shape]:
    """Return the types that Connect's schemas declare, and the shape of all other documents."""
    types = [declared_type(row_schema(schema, kind)) for schema in surveyed.schemas]
    undeclared = merged([surveyed.plain, surveyed.payloads.get(None, Shape())])
    if kind == "key":
        undeclared = undeclared.of_one_kind(held)
    return [data_type for data_type in types if data_type is not None], undeclared


def _documents_in(surveyed: JsonSurvey, kind: Kind) -> Documents | None:
    """Return what documents are: objects if one of them is; None if all are null."""
    declared, undeclared = _types(surveyed, kind, None)
    if undeclared.fields is not None or any(isinstance(data_type, StructType) for data_type in declared):
        return "objects"
    return "values" if declared or not undeclared.is_empty else None


def _is_undecided(held: DataType) -> bool:
    """Return whether the columns of a table do not show whether its documents are objects: ``value`` is the only one."""
    if not isinstance(held, StructType):
        return True
    value = _value_column(held)
    return len(held) == 1 and value is not None and not isinstance(value, StructType)


def _value_column(held: StructType) -> DataType | None:
    """Return the type of the column ``value``, which has documents that are no objects; None if there is no such column."""
    return next((field.dataType for field in held if field.name.lower() == "value"), None)


# Reading.


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReading:
    """How to read a JSON column.

    Attributes:
        ddl: the type to read the column as.
        row: takes the column's name; returns the value in its type, and the reason if the value does not fit; the second is None
            if every value fits.
        field: takes the column's name and the name of a field of Debezium's envelope; returns the field.
        schemas: the schemas of Connect's envelopes, whose payloads the source reads as fields of their own.
    """

    ddl: str
    row: Callable[[str], tuple[Column, Column | None]]
    field: Callable[[str, str], Column]
    schemas: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Documents:
    """Documents of one kind: without Connect's envelope, or with payloads of one schema. No other document has a say.

    Attributes:
        path: the fields that lead to the documents in the column.
        mark: the fields that lead to a place that is not null if there is such a document; a payload may be null.
        schema: the schema of a row in the documents.
        raw: the type in which a row is read; None if no value has a type.
        shape: the values of the documents.
        is_payload: whether the documents are payloads.
    """

    path: tuple[str, ...]
    mark: tuple[str, ...]
    schema: Schema
    raw: DataType | None
    shape: Shape | None
    is_payload: bool

    def of(self, column: str) -> Column:
        return _at(column, self.path)

    def is_of(self, column: str) -> Column:
        """Return whether a column has such a document."""
        return _at(column, self.mark).isNotNull()


def _at(column: str, path: Iterable[str]) -> Column:
    return reduce(Column.getField, path, F.col(column))


def reading(
    surveyed: JsonSurvey, kind: Kind, wanted: DataType | None, extra: Sequence[str] = (), *, is_declared: bool = False
) -> JsonReading:
    """Return how to read a column's documents as rows of a type. The payloads of each of Connect's schemas are read by themselves.

    Args:
        wanted: the type of the row, None if nothing has a type.
        extra: further fields of Debezium's envelope, as DDL.
        is_declared: whether the user has declared the type. If not, a value is lost if its own schema gives it another type than
            the column's.
    """
    plain = None if is_declared else surveyed.plain
    is_key = kind == "key"
    is_plain = surveyed.n_plain > 0 or not surveyed.n_enveloped
    documents: list[_Documents] = []
    parts: list[str] = []
    for number, (text, shape) in enumerate(zip(surveyed.schemas, surveyed.shapes, strict=True)):
        schema = row_schema(text, kind)
        schema = schema if is_declared else fitting(schema, wanted)
        raw, name = _raw(wanted, schema, shape, is_key=is_key), part_name(number)
        documents.append(
            _Documents(path=(name, _PAYLOAD), mark=(name,), schema=schema, raw=raw, shape=shape, is_payload=True)
        )
        parts.append(f"{name} STRUCT<{_PAYLOAD} {_document_type(raw, kind, extra)}>")
    raw_plain, is_separated = _raw(wanted, None, plain, is_key=is_key), bool(documents)
    path = (DOCUMENT,) if is_separated else ()
    loose = surveyed.payloads.get(None) if kind == "change" else None
    more = list(extra)
    if loose is not None:  # a change inside something that is not quite Connect's envelope
        raw = _raw(wanted, None, loose)
        inside = (*path, _PAYLOAD)
        documents.append(_Documents(path=inside, mark=inside, schema=None, raw=raw, shape=loose, is_payload=True))
        more.append(f"{_PAYLOAD} {_document_type(raw, kind, extra)}")
    if is_plain or loose is not None:
        documents.append(_Documents(path=path, mark=path, schema=None, raw=raw_plain, shape=plain, is_payload=False))
        parts.insert(0, f"{DOCUMENT} {_document_type(raw_plain, kind, more)}")
    ddl = ", ".join(parts) if is_separated else _document_ddl(raw_plain, kind, more)

    def row(column: str) -> tuple[Column, Column | None]:
        value, why = F.lit(None), F.lit(None).cast("string")
        has_reason = False
        for nth, some in enumerate(reversed(documents)):
            content = some.of(column)
            inside = content.getField("after") if kind == "change" else content
            found, lost = _converted(inside, some.raw, some.schema, wanted, some.shape)
            missing = (
                F.when(content.isNull(), F.lit("its payload is null")) if kind == "row" and some.is_payload else None
            )
            reason = _first_reason(missing, _reason(lost))
            has_reason |= reason is not None
            reason = F.lit(None).cast("string") if reason is None else reason
            if nth:
                is_this = some.is_of(column)
                found, reason = F.when(is_this, found).otherwise(value), F.when(is_this, reason).otherwise(why)
            value, why = found, reason
        return value, why if has_reason else None

    def field(column: str, name: str) -> Column:
        return F.coalesce(*(some.of(column).getField(name) for some in documents))

    return JsonReading(ddl=ddl or _NOTHING, row=row, field=field, schemas=surveyed.schemas)


def _document_type(raw: DataType | None, kind: Kind, extra: Sequence[str]) -> str:
    """Return the DDL of the type that the source reads a document as."""
    if kind == "change":
        return f"STRUCT<{_document_ddl(raw, kind, extra)}>"
    return _NO_FIELDS if raw is None else type_ddl(raw)


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


def _raw(wanted: DataType | None, schema: Schema, observed: Shape | None, *, is_key: bool = False) -> DataType | None:
    """Return the type in which a value is read before it is converted to the wanted type.

    Args:
        is_key: whether the value is a key, of which a STRING holds texts alone: 5 and "5" are different keys.
    """
    if wanted is None:
        return None
    if is_unfit(schema):
        return StringType()
    if wanted == EXACT_NUMBER and not is_decimal(schema):  # digits beyond the scale are rounded, not rejected
        return _raw_number(None if schema is not None else observed)
    if isinstance(wanted, StructType) and (schema is None or schema.get("type") == "struct"):
        fields, shapes = fields_by_name(schema), _shapes(observed)
        raws = [
            _raw(field.dataType, fields.get(field.name.lower()), shapes.get(field.name.lower()), is_key=is_key)
            for field in wanted
        ]
        return StructType(
            [StructField(field.name, raw or StringType()) for field, raw in zip(wanted, raws, strict=True)]
        )
    if isinstance(wanted, ArrayType):
        inner = None if observed is None else observed.items
        return ArrayType(_raw(wanted.elementType, (schema or {}).get("items"), inner, is_key=is_key) or StringType())
    if isinstance(wanted, MapType):
        inner = values_of(observed)
        raw = _raw(wanted.valueType, (schema or {}).get("values"), inner, is_key=is_key)
        return MapType(wanted.keyType, raw or StringType())
    if schema is None:
        if is_key and isinstance(wanted, StringType) and observed is not None and not observed.has_only_texts:
            return VariantType()
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
        of_value = _shapes(observed).get("value", Shape())
        # A base64 text is read as text, unless something else is in its place: true would be base64, too.
        kind = StringType() if _decimal_format(of_value) == "base64" else VariantType()
        return StructType([StructField("scale", IntegerType()), StructField("value", kind)])
    if is_decimal(schema) and isinstance(wanted, DecimalType | StringType):
        # Only a variant distinguishes the kinds of values in the same place.
        numeric = wanted if isinstance(wanted, DecimalType) else VariantType()
        return {"base64": StringType(), "numeric": numeric, "both": VariantType()}[_decimal_format(observed)]
    return wanted


def _raw_number(observed: Shape | None) -> DataType:
    """Return a type that reads a number with all its digits: text, or a variant if the place has texts, too."""
    return VariantType() if observed is not None and observed.kinds & TEXT else StringType()


def _decimal_format(observed: Shape | None) -> Literal["base64", "numeric", "both"]:
    """Return the format of decimals, judged by their values: Connect's ``decimal.format``, which may have changed."""
    if observed is None or not observed.kinds & (NUMBERS | BOOLEAN | NAN):
        return "base64"
    return "both" if observed.kinds & (TEXT | NAN) else "numeric"


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
    is_text = is_decimal(schema) and isinstance(wanted, StringType)
    return is_text or (time is not None and time.unit != "microseconds")


def _shapes(observed: Shape | None) -> dict[str, Shape]:
    """Return the shapes of an object's fields, by lower-case name."""
    fields = None if observed is None else observed.fields
    return {name.lower(): shape for name, shape in (fields or {}).items()}


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
    if raw == wanted and not _is_changed(wanted, schema, observed):
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
    done_value, is_infinite = _scalar(value, raw, schema, wanted, observed, is_item)
    lost = value.isNotNull() & done_value.isNull()
    return done_value, lost if is_infinite is None else lost & ~is_infinite


def _lost(lost: Column | None) -> Column:
    return F.lit(False) if lost is None else F.coalesce(lost, F.lit(False))


def _any(columns: Sequence[Column | None]) -> Column | None:
    given = [column for column in columns if column is not None]
    return any_of([*map(_lost, given)]) if given else None


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
            return _time_of_number(value, time, wanted), value.isin(*sorted(INFINITE[time.unit]))
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        if schema.get("name") == VARIABLE_DECIMAL and isinstance(raw, StructType):
            text = value.getField("value")
            if isinstance(raw["value"].dataType, VariantType):
                text = F.when(F.schema_of_variant(text) == "STRING", F.try_variant_get(text, "$", "string"))
            return _with_scale(text, value.getField("scale"), is_item), None
        if is_decimal(schema) and isinstance(wanted, DecimalType | StringType):
            if isinstance(raw, StringType):
                return _decimal_of_text(value, scale, wanted, is_item), None
            text, kind = F.try_variant_get(value, "$", "string"), F.schema_of_variant(value)
            of_number = F.when(kind.rlike("^(BIGINT|DECIMAL)"), text)  # a DOUBLE does not keep all digits
            of_number = _decimal_of_number(text, wanted) if isinstance(wanted, DecimalType) else of_number
            return F.when(kind == "STRING", _decimal_of_text(text, scale, wanted, is_item)).otherwise(of_number), None
    if isinstance(raw, VariantType):
        text = F.try_variant_get(value, "$", "string")
        if isinstance(wanted, StringType):
            return F.when(F.schema_of_variant(value) == "STRING", text), None
        is_number = F.schema_of_variant(value) != "STRING"
        if isinstance(wanted, DoubleType):
            is_number |= text.isin(*_INFINITE_NUMBERS)
        value, raw = F.when(is_number, text), StringType()
        if isinstance(wanted, DecimalType) and wanted != EXACT_NUMBER:
            return _decimal_of_number(value, wanted), None
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


def _decimal_of_number(text: Column, wanted: DecimalType) -> Column:
    """Return a decimal from a number's text; null if digits would be rounded."""
    return F.when(~text.rlike(rf"E|\.\d{{{wanted.scale}}}\d*[1-9]"), text.try_cast(wanted))


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
    """Return a date or timestamp from ISO-8601 text; null without a date, and outside the years 1 to 9999."""
    text = F.when(text.rlike(_ISO_DATE), text)  # Spark casts a time alone to a time of today
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
    digits = F.hex(F.try_to_binary(F.when(value.rlike(_BASE64), value), F.lit("base64")))
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
    is_known = number.isNotNull() & scale.between(SCALES.start, SCALES.stop - 1)
    return F.when(is_known & (scale > 0), fraction).when(is_known, whole)


def _decimal_text(value: str | None, scale: int | None) -> str | None:
    if value is None or scale is None or scale not in SCALES:
        return None
    try:
        return format(decimal_of_base64(value, scale), "f")
    except DecodeError:
        return None
