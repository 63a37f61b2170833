"""Avro as Kafka Connect's converters write it: types by ``connect.name``, decimals without a precision, names of any kind."""

from __future__ import annotations

import datetime
import io
import json
import random
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.avro.types import TypeRules
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.ddl import arrow_type

UTC = datetime.timezone.utc
CONNECT = TypeRules(connect=True, names_by_type=True)
DATE_POSITIVE_INFINITY, DATE_NEGATIVE_INFINITY = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
#: More values than are read one by one, and one.
SIZES = (1, 300)


def of(name: str, carrier: Any = "long", **more: Any) -> dict[str, Any]:
    """A type as Confluent's ``AvroData`` writes it."""
    base = carrier if isinstance(carrier, dict) else {"type": carrier}
    return {**base, "connect.version": 1, "connect.name": name, **more}


def record(kind: Any, name: str = "Value", namespace: str = "db.public.t") -> str:
    fields = [{"name": "a", "type": ["null", kind], "default": None}, {"name": "row", "type": "int"}]
    return json.dumps({"type": "record", "name": name, "namespace": namespace, "fields": fields})


def written(schema: str, value: Any, n_rows: int) -> Any:
    parsed = fastavro.parse_schema(_without_logical_types(json.loads(schema)))
    found = []
    for row in range(n_rows):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {"a": value, "row": row})
        found.append(out.getvalue())
    return pa.array(found, pa.binary())


def _without_logical_types(schema: Any) -> Any:
    """So that fastavro takes what is stored."""
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _without_logical_types(each) for name, each in schema.items() if name != "logicalType"}


def read(kind: Any, value: Any, rules: TypeRules = CONNECT) -> tuple[str, Any]:
    """The type in SQL's words, and the value; the reason where there is none."""
    schema = record(kind)
    value_format = Avro(reader_schema=schema, rules=rules)
    column_type = value_format.column_type()
    reader = value_format.reader(None, column_type)
    for n_rows in SIZES:
        rows = written(schema, value, n_rows)
        found = read_column(value_format, column_type, rows)
        assert len(found.reasons) in (0, n_rows)
        if found.reasons:
            return str(column_type.field("a").type), found.reasons[0]
        assert found.column.field("row").to_pylist() == list(range(n_rows))
        alone = pa.array([reader.read_one(rows[0].as_py())], column_type)
        assert found.column[0] == alone[0]
    column = found.column.field("a")
    kind_read = column.type
    try:
        return str(kind_read), column[0].as_py()
    except (OverflowError, ValueError):
        return str(kind_read), column[0].value


LOCAL, INSTANT = "timestamp[us]", "timestamp[us, tz=UTC]"
BEYOND = "a: a number that is not the {} of a time in the years 1 to 9999"
BEYOND_AS_TEXT = "a: a time beyond the years 1 to 9999"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (of("io.debezium.time.Date", "int"), 20000, ("date32[day]", datetime.date(2024, 10, 4))),
        (of("io.debezium.time.Date", "int"), -2147472692, ("date32[day]", None)),
        (of("io.debezium.time.Date", "int"), -622191234, ("date32[day]", None)),
        (of("io.debezium.time.Date", "int"), -625821272, ("date32[day]", None)),
        (of("io.debezium.time.Date", "int"), 2146033979, ("date32[day]", None)),
        (of("io.debezium.time.Timestamp"), 126_230_400_001, (LOCAL, datetime.datetime(1974, 1, 1, 0, 0, 0, 1000))),
        (of("io.debezium.time.Timestamp"), 9_223_372_036_825_200, (LOCAL, None)),
        (of("io.debezium.time.MicroTimestamp"), 5_000_000, (LOCAL, datetime.datetime(1970, 1, 1, 0, 0, 5))),
        (of("io.debezium.time.MicroTimestamp"), DATE_POSITIVE_INFINITY, (LOCAL, None)),
        (of("io.debezium.time.MicroTimestamp"), DATE_NEGATIVE_INFINITY, (LOCAL, None)),
        (of("io.debezium.time.NanoTimestamp"), -1, (LOCAL, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999))),
        (of("io.debezium.time.NanoTimestamp"), (1 << 63) - 1, (LOCAL, None)),
        (
            of("io.debezium.time.ZonedTimestamp", "string"),
            "2020-01-02T03:04:05.123456+01:00",
            (INSTANT, datetime.datetime(2020, 1, 2, 2, 4, 5, 123_456, tzinfo=UTC)),
        ),
        (
            of("io.debezium.time.ZonedTimestamp", "string"),
            "2020-01-02T03:04:05.123456789Z",
            (INSTANT, datetime.datetime(2020, 1, 2, 3, 4, 5, 123_456, tzinfo=UTC)),
        ),
        (of("io.debezium.time.ZonedTimestamp", "string"), "infinity", (INSTANT, None)),
        (of("io.debezium.time.IsoDate", "string"), "2005-05-12Z", ("date32[day]", datetime.date(2005, 5, 12))),
        (
            of("io.debezium.time.IsoTimestamp", "string"),
            "2005-05-12T01:02:03.4Z",
            (LOCAL, datetime.datetime(2005, 5, 12, 1, 2, 3, 400_000)),
        ),
        (of("io.debezium.time.ZonedTimestamp", "string"), "+294247-01-10T04:00:25.2Z", (INSTANT, None)),
        (of("io.debezium.time.ZonedTimestamp", "string"), "+10000-01-01T00:00:00Z", (INSTANT, BEYOND_AS_TEXT)),
        (of("io.debezium.time.IsoTimestamp", "string"), "0000-12-31T23:59:59Z", (LOCAL, BEYOND_AS_TEXT)),
        (of("io.debezium.time.IsoDate", "string"), "0000-12-31Z", ("date32[day]", BEYOND_AS_TEXT)),
        (of("io.debezium.time.MicroTimestamp"), 253_402_300_800_000_000, (LOCAL, BEYOND.format("microseconds"))),
        (of("io.debezium.time.MicroTimestamp"), -62_135_596_800_000_001, (LOCAL, BEYOND.format("microseconds"))),
        (of("io.debezium.time.Timestamp"), 253_402_300_800_000, (LOCAL, BEYOND.format("milliseconds"))),
        (of("io.debezium.time.Date", "int"), 2_932_897, ("date32[day]", BEYOND.format("days"))),
        (of("io.debezium.time.Date", "int"), -719_163, ("date32[day]", BEYOND.format("days"))),
        (of("io.debezium.time.Date", "int"), -719_162, ("date32[day]", datetime.date(1, 1, 1))),
        (of("io.debezium.time.Time", "int"), 1_500, ("time64[ns]", datetime.time(0, 0, 1, 500_000))),
        (of("io.debezium.time.MicroTime"), 1_500_000, ("time64[ns]", datetime.time(0, 0, 1, 500_000))),
        (of("io.debezium.time.NanoTime"), 1_500_000_000, ("time64[ns]", datetime.time(0, 0, 1, 500_000))),
        (of("io.debezium.time.MicroTime"), 86_400_000_000, ("time64[ns]", "a: a time that is not in a day")),
        (of("io.debezium.time.ZonedTime", "string"), "12:00:00Z", ("string", "12:00:00Z")),
        (of("io.debezium.time.Interval", "string"), "P1Y2M3DT4H5M6.78S", ("string", "P1Y2M3DT4H5M6.78S")),
        (of("io.debezium.time.MicroDuration"), 5, ("int64", 5)),
        (of("io.debezium.time.Year", "int"), 2020, ("int32", 2020)),
        (
            of("org.apache.kafka.connect.data.Date", "int", logicalType="date"),
            20000,
            ("date32[day]", datetime.date(2024, 10, 4)),
        ),
        (
            of("org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis"),
            126_230_400_000,
            (INSTANT, datetime.datetime(1974, 1, 1, tzinfo=UTC)),
        ),
        (
            of("org.apache.kafka.connect.data.Time", "int", logicalType="time-millis"),
            1_500,
            ("time64[ns]", datetime.time(0, 0, 1, 500_000)),
        ),
        (of("io.debezium.data.Json", "string"), '{"a": 1}', ("string", '{"a": 1}')),
        (of("io.debezium.data.Uuid", "string"), "f-1", ("string", "f-1")),
        (of("io.debezium.data.Enum", "string", **{"connect.parameters": {"allowed": "a,b"}}), "a", ("string", "a")),
        (of("io.debezium.data.EnumSet", "string"), "a,b", ("string", "a,b")),
        (of("io.debezium.data.Xml", "string"), "<a/>", ("string", "<a/>")),
        (of("io.debezium.data.Bits", "bytes"), b"\x05", ("binary", b"\x05")),
        # A name that is on another type than Debezium puts it on says nothing.
        (of("io.debezium.time.Date", "string"), "x", ("string", "x")),
    ],
    ids=lambda each: each["connect.name"].rpartition(".")[2] if isinstance(each, dict) else None,
)
def test_values_have_the_types_that_connects_names_say(kind: Any, value: Any, expected: Any) -> None:
    assert read(kind, value) == expected


VARIABLE = of(
    "io.debezium.data.VariableScaleDecimal",
    {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    },
)


@pytest.mark.parametrize(
    ("scale", "unscaled", "text"),
    [
        (3, 12345, "12.345"),
        (0, -7, "-7"),
        (10, 0, "0.0000000000"),
        (-2, 5, "500"),
        pytest.param(1_001, -(10**3_000), f"-1{'0' * 1_999}.{'0' * 1_001}", id="long"),
    ],
)
def test_decimals_of_variable_scale_are_text_with_all_digits(scale: int, unscaled: int, text: str) -> None:
    value = {"scale": scale, "value": unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)}
    assert read(VARIABLE, value) == ("string", text)
    assert read(VARIABLE, value, TypeRules()) == ("struct<scale: int32, value: binary>", value)
    assert "a decimal without" in str(read(VARIABLE, {"scale": 20_000, "value": b"\1"})[1])


def test_without_the_rule_names_of_connect_say_nothing() -> None:
    assert read(of("io.debezium.time.MicroTimestamp"), 5, TypeRules()) == ("int64", 5)
    assert read(of("io.debezium.time.ZonedTimestamp", "string"), "infinity", TypeRules()) == ("string", "infinity")


def test_times_of_day_are_microseconds_where_a_table_cannot_store_them() -> None:
    rules = TypeRules(connect=True, times_are_numbers=True)
    for name, carrier, value in (
        ("Time", "int", 1_500),
        ("MicroTime", "long", 1_500_000),
        ("NanoTime", "long", 1_500_000_999),
    ):
        assert read(of(f"io.debezium.time.{name}", carrier), value, rules) == ("int64", 1_500_000)
    assert read(of("io.debezium.time.MicroTime"), 86_400_000_000, rules) == ("int64", 86_400_000_000)
    assert read({"type": "long", "logicalType": "time-micros"}, 7, TypeRules(times_are_numbers=True)) == ("int64", 7)


def test_json_is_a_variant_where_that_is_asked_for() -> None:
    rules = TypeRules(connect=True, json_is_variant=True)
    kind = of("io.debezium.data.Json", "string")
    found = read_column(
        Avro(reader_schema=record(kind), rules=rules),
        Avro(reader_schema=record(kind), rules=rules).column_type(),
        pa.concat_arrays([written(record(kind), text, 300) for text in ('{"a": 1}', "no json")]),
    )
    expected = read_column_of_json('{"a": 1}')
    assert found.column.field("a")[0] == expected
    assert sorted(found.reasons) == list(range(300, 600))


def read_column_of_json(text: str) -> Any:
    from pykafka_wire.values.json.format import Json

    return read_column(Json(), arrow_type("VARIANT"), pa.array([text.encode()])).column[0]


def test_a_number_keeps_the_unit_that_it_was_written_in() -> None:
    """After ALTER TABLE t ALTER COLUMN a TYPE timestamp(6) Debezium writes microseconds in place of milliseconds."""
    older, newer = (record(of(f"io.debezium.time.{name}")) for name in ("Timestamp", "MicroTimestamp"))
    value_format = Avro(reader_schema=newer, rules=CONNECT)
    from pykafka_wire.values.avro.column_reader import AvroReadPlan, decode
    from pykafka_wire.values.avro.resolution import resolve_schemas
    from pykafka_wire.values.avro.row_reader import reader_of
    from pykafka_wire.values.avro.schema import parse
    from pykafka_wire.values.bulk.reading import Payloads

    write, reads = (parse(text, has_connect_types=True) for text in (older, newer))
    node, column_type = resolve_schemas(write, reads), value_format.column_type()
    rows = written(older, 126_230_400_000, 100)
    column, left = decode(Payloads.of(rows), AvroReadPlan(reads).type_reader(node, column_type), column_type)
    assert not left.any()
    assert column[0].as_py()["a"] == datetime.datetime(1974, 1, 1)
    assert reader_of(node, column_type, reads)(rows[0].as_py())["a"] == 126_230_400_000_000


MONEY = of(
    "org.apache.kafka.connect.data.Decimal",
    "bytes",
    scale=2,
    precision=64,
    logicalType="decimal",
    **{"connect.parameters": {"scale": "2"}},
)


def test_a_decimal_without_a_precision_is_of_38_digits_and_one_that_does_not_fit_is_an_error_of_its_value() -> None:
    def unscaled(number: int) -> bytes:
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    assert read(MONEY, unscaled(1234), TypeRules()) == ("decimal128(38, 2)", Decimal("12.34"))
    most = 10**38 - 1
    assert read(MONEY, unscaled(most), TypeRules()) == ("decimal128(38, 2)", Decimal(f"{'9' * 36}.99"))
    assert "cannot hold" in read(MONEY, unscaled(10**38), TypeRules())[1]
    assert read(MONEY, unscaled(-(10**40)), TypeRules(large_decimals_are_text=True)) == ("string", f"-1{'0' * 38}.00")
    # Of a database's numeric(60,2), which may hold more digits than DECIMAL does.
    named = MONEY | {"precision": 60, "connect.parameters": {"scale": "2", "connect.decimal.precision": "60"}}
    assert read(named, unscaled(10**50), CONNECT) == ("string", f"1{'0' * 48}.00")
    assert read(MONEY, unscaled(1234), CONNECT) == ("decimal128(38, 2)", Decimal("12.34"))
    # Sign-extended, as a fixed has it.
    fixed = {"type": "fixed", "name": "F", "size": 27, "logicalType": "decimal", "precision": 64, "scale": 2}
    for number in (1234, -1, 0, -most):
        value = number.to_bytes(27, "big", signed=True)
        assert read(fixed, value, TypeRules()) == ("decimal128(38, 2)", Decimal(number).scaleb(-2, Context(prec=40)))
    assert "cannot hold" in read(fixed, (2**200).to_bytes(27, "big", signed=True), TypeRules())[1]
    small = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 50}
    assert read(small, b"\1", TypeRules()) == ("string", f"0.{'0' * 49}1")


@pytest.mark.parametrize(
    ("name", "namespace"), [("Value", "my-server.public.t"), ("order-line", "a b.c"), ("Ümlaut", "1.2"), ("V", "$x")]
)
def test_names_that_javas_parser_does_not_check_are_taken(name: str, namespace: str) -> None:
    schema = json.dumps(
        {"type": "record", "name": name, "namespace": namespace, "fields": [{"name": "first name", "type": "int"}]}
    )
    found = read_column(Avro(reader_schema=schema), pa.struct([("first name", pa.int32())]), pa.array([b"\x02"]))
    assert found.column.to_pylist() == [{"first name": 1}]


def test_a_branch_that_is_inserted_changes_the_meaning_of_no_name() -> None:
    def union(*names: str) -> list[Any]:
        return [
            "null",
            *({"type": "record", "name": each, "fields": [{"name": "id", "type": "int"}]} for each in names),
        ]

    def schema(branches: list[Any]) -> str:
        fields = [{"name": "a", "type": branches}, {"name": "row", "type": "int"}]
        return json.dumps({"type": "record", "name": "Event", "fields": fields})

    before, after = schema(union("Order", "Refund")), schema(union("Order", "Cancel", "Refund"))
    rules = TypeRules(names_by_type=True)
    types = [Avro(reader_schema=each, rules=rules).column_type().field("a").type for each in (before, after)]
    assert [[field.name for field in each] for each in types] == [
        ["member_Order", "member_Refund"],
        ["member_Order", "member_Cancel", "member_Refund"],
    ]
    value = ("Refund", {"id": 7})
    for reader_schema in (before, after):
        value_format = Avro(reader_schema=reader_schema, rules=rules)
        for n_rows in SIZES:
            found = read_column(value_format, value_format.column_type(), written(reader_schema, value, n_rows))
            row = found.column[0].as_py()["a"]
            assert {name: each for name, each in row.items() if each is not None} == {"member_Refund": {"id": 7}}


def test_types_of_one_name_in_two_namespaces_have_their_full_names() -> None:
    branches = [{"type": "record", "name": "Order", "namespace": each, "fields": []} for each in ("eu.shop", "us")]
    schema = json.dumps(["string", {"type": "array", "items": "int"}, *branches])
    column_type = Avro(reader_schema=schema, rules=CONNECT).column_type()
    assert [field.name for field in column_type] == [
        "member_string",
        "member_array",
        "member_eu_shop_Order",
        "member_us_Order",
    ]


def test_a_column_with_names_by_type_is_written() -> None:
    from pykafka_wire.values.avro.column_writer import column_writer
    from pykafka_wire.values.avro.schema import parse

    schema = json.dumps(["null", "string", "long"])
    value_format = Avro(reader_schema=schema, rules=CONNECT)
    column = pa.array([{"member_string": "x"}, {"member_long": 5}], value_format.column_type())
    rows = column_writer(parse(schema), column.type).write(column)
    assert read_column(value_format, column.type, rows).column == column


def test_debeziums_money_is_read() -> None:
    schema = (Path(__file__).parent / "debezium_money.avsc").read_text()
    parsed = fastavro.parse_schema(_without_logical_types(json.loads(schema)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {"before": None, "after": {"id": 1, "m": b"\x04\xd2"}, "op": "r"})
    value_format = Avro(reader_schema=schema, rules=CONNECT)
    found = read_column(value_format, value_format.column_type(), pa.array([out.getvalue()]))
    assert found.column[0].as_py()["after"] == {"id": 1, "m": Decimal("12.34")}


def test_damaged_values_are_read_in_columns_as_they_are_one_by_one_or_are_errors() -> None:
    kinds = {
        "day": of("io.debezium.time.Date", "int"),
        "nano": of("io.debezium.time.NanoTimestamp"),
        "milli": of("io.debezium.time.Timestamp"),
        "zoned": of("io.debezium.time.ZonedTimestamp", "string"),
        "iso": of("io.debezium.time.IsoDate", "string"),
        "clock": of("io.debezium.time.Time", "int"),
        "number": VARIABLE,
        "numbers": {"type": "array", "items": "io.debezium.data.VariableScaleDecimal"},
        "money": MONEY,
        "doc": of("io.debezium.data.Json", "string"),
        "either": ["null", of("io.debezium.time.MicroTimestamp"), "string"],
    }
    good = {
        "day": 1,
        "nano": 2,
        "milli": 3,
        "zoned": "2020-01-02T03:04:05Z",
        "iso": "2020-01-02Z",
        "clock": 5,
        "number": {"scale": 1, "value": b"\1"},
        "numbers": [{"scale": 0, "value": b"\2"}] * 2,
        "money": b"\3",
        "doc": '{"a": [1]}',
        "either": 7,
    }
    fields = [
        {"name": name, "type": ["null", kind] if isinstance(kind, dict) else kind} for name, kind in kinds.items()
    ]
    schema = json.dumps({"type": "record", "name": "Row", "fields": fields})
    parsed, rng = fastavro.parse_schema(_without_logical_types(json.loads(schema))), random.Random(7)
    values = []
    for row in range(600):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, good | ({"zoned": "infinity"} if row % 50 == 0 else {}))
        value = bytearray(out.getvalue())
        for _ in range(rng.choice((0, 0, 1, 3))):
            value[rng.randrange(len(value))] = rng.randrange(256)
        values.append(bytes(value[: rng.choice((len(value), len(value), rng.randrange(len(value))))]))
    rules = TypeRules(connect=True, json_is_variant=True, names_by_type=True)
    value_format = Avro(reader_schema=schema, rules=rules)
    column_type = value_format.column_type()
    reader = value_format.reader(None, column_type)
    found = read_column(value_format, column_type, pa.array(values, pa.binary()))
    found.column.validate(full=True)
    assert 150 < len(found.reasons) < 550
    for row, value in enumerate(values):
        if row in found.reasons:
            with pytest.raises((DecodeError, pa.ArrowException)):
                pa.array([reader.read_one(value)], column_type)
        else:
            assert str(found.column[row]) == str(pa.array([reader.read_one(value)], column_type)[0])
