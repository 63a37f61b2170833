"""The policy for values that cannot be read, and what fits into which type, on plain JSON: no broker, no registry, no Spark."""

from __future__ import annotations

import datetime
import logging
import pickle
import subprocess
import sys
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from pykafka_wire.errors import OptionError, ValueFormatError
from pykafka_wire.values import OnError, converter
from pykafka_wire.values.bulk.arrays import reassemble
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.converter import Converter, diverted_type, read_column
from pykafka_wire.values.json.format import Json
from pykafka_wire.values.protobuf.format import Protobuf, _file, _reader
from pykafka_wire.values.registry.framing import SchemaId
from pykafka_wire.values.registry.registered_schema import Schema

UTC = datetime.timezone.utc
MOMENT = pa.timestamp("us", tz="UTC")


def decode(column_type: pa.DataType, *values: str | bytes | None, on_error: OnError = "fail") -> list[Any]:
    rows = pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())
    converter = pickle.loads(pickle.dumps(Converter(format=Json(), type=column_type, on_error=on_error)))
    column = converter(rows)
    assert column.type == (diverted_type(column_type) if on_error == "divert" else column_type)
    return list(column.to_pylist())


def encode(column: Any, on_error: OnError = "fail") -> list[Any]:
    return list(Converter(format=Json(), type=None, on_error=on_error)(column).to_pylist())


@pytest.mark.parametrize(
    ("column_type", "text", "expected"),
    [
        (pa.int64(), "9007199254740993", 9007199254740993),
        (pa.int64(), '"9007199254740993"', 9007199254740993),
        (pa.int32(), "3.0", 3),
        (pa.float64(), "3", 3.0),
        (pa.float64(), '"Infinity"', float("inf")),
        (pa.bool_(), "true", True),
        (pa.string(), '"text"', "text"),
        (pa.string(), '{"a":[1]}', '{"a":[1]}'),
        (pa.binary(), '"AP8="', b"\x00\xff"),
        (pa.decimal128(5, 2), "12.5", Decimal("12.50")),
        (pa.decimal128(5, 2), '"999.99"', Decimal("999.99")),
        (pa.decimal128(5, 2), '"1.2000"', Decimal("1.20")),
        (pa.decimal128(5, 2), '"1.E+2"', Decimal("100.00")),
        (pa.decimal128(5, 2), '"0E+99"', Decimal("0.00")),
        (
            pa.decimal128(38, 2),
            '"123456789012345678901234567890123456.78"',
            Decimal("123456789012345678901234567890123456.78"),
        ),
        (pa.float32(), "0.5", 0.5),
        (pa.string(), '"\\ud83d\\ude00"', "\U0001f600"),
        (pa.date32(), '"2026-03-01"', datetime.date(2026, 3, 1)),
        (MOMENT, '"2026-03-01T12:30:00Z"', datetime.datetime(2026, 3, 1, 12, 30, tzinfo=UTC)),
        (MOMENT, '"2026-03-01 12:30:00.1234567+0130"', datetime.datetime(2026, 3, 1, 11, 0, 0, 123456, UTC)),
        (MOMENT, '"2026-03-01T12:30:00"', datetime.datetime(2026, 3, 1, 12, 30, tzinfo=UTC)),
        (pa.timestamp("us"), '"2026-03-01T12:30:00"', datetime.datetime(2026, 3, 1, 12, 30)),
        (MOMENT, '"2026-3-1 1:2:3.5 Europe/Berlin"', datetime.datetime(2026, 3, 1, 0, 2, 3, 500_000, UTC)),
        (MOMENT, '"2026-03-01T12:30:00GMT-2"', datetime.datetime(2026, 3, 1, 14, 30, tzinfo=UTC)),
        (pa.date32(), '"2026-3"', datetime.date(2026, 3, 1)),
        (pa.date32(), '"2026-03-01T23:00:00-09:00"', datetime.date(2026, 3, 1)),
        (pa.float32(), "1.0000001788139343261718750000000000000001", 1.0000002384185791015625),
        (pa.list_(pa.int32()), "[1,null]", [1, None]),
        (pa.map_(pa.string(), pa.int32()), '{"a":1}', [("a", 1)]),
        (pa.struct([("a", pa.int32()), ("b", pa.string())]), '{"a":1,"c":2}', {"a": 1, "b": None}),
        (pa.int32(), "null", None),
    ],
)
def test_json_fits(column_type: pa.DataType, text: str, expected: Any) -> None:
    assert decode(column_type, text) == [expected]


@pytest.mark.parametrize(
    ("column_type", "text", "reason"),
    [
        (pa.int32(), "2147483648", "32 bits"),
        (pa.int32(), "1.5", "a number where an integer"),
        (pa.int32(), "true", "a boolean where an integer"),
        (pa.int32(), '"x"', "text where an integer"),
        (pa.float64(), '"x"', "text where a number"),
        (pa.bool_(), "1", "an integer where a boolean"),
        (pa.binary(), '"*"', "not base64"),
        (pa.binary(), "1", "an integer where binary"),
        (pa.decimal128(5, 2), "1.234", "cannot hold"),
        (pa.decimal128(5, 2), "1e4", "cannot hold"),
        (pa.decimal128(5, 2), '"x"', "text where a decimal"),
        (pa.decimal128(5, 2), "NaN", "a number where a decimal"),
        (pa.decimal128(38, 2), f'"1.{34 * "0"}1"', "cannot hold"),
        (pa.decimal128(38, 2), '"1E+1000000"', "cannot hold"),
        (pa.float64(), 400 * "9", "an integer that double cannot hold"),
        (pa.float32(), "1e300", "a number that float cannot hold"),
        (pa.string(), '"\\ud800"', "text that string cannot hold"),
        (pa.string(), '{"a":"\\ud800"}', "a struct that string cannot hold"),
        (pa.map_(pa.string(), pa.int32()), '{"\\ud800":1}', "half a character"),
        (MOMENT, '"999999-01-01T00:00:00Z"', "a timestamp"),
        (pa.date32(), '"2026-02-30"', "a date"),
        (MOMENT, '"2026-02-30T00:00:00Z"', "a timestamp"),
        (MOMENT, "5.0", "a timestamp"),
        (MOMENT, "1772000000000", "valueTimeUnit"),
        (MOMENT, "5", "valueTimeUnit"),
        (pa.timestamp("us"), "5", "valueTimeUnit"),
        (pa.date32(), "5", "valueTimeUnit"),
        (pa.decimal128(5, 2), '"1234"', "valueDecimalFormat"),
        (pa.timestamp("us"), '"2026-03-01T12:30:00Z"', "a timestamp"),
        (pa.list_(pa.int32()), "{}", "a struct where an array"),
        (pa.map_(pa.string(), pa.int32()), "[]", "an array where a map"),
        (pa.struct([("a", pa.struct([("b", pa.int32())]))]), '{"a":{"b":"x"}}', "a: b: text where an integer"),
        (pa.int32(), "{", "not JSON: an error at character 1"),
        (pa.int32(), b"\xff", "not JSON"),
    ],
)
def test_what_does_not_fit_is_refused_and_its_reason_holds_no_value(
    column_type: pa.DataType, text: str | bytes, reason: str
) -> None:
    ((found),) = decode(column_type, text, on_error="divert")
    assert found["value"] is None
    assert reason in found["error"]


def test_each_policy_keeps_the_rows_in_their_places() -> None:
    rows = ("1", "x", None, "3")
    assert decode(pa.int32(), *rows, on_error="null") == [1, None, None, 3]
    diverts = decode(pa.int32(), *rows, on_error="divert")
    assert [row["value"] for row in diverts] == [1, None, None, 3]
    assert [row["error"] is None for row in diverts] == [True, False, True, True]
    with pytest.raises(
        ValueFormatError, match=r"\[PYKAFKA_WIRE_VALUE\] a value cannot be decoded as Json: it is not JSON"
    ):
        decode(pa.int32(), *rows)


def test_texts_that_are_one_key_of_a_map_are_one_entry_and_the_last_counts() -> None:
    assert decode(pa.map_(pa.int32(), pa.int64()), '{"1":1,"2":2,"01":3}') == [[(1, 3), (2, 2)]]


REQUIRED = pa.field("item", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("column_type", "good", "bad"),
    [
        (pa.struct([REQUIRED]), '{"item":1}', ('{"item":null}', "{}")),
        (pa.list_(REQUIRED), "[1]", ("[1,null]",)),
        (pa.map_(pa.string(), REQUIRED), '{"a":1}', ('{"a":1,"b":null}',)),
    ],
)
def test_null_in_a_field_that_is_not_null_is_refused(column_type: pa.DataType, good: str, bad: tuple[str, ...]) -> None:
    first, *rest, last = decode(column_type, good, *bad, None, on_error="divert")
    assert first["value"] is not None
    assert all(row["value"] is None and "NOT NULL" in row["error"] for row in rest)
    assert last == {"value": None, "error": None}
    assert decode(column_type, good, *bad, on_error="null")[1:] == [None] * len(bad)


def test_what_cannot_be_meant_is_refused_before_any_row() -> None:
    with pytest.raises(OptionError, match="on_error is 'skip'"):
        decode(pa.int32(), on_error=cast(OnError, "skip"))
    with pytest.raises(OptionError, match="tombstones"):
        encode(pa.array(["x"]), on_error="null")
    with pytest.raises(OptionError, match="cannot be month_day_nano_interval"):
        decode(pa.struct([("a", pa.month_day_nano_interval())]))
    deep: pa.DataType = pa.string()
    for _ in range(400):  # Python's stack has a thousand frames, of which each level takes several
        deep = pa.list_(deep)
    with pytest.raises(OptionError, match="nested deeper than Python can follow"):
        decode(deep)


def test_json_is_written_as_sparks_to_json_does() -> None:
    column_type = pa.struct(
        [
            ("at", MOMENT),
            ("raw", pa.binary()),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("n", pa.int32()),
            ("d", pa.date32()),
        ]
    )
    row = {
        "at": datetime.datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
        "raw": b"\x00\xff",
        "m": [("k", 1)],
        "d": datetime.date(2026, 3, 1),
    }
    expected = b'{"at":"2026-03-01T12:30:00.000Z","raw":"AP8=","m":{"k":1},"d":"2026-03-01"}'
    assert encode(pa.array([row, None], column_type)) == [expected, None]
    assert encode(pa.array([float("nan"), 1.0])) == [b'"NaN"', b"1.0"]


class TooLargeTogether(Json):
    """Values that Arrow cannot hold in one array, but one by one."""

    def reader(self, schema_id: SchemaId | None, column_type: pa.DataType) -> Any:
        class Reader:
            def read_column(self, payloads: Payloads) -> Any:
                raise pa.ArrowInvalid("Take overflowed, binary array cannot contain more than 2147483646 bytes")

            def read_one(self, payload: bytes) -> Any:
                return int(payload)

        return Reader()


def test_an_arrow_error_in_a_column_leaves_its_rows_to_be_read_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    rows = pa.array([b"1", None, b"x", b"3"] * 5_000, pa.binary())
    with caplog.at_level(logging.WARNING):
        found = read_column(TooLargeTogether(), pa.int64(), rows)
    assert found.column.to_pylist() == [1, None, None, 3] * 5_000
    assert sorted(found.reasons) == list(range(2, 20_000, 4))
    (message,) = [each.getMessage() for each in caplog.records]
    assert "15000 values cannot be read in columns, and are read one by one: Take overflowed" in message


@pytest.mark.parametrize("on_error", ["fail", "null", "divert"])
def test_values_that_no_column_holds_together_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, on_error: OnError
) -> None:
    def overflow(*_: object) -> None:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")  # as beyond 2 GiB

    monkeypatch.setattr(converter, "reassemble", overflow)
    with pytest.raises(
        ValueFormatError, match=r"2 values are together too large .* lower spark\.sql\.execution\.arrow"
    ):
        decode(pa.string(), '"x"', '"y"', on_error=on_error)


def test_rows_that_are_read_alone_become_columns_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "_COLUMN_BYTES_AT_ONCE", 1_000)
    monkeypatch.setattr(converter, "_MAX_ARRAY_BYTES", 3_000)
    sizes = []

    def array(values: list[Any]) -> Any:
        sizes.append(len(values))
        found = pa.array(values, pa.string())
        if found.nbytes > 3_000:
            raise pa.ArrowInvalid("offset overflow")
        return found

    monkeypatch.setattr(converter, "array_of", lambda _: array)
    values = [f'"{n}"' for n in range(40)] + ['"' + "x" * 900 + '"'] * 8
    assert decode(pa.string(), *values) == [each[1:-1] for each in values]
    assert max(sizes) > 16


def test_many_pieces_of_a_column_are_joined_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    n_pieces = []

    def counted(n_rows: int, column_type: pa.DataType, parts: list[Any]) -> Any:
        n_pieces.append(len(parts))
        return reassemble(n_rows, column_type, parts)

    monkeypatch.setattr(converter, "reassemble", counted)
    monkeypatch.setattr(converter, "_ROWS_AT_ONCE", 8)
    values = [None if n % 11 == 0 else f'"{n}' if n % 7 == 0 else f'"{n}"' for n in range(2_000)]
    expected = [None if each is None or not each.endswith('"') else each[1:-1] for each in values]
    assert decode(pa.string(), *values, on_error="null") == expected
    assert 8 <= n_pieces[0] < 20


PROTO = Schema(kind="PROTOBUF", text='syntax = "proto3"; message M { map<string, string> m = 1; }')
LACKS = [MemoryError(), pa.lib.ArrowMemoryError("malloc"), OSError(24, "Too many open files"), ImportError("a library")]
#: What a process may lack memory or files for, by format: a function of the package, and the type that values are read as.
STEPS = {
    "a value of JSON": (Json(), "pykafka_wire.values.json.column_reader.parse_json", pa.map_(pa.string(), pa.int32())),
    "a column": (Json(), "pykafka_wire.values.converter.array_of", pa.map_(pa.string(), pa.int32())),
    "a schema of Protobuf": (
        Protobuf(registry=None, reader_schema=PROTO),
        "pykafka_wire.values.protobuf.linker.link",
        pa.struct([("m", pa.map_(pa.string(), pa.string()))]),
    ),
    "a message": (
        Protobuf(registry=None, reader_schema=PROTO),
        "pykafka_wire.values.protobuf.input_limits.MessageLayout.reserve",
        pa.struct([("m", pa.string())]),
    ),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lack", LACKS, ids=lambda lack: type(lack).__name__)
def test_a_lack_of_memory_or_files_is_no_reason_of_a_value(
    monkeypatch: pytest.MonkeyPatch, lack: Exception, step: str
) -> None:
    value_format, name, column_type = STEPS[step]

    def fail(*_: Any, **__: Any) -> Any:
        raise lack

    made = fail if step != "a column" else lambda _: fail
    monkeypatch.setattr(name, made)
    monkeypatch.setattr("pykafka_wire.values.protobuf.format._file", _file.__wrapped__)
    monkeypatch.setattr("pykafka_wire.values.protobuf.format._reader", _reader.__wrapped__)
    rows = pa.array([b'{"a": 1}' if isinstance(value_format, Json) else b"\x0a\x06\x0a\x01a\x12\x01b"], pa.binary())
    with pytest.raises(type(lack)):
        read_column(value_format, column_type, rows)


#: Reads a large value while the process may take little more memory, and prints what became of the value under each limit.
WITH_LITTLE_MEMORY = """
import pathlib, resource, pyarrow as pa
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json.format import Json

column_type = pa.map_(pa.string(), pa.string())
value = b"{" + b",".join(b'"k%d": "%s"' % (number, b"v" * 50) for number in range(100_000)) + b"}"
for megabytes in (1, 8, 16, 2_000):
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
    try:
        read = read_column(Json(), column_type, pa.array([value], pa.binary()))
        print(read.reasons.get(0, "read"))
    except MemoryError:
        print("no memory")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory by RLIMIT_AS")
def test_a_value_that_memory_does_not_suffice_for_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_LITTLE_MEMORY], capture_output=True, text=True, check=True)
    outcomes = done.stdout.split("\n")[:-1]
    assert outcomes[0] == "no memory" and outcomes[-1] == "read" and {*outcomes} == {"no memory", "read"}
