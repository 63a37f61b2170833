"""Numbers and times, digit by digit and in every time zone: into columns, and out of them."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import Converter, Format, read_column
from pykafka_wire.values.json.format import Json, JsonSchema
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.schemas import WriterSchema
from tests.connector.values.scripted_registry import scripted_registry

UTC = datetime.timezone.utc
MOMENT = pa.timestamp("us", tz="UTC")
ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Europe/Berlin")
NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456)
#: At 02:30 on this day the clocks of Berlin have no such time.
GAP = datetime.datetime(2026, 3, 29, 2, 30)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with scripted_registry(RESPONSES) as url:
        yield Registry(url)


RESPONSES: dict[str, Any] = {}


def schema(kind: str, text: str) -> WriterSchema:
    """Under an id of its own, known to the registry."""
    schema_id = len(RESPONSES) + 1
    RESPONSES[f"/schemas/ids/{schema_id}"] = {"schemaType": kind, "schema": text}
    return WriterSchema(schema_id=schema_id, schema=Schema(kind=kind, text=text))


def decoded(value_format: Format, column_type: pa.DataType, value: bytes | str) -> Any:
    raw = value.encode() if isinstance(value, str) else value
    (row,) = Converter(format=value_format, type=column_type, on_error="divert")(
        pa.array([raw], pa.binary())
    ).to_pylist()
    return row["value"] if row["error"] is None else ValueError(row["error"])


def encoded(value_format: Format, value: Any, column_type: pa.DataType) -> bytes:
    (row,) = Converter(format=value_format, type=None)(pa.array([value], column_type)).to_pylist()
    return bytes(row)


# --- Numbers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "precision", "scale"),
    [
        ("1234567890123456.78", 18, 2),
        ("9999999999999999.99", 18, 2),
        ("123456789012345678901234567890123456.78", 38, 2),
        ("-0.00000000000000000000000000000000000001", 38, 38),
        ("99999999999999999999999999999999999999", 38, 0),
    ],
)
def test_a_decimal_keeps_every_digit_from_json_and_back(text: str, precision: int, scale: int) -> None:
    column_type = pa.decimal128(precision, scale)
    assert decoded(Json(), column_type, text) == Decimal(text)
    back = encoded(Json(), Decimal(text), column_type).decode()
    assert json.loads(back, parse_float=Decimal, parse_int=Decimal) == Decimal(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**30), max_value=10**30))
def test_any_decimal_keeps_its_digits(number: Decimal) -> None:
    column_type = pa.decimal128(38, 6)
    assert decoded(Json(), column_type, str(number)) == number
    assert decoded(Json(), column_type, f'"{number}"') == number
    assert Decimal(encoded(Json(), number, column_type).decode()) == number
    assert decoded(Json(), pa.string(), f"{number:f}") == f"{number:f}"


@given(st.floats(allow_nan=False))
def test_any_double_is_the_nearest_one_and_comes_back(number: float) -> None:
    if abs(number) != float("inf"):
        assert decoded(Json(), pa.float64(), repr(number)) == number
        assert float(encoded(Json(), number, pa.float64())) == number


@pytest.mark.parametrize(
    ("column_type", "text", "expected"),
    [
        (pa.int64(), "9007199254740993.0", 9007199254740993),
        (pa.int64(), "9.007199254740993e15", 9007199254740993),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.int64(), "9223372036854775807.5", None),
        (pa.int64(), "1e400", None),
        (pa.int64(), "1e-400", None),
        (pa.int64(), '"1_000"', None),
        (pa.int64(), '" 1000"', None),
        (pa.int64(), '"١٢"', None),
        (pa.int64(), '"1000"', 1000),
        (pa.int64(), "9" * 5_000, None),
        (pa.decimal128(9, 2), '"1_000"', None),
        (pa.decimal128(9, 2), '" 1"', None),
        (pa.decimal128(9, 2), '"１"', None),
        (pa.decimal128(9, 2), '"NaN"', None),
        (pa.decimal128(9, 2), "1e999999999999999999999", None),
        (pa.decimal128(9, 2), "1e-999999999", None),
        (pa.decimal128(9, 2), "1.50000000000000000000000000000000000000000000000", Decimal("1.50")),
        (pa.float64(), "1e400", None),
        (pa.float64(), "1_0", None),
        (pa.float64(), '"1_0"', None),
        (pa.date32(), '"2026-W09-7"', None),
        (pa.date32(), '"20260301"', None),
        (pa.date32(), '"２０２６-03-01"', None),
        (pa.timestamp("us", "UTC"), '"２０２６-03-01T00:00:00Z"', None),
        (pa.timestamp("us", "UTC"), '"2026-03-01T00:00:00+0１:00"', None),
        (pa.string(), "1234567890123456.78", "1234567890123456.78"),
        (pa.string(), '{"a":[1234567890123456.78,null]}', '{"a":[1234567890123456.78,null]}'),
        (pa.string(), "9" * 5_000, "9" * 5_000),
    ],
)
def test_text_becomes_exactly_its_number_or_is_refused(column_type: pa.DataType, text: str, expected: Any) -> None:
    found = decoded(Json(), column_type, text)
    assert isinstance(found, ValueError) if expected is None else found == expected, found


def test_json_schema_judges_and_writes_exact_numbers(registry: Registry) -> None:
    price = {"type": "number", "multipleOf": 0.01, "maximum": 0}
    properties = {"price": price, "n": {"type": "integer"}}
    text = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "properties": properties})
    text = text.replace('"maximum": 0', '"maximum": 9999999999999999.99')
    writer = schema("JSON", text)
    value_format = JsonSchema(registry=registry, writer=writer)
    column_type = pa.struct([("price", pa.decimal128(20, 3)), ("n", pa.decimal128(20, 0))])
    row = {"price": Decimal("1234567890123456.78"), "n": Decimal(2**60 + 1)}
    value = encoded(value_format, row, column_type)
    assert value[5:] == b'{"price":1234567890123456.780,"n":1152921504606846977}'
    assert decoded(JsonSchema(registry=registry), column_type, value) == row
    for bad in (b'{"price": 0.005}', b'{"price": 10000000000000000.00}', b'{"n": 1.5}'):
        assert isinstance(decoded(value_format, column_type, encode_frame(writer.schema_id, bad)), ValueError)
    for good in (b'{"price": 0.07}', b'{"n": 1.0}', b'{"price": 1e2}'):
        assert not isinstance(decoded(value_format, column_type, encode_frame(writer.schema_id, good)), ValueError)


def test_protobuf_keeps_the_digits_of_integers(registry: Registry) -> None:
    writer = schema(
        "PROTOBUF", 'syntax = "proto3"; message M { int64 a = 1; uint64 b = 2; double c = 3; string d = 4; }'
    )
    value_format = Protobuf(registry=registry, writer=writer)
    column_type = pa.struct([("a", pa.decimal128(21, 2)), ("b", pa.decimal128(20, 0)), ("c", pa.float64())])
    row = {"a": Decimal(-(2**62) - 1), "b": Decimal(2**64 - 1), "c": 0.1}
    assert decoded(value_format, column_type, encoded(value_format, row, column_type)) == row


def avro(registry: Registry, field: Any) -> Avro:
    record = {"type": "record", "name": "R", "fields": [{"name": "x", "type": field}]}
    return Avro(registry=registry, writer=schema("AVRO", json.dumps(record)))


def x(column_type: pa.DataType) -> pa.DataType:
    return pa.struct([("x", column_type)])


def test_an_avro_decimal_is_neither_rounded_nor_cut(registry: Registry) -> None:
    value_format = avro(registry, {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2})
    row = {"x": Decimal("123456789012345678901234567890123456.78")}
    assert decoded(value_format, x(pa.decimal128(38, 2)), encoded(value_format, row, x(pa.decimal128(38, 2)))) == row
    # What another writer put there, with more digits than it had declared: fastavro makes 1.2E+2 of it.
    narrow = avro(registry, {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0})
    assert narrow.writer is not None
    value = encode_frame(narrow.writer.schema_id, b"\x02\x7b")
    assert decoded(narrow, x(pa.decimal128(9, 0)), value) == {"x": Decimal(123)}
    assert decoded(narrow, x(pa.decimal128(9, 2)), value) == {"x": Decimal(123)}
    assert isinstance(decoded(narrow, x(pa.decimal128(2, 0)), value), ValueError)
    fixed = avro(
        registry, {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
    )
    for number in ("-0.01", "0", "9999999.99", "-1234567.89"):
        value = encoded(fixed, {"x": Decimal(number)}, x(pa.decimal128(9, 2)))
        assert decoded(fixed, x(pa.decimal128(9, 2)), value) == {"x": Decimal(number)}
    huge = avro(registry, {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    assert huge.writer is not None
    started = time.process_time()
    payload = b"\x80\x89\x7a" + b"\x7f" * 1_000_000  # a million bytes of one number
    assert isinstance(decoded(huge, x(pa.decimal128(9, 2)), encode_frame(huge.writer.schema_id, payload)), ValueError)
    assert time.process_time() - started < 2


def test_an_avro_string_in_a_binary_column_is_its_utf8(registry: Registry) -> None:
    value_format = avro(registry, "string")
    for text in ("QUJD", "ü", "", "no base64!"):
        assert decoded(value_format, x(pa.binary()), encoded(value_format, {"x": text}, x(pa.string()))) == {
            "x": text.encode()
        }
    of_bytes = avro(registry, "bytes")
    assert decoded(of_bytes, x(pa.string()), encoded(of_bytes, {"x": b"\xc3\xbc"}, x(pa.binary()))) == {"x": "ü"}
    assert isinstance(decoded(of_bytes, x(pa.string()), encoded(of_bytes, {"x": b"\xff"}, x(pa.binary()))), ValueError)


# --- Time ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=ZONES)
def machine_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    try:
        yield request.param
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
MOMENTS = (
    NOON,
    GAP,
    datetime.datetime(1900, 1, 1, 0, 0, 0, 1),
    datetime.datetime(1, 1, 2),
    datetime.datetime(9999, 12, 30),
)


@pytest.mark.parametrize("logical", [f"{prefix}timestamp-{unit}" for prefix in ("", "local-") for unit in UNITS])
def test_avro_timestamps_know_no_zone_of_the_machine(registry: Registry, logical: str, machine_zone: str) -> None:
    value_format = avro(registry, {"type": "long", "logicalType": logical})
    per_second = UNITS[logical.rpartition("-")[2]]
    moments = [each for each in MOMENTS if per_second < 10**9 or 1900 <= each.year < 2200]
    for moment in moments:
        micros = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
        kept = micros * per_second // 1_000_000
        expected = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=kept * 1_000_000 // per_second)
        for column_type in (pa.timestamp("us"), *(pa.timestamp("us", zone) for zone in ZONES)):
            value = encoded(
                value_format, {"x": moment if column_type.tz is None else moment.replace(tzinfo=UTC)}, x(column_type)
            )
            assert fastavro.schemaless_reader(_stream(value[5:]), {"type": "long"}, None) == kept, column_type
            assert decoded(value_format, x(pa.timestamp("us")), value) == {"x": expected}
            assert decoded(value_format, x(pa.timestamp("us", "UTC")), value) == {"x": expected.replace(tzinfo=UTC)}


def _stream(data: bytes) -> Any:
    import io

    return io.BytesIO(data)


def test_dates_and_times_of_day_know_no_zone_of_the_machine(registry: Registry, machine_zone: str) -> None:
    date = avro(registry, {"type": "int", "logicalType": "date"})
    for day in (datetime.date(1969, 12, 31), datetime.date(2026, 3, 29), datetime.date(1, 1, 1)):
        value = encoded(date, {"x": day}, x(pa.date32()))
        assert decoded(date, x(pa.date32()), value) == {"x": day}
        assert decoded(Json(), pa.date32(), f'"{day.isoformat()}"') == day
        assert encoded(Json(), day, pa.date32()) == f'"{day.isoformat()}"'.encode()
    clock = avro(registry, {"type": "long", "logicalType": "time-micros"})
    assert clock.writer is not None
    payload = encode_frame(clock.writer.schema_id, b"\x80\xe0\xba\x84\xbf\x03")
    assert re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?", decoded(clock, x(pa.string()), payload)["x"])
    with pytest.raises(Exception, match="field x is TIMESTAMP and the schema"):
        encoded(date, {"x": NOON.replace(tzinfo=UTC)}, x(pa.timestamp("us", "America/New_York")))


def test_json_times_know_no_zone_of_the_machine(machine_zone: str) -> None:
    assert encoded(Json(), NOON, pa.timestamp("us")) == b'"2026-03-01T12:00:00.123456"'
    for zone in ZONES:
        aware = NOON.replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
        assert encoded(Json(), aware, pa.timestamp("us", zone)) == b'"2026-03-01T12:00:00.123456Z"'
    aware_type = pa.timestamp("us", "UTC")
    assert decoded(Json(), aware_type, '"2026-03-29T02:30:00"') == GAP.replace(tzinfo=UTC)
    assert decoded(Json(), pa.timestamp("us"), '"2026-03-29T02:30:00"') == GAP
    assert decoded(Json(), aware_type, '"2026-03-29T02:30:00+02:00"') == datetime.datetime(
        2026, 3, 29, 0, 30, tzinfo=UTC
    )


def test_protobuf_timestamps_know_no_zone_of_the_machine(registry: Registry, machine_zone: str) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp x = 1; }'
    value_format = Protobuf(registry=registry, writer=schema("PROTOBUF", text))
    for zone in ZONES:
        value = encoded(value_format, {"x": NOON.replace(tzinfo=UTC)}, x(pa.timestamp("us", zone)))
        assert decoded(value_format, x(pa.timestamp("us", "UTC")), value) == {"x": NOON.replace(tzinfo=UTC)}
        assert decoded(value_format, x(pa.timestamp("us")), value) == {"x": NOON}
    of_local = encoded(value_format, {"x": NOON}, x(pa.timestamp("us")))
    assert decoded(value_format, x(pa.timestamp("us", "UTC")), of_local) == {"x": NOON.replace(tzinfo=UTC)}


def test_protobuf_has_the_doubles_that_json_lacks(registry: Registry) -> None:
    value_format = Protobuf(
        registry=registry, writer=schema("PROTOBUF", 'syntax = "proto3"; message M { double x = 1; }')
    )
    for number in ("nan", "inf", "-inf"):
        value = encoded(value_format, {"x": float(number)}, x(pa.float64()))
        assert str(decoded(value_format, x(pa.float64()), value)["x"]) == number


def test_a_timestamp_that_python_does_not_have_is_written_and_read() -> None:
    column = pa.array([0, 10_000 * 365 * 86_400 * 1_000_000, None, -(10**17)], pa.int64()).cast(MOMENT)
    texts = Converter(format=Json(), type=None)(column)
    assert texts.to_pylist() == [
        b'"1970-01-01T00:00:00.000Z"',
        b'"+11963-05-13T00:00:00.000Z"',
        None,
        b'"-1199-02-15T14:13:20.000Z"',
    ]
    assert Converter(format=Json(), type=MOMENT)(texts) == column


# --- Keys ------------------------------------------------------------------------------------------------------------------


def test_maps_with_other_keys_than_text_are_written_as_the_text_of_the_key() -> None:
    day = datetime.date(2026, 3, 1)
    for key_type, key, text in (
        (pa.date32(), day, "2026-03-01"),
        (pa.int64(), 7, "7"),
        (pa.decimal128(9, 2), Decimal("1.50"), "1.50"),
        (pa.bool_(), True, "true"),
        (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=UTC), "2026-03-01T12:00:00.123456Z"),
    ):
        value = encoded(Json(), [(key, 1)], pa.map_(key_type, pa.int32()))
        assert json.loads(value) == {text: 1}
    assert decoded(Json(), pa.map_(pa.date32(), pa.int32()), '{"2026-03-01": 1}') == [(day, 1)]
    struct_key = pa.map_(pa.struct([("a", pa.int32())]), pa.int32())
    with pytest.raises(Exception, match="it has keys of STRUCT<a: INT>"):
        encoded(Json(), [({"a": 1}, 1)], struct_key)


@pytest.mark.parametrize("text", ["-0", "-0.0", "-0e0"])
def test_a_negative_zero_keeps_its_sign(text: str) -> None:
    """In columns, and alone: beside a document that is no JSON, documents are read alone."""
    column_type = pa.struct([("x", pa.float64()), ("s", pa.string()), ("n", pa.int64()), ("d", pa.decimal128(5, 2))])
    document = f'{{"x":{text},"s":{text},"n":{text},"d":{text}}}'.encode()
    for documents in ([document], [document] * 300, [document, b"oops"]):
        row = read_column(Json(), column_type, pa.array(documents)).column[0].as_py()
        assert (repr(row["x"]), row["n"], row["d"]) == ("-0.0", 0, 0)
        assert (row["s"][:2], float(row["s"])) == ("-0", 0.0)
