"""JSON in columns beside the row by row reader: random types and documents, documents that would shift rows, bad values."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.errors import DecodeError
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json import document_blocks
from pykafka_wire.values.json.column_reader import JsonReader, json_reader
from pykafka_wire.values.json.format import Json
from tests.connector.values.json_samples import JsonSamples
from tests.connector.values.same_values import same

N_TYPES = int(os.environ.get("JSON_TYPES", "60"))
NUMBERED = pa.struct([("row", pa.int64()), ("x", pa.float64())])


def reader_of(column_type: pa.DataType) -> JsonReader:
    reader = json_reader(column_type)
    assert isinstance(reader, JsonReader)
    return reader


def alone(reader: JsonReader, value: bytes) -> Any:
    """What the row by row reader makes of a value, or the exception."""
    try:
        return pa.array([reader.read_one(value)], reader.column_type)[0]
    except (DecodeError, pa.ArrowException, OverflowError) as error:
        return error


def is_same(one: pa.Scalar, other: pa.Scalar) -> bool:
    try:
        return same(one.as_py(), other.as_py())
    except (OverflowError, ValueError):  # Python has no such date
        return bool(one == other)


def compare(column_type: pa.DataType, values: list[bytes]) -> int:
    """How many values were read in columns; each of them must be what the row by row reader makes of it."""
    reader = reader_of(column_type)
    column, left = reader.read_column(Payloads.of(pa.array(values, pa.binary())))
    assert column.type == column_type and len(column) == len(left) == len(values)
    column.validate(full=True)
    for nth, value in enumerate(values):
        if not left[nth]:
            expected = alone(reader, value)
            assert isinstance(expected, pa.Scalar), (column_type, value, expected)
            assert is_same(column[nth], expected), (column_type, value)
    return int((~left).sum())


def test_random_documents_are_read_as_the_row_by_row_reader_reads_them() -> None:
    n_read = n_all = 0
    for seed in range(N_TYPES):
        samples = JsonSamples(seed)
        column_type = samples.struct()
        values = [samples.document(column_type) for _ in range(samples.random.choice((3, 40, 300)))]
        n_read += compare(column_type, values)
        n_all += len(values)
    assert n_read > n_all / 2


def test_damaged_documents_are_left_or_read_as_the_row_by_row_reader_reads_them() -> None:
    n_read = 0
    for seed in range(N_TYPES):
        samples = JsonSamples(seed)
        column_type = samples.struct()
        values = []
        for _ in range(samples.random.choice((3, 40, 300))):
            value = samples.document(column_type, share_wrong=0.02)
            values.append(samples.damaged(value) if samples.random.random() < 0.05 else value)
        n_read += compare(column_type, values)
    assert n_read > N_TYPES


def number(row: int) -> bytes:
    return b'{"row":%d,"x":%d.5}' % (row, row)


#: In the place of a row: each holds its own number, %d, or would read over into the next row, or end before it.
SHIFTING = [
    b'{"row":%d}{"row":-1}',
    b'{"row":%d}\n{"row":-1}',
    b'{"row":%d}{}',
    b'{"row":%d} null {"row":-1}',
    b'{"row":%d}null{"row":-1}',
    b'{"row":%d}\nnull\n{"row":-1}',
    b'{"row":%d}\x00{"row":-1}',
    b'{"row":%d}\x00}',
    b'{"row":%d,"x":{}',
    b'{"row":%d,"y":[{}',
    b'{"row":%d,"y":[{},{}',
    b'{"row":%d,"y":"}',
    b'{"row":%d,"y":"\\"}',
    b'{"row":%d,"y":"\\',
    b'{"row":%d,"y":"}\n{"}',
    b'{"row":%d}}{"row":-1}',
    b'{"row":%d,"x":1}],[{"row":-1}',
    b'{"row":%d}//{}',
    b'{"row":%d}/*{}',
    b'*/{"row":%d}',
    b'{"row":%d}1{}',
    b'{"row":%d}"a"{}',
    b'{"row":%d}[]{}',
    b'{"row":%d},{}',
    b"[%d]",
    b"%d",
    b"null",
    b"{%d",
    b"}%d{",
    b"",
    b" ",
    b"\xef\xbb\xbf",
    b'{"row":%d,"row":-1}',
    b'{"row":%d,"y":Inf}',
    b'{"row":%d,"x":-NaN}',
    b'{"row":%d,"x":-NaN,"y":Inf }',
    b'{"row":%d,"y":"\xff"}',
    b'{"row":%d,"y":"\xed\xa0\x80"}',
    b'{"row":%d,"y":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
]


def test_no_document_shifts_the_rows_after_it() -> None:
    """Each row that is read in columns has its own number; each other one is left, whatever stands in its place."""
    reader = reader_of(NUMBERED)
    rng = random.Random(16)
    for density in (0.001, 0.02, 0.3):
        for nth, shifting in enumerate(SHIFTING):
            n_rows = rng.choice((3, 200, 3_000))
            bad = {rng.randrange(n_rows), *(row for row in range(n_rows) if rng.random() < density)}
            mixed = nth % 3 == 0
            values = [
                (rng.choice(SHIFTING) if mixed else shifting).replace(b"%d", b"%d" % row) if row in bad else number(row)
                for row in range(n_rows)
            ]
            column, left = reader.read_column(Payloads.of(pa.array(values, pa.binary())))
            rows, read = column.field("row").to_pylist(), np.flatnonzero(~left).tolist()
            assert not bad & set(read), (shifting, sorted(bad & set(read))[:3])
            assert all(rows[row] == row and column.field("x")[row].as_py() == row + 0.5 for row in read)


def test_white_space_and_line_breaks_within_and_around_a_document_do_not_matter() -> None:
    values = [
        b'{\n  "row": 0,\n  "x": 0.5\n}',
        b'{"row":1,"x":1.5}\n',
        b'\r\n\t {"row":2,"x":2.5} \r\n',
        json.dumps({"x": 3.5, "row": 3, "y": {"z": [{"a": None}]}}, indent=2).encode(),
        b'{"row":4, "y":{"a":1} ,"x":4.5 }',
    ]
    column, left = reader_of(NUMBERED).read_column(Payloads.of(pa.array(values, pa.binary())))
    assert not left.any()
    assert column.to_pylist() == [{"row": row, "x": row + 0.5} for row in range(5)]


def test_payloads_with_gaps_and_nulls_between_them_are_read() -> None:
    values = [None if row % 7 == 3 else b"\0\0\0\0\x05" * (row % 2) + number(row) for row in range(1_000)]
    found = read_column(Json(), NUMBERED, pa.array(values, pa.binary()).slice(10, 900))
    assert found.reasons == {}
    assert [row and row["row"] for row in found.column.to_pylist()] == [
        None if row % 7 == 3 else row for row in range(10, 910)
    ]


@pytest.mark.parametrize(
    "bad", [b'{"row":%d,"x":1', b'{"row":%d,"x":"1"}', b'{"row":%d.0}', b'{"row":%d}{}', b'{"row":%d,"y":"\xff"}']
)
def test_bad_values_cost_time_in_proportion_to_the_rows(monkeypatch: pytest.MonkeyPatch, bad: bytes) -> None:
    parsed = calls = 0
    parse = document_blocks.Block.parse

    def counted(block: Any, first: int, last: int, schema: Any) -> Any:
        nonlocal parsed, calls
        calls += 1
        try:
            found = parse(block, first, last, schema)
        except document_blocks.BlockError as error:
            parsed += (last if error.row is None else error.row) - first  # the parser stops there
            raise
        parsed += last - first
        return found

    monkeypatch.setattr(document_blocks.Block, "parse", counted)
    reader, n_rows = reader_of(NUMBERED), 20_000
    for every in (1, 2, 63, 200, 5_000):
        parsed = calls = 0
        values = [bad.replace(b"%d", b"%d" % row) if row % every == 0 else number(row) for row in range(n_rows)]
        column, left = reader.read_column(Payloads.of(pa.array(values, pa.binary())))
        assert left[::every].all()
        assert [column.field("row")[row].as_py() for row in np.flatnonzero(~left).tolist()] == np.flatnonzero(
            ~left
        ).tolist()
        assert parsed < 8 * n_rows and calls < n_rows / 15, (every, parsed, calls)
        if every == 5_000:
            assert left.sum() < n_rows / 20


def test_few_bytes_that_stand_for_many_fields_are_an_error() -> None:
    wide = pa.struct([(f"f{nth}", pa.int64()) for nth in range(500)])
    reader = reader_of(pa.struct([("items", pa.list_(wide))]))
    bomb = b'{"items":[' + b"{}," * 100_000 + b"{}]}"
    values = [b'{"items":[{"f1":1}]}', bomb, b'{"items":[{"f2":1}]}']
    column, left = reader.read_column(Payloads.of(pa.array(values, pa.binary())))
    assert left[1]
    with pytest.raises(DecodeError, match="more than"):
        reader.read_one(bomb)
    assert left[0] or column[0].as_py()["items"][0]["f1"] == 1


def test_null_where_the_type_has_not_null_is_left() -> None:
    required = pa.field("item", pa.int64(), nullable=False)
    column_type = pa.struct([pa.field("a", pa.struct([required])), pa.field("b", pa.list_(required))])
    values = [b'{"a":{"item":1},"b":[1]}', b'{"a":{}}', b'{"b":[null]}', b'{"a":null}', b"x", b'{"a":{"item":2}}']
    column, left = reader_of(column_type).read_column(Payloads.of(pa.array(values, pa.binary())))
    assert column.type == column_type
    assert left[[1, 2, 4]].all()


@pytest.mark.parametrize(
    ("precision", "scale", "text"),
    [
        (38, 18, "731950777395587397853"),
        (38, 18, "-731950777395587397853"),
        (38, 18, '"731950777395587397853"'),
        (38, 18, "1104306384689565522944100.073"),
        (38, 10, "616046739561341199236585413584"),
        (38, 10, "2.27757811669222590540654e34"),
        (38, 10, "-2.27757811669222590540654E+34"),
        (38, 38, "4524442"),
        (9, 2, "4.1085e-37"),
        (9, 2, "0." + "0" * 60 + "1"),
    ],
)
def test_a_decimal_that_overflows_128_bits_is_not_read_as_another_number(precision: int, scale: int, text: str) -> None:
    decimal = pa.decimal128(precision, scale)
    column_type = pa.struct([("x", decimal), ("y", pa.list_(pa.struct([("z", decimal)])))])
    for value in (b'{"x":%s}', b'{"x": %s}', b'{"y":[{"z":%s}]}', b'{"x":null,"y":[{"z": %s }]}'):
        _, left = reader_of(column_type).read_column(Payloads.of(pa.array([value % text.encode()], pa.binary())))
        assert left.all(), value


def test_identifiers_beside_decimals_are_no_numbers_with_exponents() -> None:
    column_type = pa.struct([("id", pa.string()), ("x", pa.decimal128(38, 18))])
    values = [
        b'{"id":"%s","x":1.5}' % text
        for text in (b"12e4567-9e45-12e4", b"a12e4", b"12e45f", b"1e-a", b"20260301123000", b"x 1.5e")
    ]
    _, left = reader_of(column_type).read_column(Payloads.of(pa.array(values, pa.binary())))
    assert not left.any()


@pytest.mark.parametrize("bad", [b'"many"', b"99999999999", b"1.5"])
def test_rows_with_values_of_another_type_are_left_and_their_neighbours_are_not(bad: bytes) -> None:
    """Of one percent of such values, whose blocks would else be read row by row."""
    kind = pa.struct([("n", pa.int32()), ("of", pa.struct([("a", pa.string())]))])
    rows = [b'{"n": %b, "of": {"a": "x"}}' % (bad if n % 100 == 7 else b"%d" % n) for n in range(2000)]
    _, left = json_reader(kind).read_column(Payloads.of(pa.array(rows, pa.binary())))
    assert np.flatnonzero(left).tolist() == list(range(7, 2000, 100))
