"""JSON's numbers under times and texts under decimals: read as Debezium writes them where the user says so, and never guessed."""

from __future__ import annotations

import base64
import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json.column_reader import JsonReader, json_reader
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.single_json.encodings import UNKNOWN, Encodings, encodings_of
from tests.connector.values.json_samples import JsonSamples
from tests.connector.values.test_json_columns import same

UTC = datetime.timezone.utc
MOMENT, LOCAL, DAY, MONEY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.decimal128(10, 2)
N_TYPES = 40


def of(number: int | str, *, scale: int = 2) -> str:
    """A decimal as Connect writes it: base64 of Java's ``BigInteger.toByteArray``."""
    unscaled = int(Decimal(number).scaleb(scale))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def read(kind: pa.DataType, text: str, encodings: Encodings = UNKNOWN) -> tuple[Any, str | None]:
    """What a field is read as, alone and among others of its kind, which must be the same; and the reason."""
    column_type = pa.struct([pa.field("a", kind), pa.field("row", pa.int64())])
    for n_rows in (1, 100, 600):
        documents = [f'{{"a":{text},"row":{row}}}'.encode() for row in range(n_rows)]
        found = read_column(Json(encodings=encodings), column_type, pa.array(documents, pa.binary()))
        assert len(found.reasons) in (0, n_rows)
        assert found.reasons or found.column.field("row").to_pylist() == list(range(n_rows))
        values = found.column.field("a").view(pa.int64()) if pa.types.is_timestamp(kind) else found.column.field("a")
        assert len(set(values.to_pylist())) == 1
    return found.column.field("a")[0].as_py() if not found.reasons else None, found.reasons.get(0)


def test_a_number_whose_unit_nobody_has_named_is_an_error_that_names_the_option() -> None:
    for kind in (MOMENT, LOCAL, DAY):
        for number in ("5000000", "126230400000", "1772000000", "0", "1.5", "-1"):
            value, reason = read(kind, number)
            assert value is None and "valueTimeUnit" in (reason or ""), (kind, number, reason)
    # A unit for all timestamps says nothing of dates, nor that of dates of timestamps.
    assert "valueTimeUnit" in str(read(DAY, "19000", encodings_of("microseconds", None))[1])
    assert "valueTimeUnit" in str(read(MOMENT, "19000", encodings_of("days", None))[1])


@pytest.mark.parametrize(
    ("kind", "unit", "number", "expected"),
    [
        (MOMENT, "microseconds", "5000000", datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        (MOMENT, "milliseconds", "126230400000", datetime.datetime(1974, 1, 1, tzinfo=UTC)),
        (LOCAL, "milliseconds", "-1", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)),
        (LOCAL, "nanoseconds", "1500000000123456789", datetime.datetime(2017, 7, 14, 2, 40, 0, 123_456)),
        (LOCAL, "nanoseconds", "-1", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        (MOMENT, "seconds", "1500000000", datetime.datetime(2017, 7, 14, 2, 40, tzinfo=UTC)),
        (MOMENT, "seconds", "1500000000.123456", datetime.datetime(2017, 7, 14, 2, 40, 0, 123_456, tzinfo=UTC)),
        (MOMENT, "seconds", "1.5e9", datetime.datetime(2017, 7, 14, 2, 40, tzinfo=UTC)),
        (DAY, "days", "20000", datetime.date(2024, 10, 4)),
        (DAY, "days", "-1", datetime.date(1969, 12, 31)),
        # Texts have a unit of their own.
        (MOMENT, "microseconds", '"2026-03-01T12:00:00Z"', datetime.datetime(2026, 3, 1, 12, tzinfo=UTC)),
        (DAY, "days", '"2026-03-01"', datetime.date(2026, 3, 1)),
        # PostgreSQL's infinities, as its driver gives them to Debezium.
        (LOCAL, "microseconds", "9223372036825200000", None),
        (LOCAL, "microseconds", "-9223372036832400000", None),
        (LOCAL, "milliseconds", "9223372036825200", None),
        (LOCAL, "nanoseconds", "9223372036854775807", None),
        (DAY, "days", "2146033979", None),
        (DAY, "days", "-2147472692", None),
        (DAY, "days", "-622191234", None),
        (DAY, "days", "-625821272", None),
        (MOMENT, "milliseconds", '"infinity"', None),
    ],
)
def test_numbers_are_read_by_the_unit_that_is_named(kind: Any, unit: Any, number: str, expected: Any) -> None:
    assert read(kind, number, encodings_of(unit, None)) == (expected, None)
    # The same of a field by its name, whatever there is for all.
    assert read(kind, number, encodings_of({"": "seconds", "a": unit}, None)) == (expected, None)


@pytest.mark.parametrize(
    ("kind", "unit", "number"),
    [
        (MOMENT, "microseconds", "253402300800000000"),
        (MOMENT, "milliseconds", "1772000000000000"),
        (DAY, "days", "2932897"),
        (MOMENT, "seconds", "1e400"),
        (MOMENT, "microseconds", "9223372036854775808"),
        (DAY, "days", "2147483648"),
        (DAY, "days", "0.5"),
        (MOMENT, "microseconds", "true"),
    ],
)
def test_numbers_that_are_no_time_are_errors(kind: Any, unit: Any, number: str) -> None:
    value, reason = read(kind, number, encodings_of(unit, None))
    assert value is None and reason is not None


def test_a_date_may_be_given_in_another_unit_by_its_name() -> None:
    by_name = encodings_of({"a": "milliseconds"}, None)
    assert read(DAY, "86400000", by_name) == (datetime.date(1970, 1, 2), None)
    assert "whole day" in str(read(DAY, "86400001", by_name)[1])


@pytest.mark.parametrize("number", ["12.34", "-12.34", "0", "99999999.99", "-99999999.99", "1.27", "1.28", "-1.28"])
def test_decimals_of_connect_are_read_where_they_are_named(number: str) -> None:
    assert read(MONEY, f'"{of(number)}"', encodings_of(None, "base64")) == (Decimal(number), None)


def test_base64_of_digits_alone_is_never_a_number_and_no_number_is_base64() -> None:
    text = "1234"  # base64 of d7 6d f8
    assert read(MONEY, f'"{text}"', encodings_of(None, "base64")) == (Decimal("-26588.24"), None)
    assert read(MONEY, f'"{text}"', encodings_of(None, "numeric")) == (Decimal("1234.00"), None)
    for ambiguous in (text, "12345678", "+123", "12e4"):
        value, reason = read(MONEY, f'"{ambiguous}"')
        assert value is None and "valueDecimalFormat" in (reason or "")
    for clear, expected in (("12345", 12345), ("123", 123), ("-123", -123), ("12.5", Decimal("12.5"))):
        assert read(MONEY, f'"{clear}"') == (expected, None)
    # A number without quotes is what it says.
    assert read(MONEY, "1234", encodings_of(None, "base64")) == (Decimal("1234"), None)
    for wrong in ("12.34", "AAA", "", "f" * 400):
        assert read(MONEY, f'"{wrong}"', encodings_of(None, "base64"))[1]
    assert "cannot hold" in str(read(MONEY, f'"{of("100000000")}"', encodings_of(None, "base64"))[1])


def test_ambiguous_texts_are_found_wherever_they_stand_and_in_fields_of_other_types_they_are_text() -> None:
    line = pa.struct([("price", MONEY), ("sku", pa.string())])
    column_type = pa.struct([("lines", pa.list_(line)), ("prices", pa.list_(MONEY)), ("year", pa.string())])
    good = b'{"lines": [{"price": 1, "sku": "1234"}], "prices": ["1.5"], "year": "2026", "other": "1234"}'
    documents = [good] * 200
    documents[17] = good.replace(b'"price": 1', b'"price" : "1234"')
    documents[18] = good.replace(b'"price": 1', b'"pr\\u0069ce":"1234"')
    documents[19] = good.replace(b'"1.5"', b'1,"1234"')
    documents[20] = good.replace(b'"1.5"', b'"' + b"0" * 100 + b'"')
    documents[21] = good.replace(b'"sku": "1234"', b'"sku":"a\\"b"').replace(b'"price": 1', b'"price":"5678"')
    reader = json_reader(column_type)
    assert isinstance(reader, JsonReader)
    _, left = reader.read_column(Payloads.of(pa.array(documents, pa.binary())))
    assert left.sum() < 20  # texts of other fields do not count
    found = read_column(Json(), column_type, pa.array(documents, pa.binary()))
    assert sorted(found.reasons) == [17, 18, 19, 20, 21]


def test_a_decimal_of_variable_scale_is_read_where_it_has_a_column() -> None:
    text = f'{{"scale": 3, "value": "{of("12.345", scale=3)}"}}'
    assert read(pa.decimal128(38, 9), text, encodings_of(None, "base64")) == (Decimal("12.345000000"), None)
    assert read(pa.decimal128(38, 9), text)[1] == "a: a struct where a decimal is expected"


class ConnectSamples(JsonSamples):
    """Documents whose times and decimals are mostly those of Connect."""

    def _scalar(self, wanted: pa.DataType) -> str:
        if self.random.random() < 0.01:
            return super()._scalar(wanted)
        if pa.types.is_temporal(wanted):
            return self.random.choice(("0", "1500", "-1", "19000", "9223372036825200000"))
        if pa.types.is_decimal(wanted):
            return f'"{of(self.random.randrange(-(10**6), 10**6))}"'
        return super()._scalar(wanted)


def test_random_documents_are_read_in_columns_as_they_are_one_by_one() -> None:
    n_read = 0
    for seed in range(N_TYPES):
        samples, rng = ConnectSamples(seed), random.Random(seed)
        column_type = samples.struct()
        unit = rng.choice(("seconds", "milliseconds", "microseconds", "nanoseconds"))
        units = {"": unit, "a": rng.choice(("days", "nanoseconds"))} if rng.random() < 0.5 else unit
        encodings = encodings_of(units, rng.choice((None, "base64", "numeric")))  # type: ignore[arg-type]
        values = [samples.document(column_type, share_wrong=0.001) for _ in range(rng.choice((40, 700)))]
        reader = json_reader(column_type, encodings)
        assert isinstance(reader, JsonReader)
        column, left = reader.read_column(Payloads.of(pa.array(values, pa.binary())))
        column.validate(full=True)
        for nth, value in enumerate(values):
            if not left[nth]:
                (alone,) = pa.array([reader.read_one(value)], column_type)
                assert column[nth] == alone or same(column[nth].as_py(), alone.as_py()), (encodings, value)
        n_read += int((~left).sum())
    assert n_read > 1_000


def test_a_required_field_holds_no_infinity() -> None:
    column_type = pa.struct([pa.field("a", LOCAL, nullable=False)])
    for n_rows in (1, 600):
        documents = pa.array([b'{"a":9223372036825200000}'] * n_rows, pa.binary())
        found = read_column(Json(encodings=encodings_of("microseconds", None)), column_type, documents)
        assert len(found.reasons) == n_rows
