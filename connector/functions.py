"""Functions for columns of values: JSON, and Avro, JSON Schema and Protobuf as Confluent's serializers frame them.

    from pykafka_wire.functions import decode_avro
    from pykafka_wire.values import Registry

    registry = Registry("https://registry:8081", basic_auth="env:REGISTRY_USER_INFO")
    order = decode_avro(registry, "id BIGINT, pieces INT", on_error="divert")
    decoded = topic.select("*", order("value").alias("order"))
    good = decoded.where("order.error IS NULL").select("order.value.*")
    broken = decoded.where("order.error IS NOT NULL").select("topic", "partition", "offset", "order.error")

Each ``decode_*`` and ``encode_*`` makes an Arrow UDF of a format and a policy: call it with a column, or register it for SQL with
``spark.udf.register``. Spark 4.1 or newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykafka_wire.errors import OptionError
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import Converter, Format, OnError
from pykafka_wire.values.json.format import Json, JsonSchema
from pykafka_wire.values.numeric_times import TimeUnit
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.registry.schemas import WriterSchema
from pykafka_wire.values.single_json.encodings import DecimalFormat, encodings_of
from pykafka_wire.worker_pickling import SentToWorkers

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    Expression = Callable[[Column | str], Column]

__all__ = [
    "decode_avro",
    "decode_json",
    "decode_json_schema",
    "decode_protobuf",
    "encode_avro",
    "encode_json_schema",
    "encode_protobuf",
]


def decode_json(
    schema: str | DataType,
    *,
    on_error: OnError = "fail",
    time_unit: TimeUnit | Mapping[str, TimeUnit] | None = None,
    decimal_format: DecimalFormat | Mapping[str, DecimalFormat] | None = None,
) -> Expression:
    """Return binary or string columns that hold JSON, as columns of a Spark type (DDL, such as ``"id BIGINT, at TIMESTAMP"``).

    Args:
        time_unit: what numbers under dates and timestamps count, or that of each field by its name; without it they are errors.
        decimal_format: whether texts under decimals are digits, ``numeric``, or ``base64`` as Kafka Connect writes them.
    """
    return _decoding(Json(encodings=encodings_of(time_unit, decimal_format)), schema, on_error)


def decode_json_schema(registry: Registry, schema: str | DataType, *, on_error: OnError = "fail") -> Expression:
    """Return values of Confluent's JSON Schema serializer, checked against the schema they were written with."""
    return _decoding(JsonSchema(registry=registry), schema, on_error)


def decode_avro(
    registry: Registry | None,
    schema: str | DataType | None = None,
    *,
    reader_schema: Schema | str | None = None,
    on_error: OnError = "fail",
) -> Expression:
    """Return values of Confluent's Avro serializer, or without a registry plain values of ``reader_schema``.

    Args:
        schema: the Spark type, fields found by name; by default the one that ``from_avro`` gives for ``reader_schema``.
        reader_schema: an Avro schema that resolves older and newer values into one shape, with its aliases and defaults.
    """
    value_format = Avro(registry=registry, reader_schema=reader_schema)
    if schema is None:
        if reader_schema is None:
            raise OptionError("decode_avro needs schema, the Spark type of the column, or reader_schema.")
        from pyspark.sql.pandas.types import from_arrow_type

        schema = from_arrow_type(value_format.column_type())
    return _decoding(value_format, schema, on_error)


def decode_protobuf(registry: Registry, schema: str | DataType, *, on_error: OnError = "fail") -> Expression:
    """Return values of Confluent's Protobuf serializer. Enums are strings; a field without presence that was not set has its
    default."""
    return _decoding(Protobuf(registry=registry), schema, on_error)


def encode_avro(
    registry: Registry, subject: str, *, schema: Schema | str | None = None, on_error: OnError = "fail"
) -> Expression:
    """Return a column as Confluent's Avro serializer writes it, with the subject's newest schema, or with ``schema``.

    The schema is looked up here, where the expression is made: workers do not need the registry. A ``schema`` that is new to
    the subject is registered.
    """
    return _encoding(Avro(registry=registry, writer=WriterSchema.of(registry, "AVRO", subject, schema)), on_error)


def encode_json_schema(
    registry: Registry, subject: str, *, schema: Schema | str | None = None, on_error: OnError = "fail"
) -> Expression:
    """Return what :func:`encode_avro` does, for JSON Schema: a value that breaks the schema's rules is an error."""
    return _encoding(JsonSchema(registry=registry, writer=WriterSchema.of(registry, "JSON", subject, schema)), on_error)


def encode_protobuf(
    registry: Registry,
    subject: str,
    *,
    schema: Schema | str | None = None,
    message: str | None = None,
    on_error: OnError = "fail",
) -> Expression:
    """Return what :func:`encode_avro` does, for Protobuf: ``message`` names one of several in the schema's file, the first by
    default."""
    written = Protobuf(
        registry=registry, writer=WriterSchema.of(registry, "PROTOBUF", subject, schema), message=message
    )
    written.message_indexes()  # a wrong name is reported now
    return _encoding(written, on_error)


def _decoding(value_format: Format, schema: str | DataType, on_error: OnError) -> Expression:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    wanted = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    arrow_type = to_arrow_type(wanted, timezone="UTC")
    return _arrow_udf(_SentConverter(Converter(format=value_format, type=arrow_type, on_error=on_error)), wanted)


def _encoding(value_format: Format, on_error: OnError) -> Expression:
    from pyspark.sql.types import BinaryType

    return _arrow_udf(_SentConverter(Converter(format=value_format, type=None, on_error=on_error)), BinaryType())


@dataclass(frozen=True, slots=True)
class _SentConverter(SentToWorkers):
    """A converter that finds this package in Spark's workers, wherever the driver has loaded it from."""

    converter: Converter


def _arrow_udf(sent: _SentConverter, result: DataType) -> Expression:
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError as error:
        raise ImportError(
            "[PYKAFKA_WIRE_SPARK_VERSION] pykafka_wire.functions needs Arrow UDFs, which came with Spark 4.1."
        ) from error
    from pyspark.sql.types import StringType, StructType

    def convert(rows):  # type: ignore[no-untyped-def]  # Spark would read annotations, and find strings
        return sent.converter(rows)

    if sent.converter.on_error == "divert":
        result = StructType().add("value", result).add("error", StringType())
    make: Any = arrow_udf  # its own types name a few kinds of result only
    expression: Expression = make(convert, result)
    return expression
