"""Flat JSON objects read by the layout of their producer, beside the row by row reader: any types, values and damages."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.json import column_reader, flat_objects
from pykafka_wire.values.json.flat_objects import ObjectLayout, UnreadableError, are_plain, layout_of, read_flat
from pykafka_wire.values.json.format import Json
from tests.connector.values.json_samples import SCALARS, JsonSamples
from tests.connector.values.test_json_columns import SHIFTING, compare, number, reader_of

ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("paid", pa.bool_()),
    ]
)
#: Types of which a wrong value leaves its own row only.
SIMPLE = [pa.bool_(), pa.int8(), pa.int64(), pa.string()]
#: Values of members that no column has.
SKIPPED = ('"}{"', '"a, b: 1"', "null", "1.50", "-0", "true", '""', '"ä"')


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_objects, "_MIN_ROWS", 1)


def payloads(values: list[bytes]) -> Payloads:
    return Payloads.of(pa.array(values, pa.binary()))


def order(row: int, **more: Any) -> bytes:
    values = {"id": row, "name": f"n{row}", "amount": row / 4, "price": row / 4, "at": "2026-03-01T12:30:00Z"}
    return json.dumps({**values, "paid": row % 2 == 0, **more}, separators=(",", ":")).encode()


def flat(values: list[bytes], column_type: pa.DataType = ORDER) -> list[bool]:
    """Which values are read by a layout, which must be the first one's; their columns are as the row by row reader's."""
    types = {field.name: field.type for field in column_type}
    layout = layout_of(payloads(values[:1]), np.arange(1), types)
    assert layout is not None
    read = are_plain(payloads(values))
    _, unread = read_flat(payloads(values).take(np.flatnonzero(read)), layout)
    read[read] = ~unread
    compare(column_type, values)
    return read.tolist()  # type: ignore[no-any-return]


def damaged(rng: random.Random, value: bytes) -> bytes:
    """With a byte more, less or other."""
    at = rng.randrange(len(value))
    return (
        value[:at]
        + rng.choice((b"", b"}", b"{", b'"', b",", b":", b" ", b"0", b"-", b"e", b".", b"\\", b"\n"))
        + (value[at + rng.randrange(2) :])
    )


def producer(samples: JsonSamples, column_type: pa.DataType) -> list[bytes]:
    """Documents with the same members in one order, but for those that are null."""
    rng = samples.random
    members = [(field.name, field.type) for field in column_type if rng.random() < 0.9]
    members += [("skipped", None), ("sk", None)][: rng.randrange(3)]
    rng.shuffle(members)
    separator, colon = rng.choice(((",", ":"), (", ", ": "), (",", ": ")))
    leaves_out = rng.random() < 0.5
    found = []
    for _ in range(rng.choice((5, 60, 300))):
        written = []
        for name, kind in members:
            value = rng.choice(SKIPPED) if kind is None else samples._text(kind, 0.0)
            if value != "null" or not leaves_out:
                written.append(json.dumps(name, ensure_ascii=False) + colon + value)
        found.append(("{" + separator.join(written) + "}").encode())
    return found


@pytest.mark.parametrize(("damage", "kinds"), [(0.0, SCALARS), (0.03, SCALARS), (0.03, SIMPLE)])
def test_documents_of_one_producer_are_read_as_the_row_by_row_reader_reads_them(
    monkeypatch: pytest.MonkeyPatch, damage: float, kinds: list[pa.DataType]
) -> None:
    n_flat = n_all = 0
    read = column_reader.FlatReader.read

    def counted(self: Any, documents: Payloads, rows: Any) -> Any:
        nonlocal n_flat
        parts, left = read(self, documents, rows)
        n_flat += len(rows) - len(left)
        return parts, left

    monkeypatch.setattr(column_reader.FlatReader, "read", counted)
    for seed in range(40):
        samples = JsonSamples(seed)
        names = samples.random.sample(["id", "a", "B", "b", "näme", "x y", "items", "null", "a name of 17 bytes"], 5)
        column_type = pa.struct([(name, samples.random.choice(kinds)) for name in names])
        values = [
            damaged(samples.random, value) if samples.random.random() < damage else value
            for value in producer(samples, column_type)
        ]
        compare(column_type, values)
        n_all += len(values)
    assert n_flat > (n_all / 6 if kinds is SIMPLE or not damage else 0), (n_flat, n_all)


def test_members_that_are_null_missing_or_of_no_column_do_not_end_a_layout() -> None:
    values = [
        order(0, extra="x", more=1.5),
        order(1, name=None, extra=None),
        order(2, paid=None, more=-0.5e-7),
        b'{"id":3,"extra":"","more":0}',
        b'{"id":4}',
        b'{"id":null,"amount":null,"more":null}',
    ]
    assert flat(values) == [True] * 6
    column, left = reader_of(ORDER).read_column(payloads(values))
    assert not left.any()
    assert column.field("id").to_pylist() == [0, 1, 2, 3, 4, None]
    assert column.field("name").to_pylist() == ["n0", None, "n2", None, None, None]
    assert column.field("paid").to_pylist() == [True, False, None, None, None, None]


@pytest.mark.parametrize("space", [(",", ":"), (", ", ": "), (",", ": ")])
def test_the_white_space_of_a_producer_is_a_part_of_its_layout(space: tuple[str, str]) -> None:
    values = [json.dumps({"id": row, "name": "a"}, separators=space).encode() for row in range(5)]
    assert flat([*values, b'{"id":1 ,"name":"a"}', b'{ "id":1}', b'{"id":1}\n']) == [True] * 5 + [False] * 3


def test_a_document_with_another_layout_is_left() -> None:
    others = [
        b'{"name":"a","id":1}',
        b'{"id":1,"id":2,"name":"a"}',
        b'{"id":1,"name":"a","new":1}',
        b'{"id":1,"name":"a\\n"}',
        b'{"id":1,"name":"a\tb"}',
        b'{"id":1,"name":["a"]}',
        b'{"id":1,"name":1}',
        b'{"id":"1","name":"a"}',
        b'{"id":1,"amount":{"x":1}}',
        b'{"Id":1}',
        b'{"id" :1}',
        b'{"id":1,}',
        b'{,"id":1}',
        b'{"id":1,"name":"a"',
        b'{"id":1,"name":"a}',
        b'{"id":1,"name":"a"}}',
        b'{"id":1"name":"a"}',
        b'{"id":1,,"name":"a"}',
        b'{"id":1,"paid":tru}',
        b'{"id":1,"paid":truefalse}',
        b'{"id":1,"paid":nul}',
        b'{"id":,"name":"a"}',
        b'{"id":1,"name":nulls}',
        b"{}",
    ]
    read = flat([order(0), *others, order(1)])
    assert read == [True, *[False] * len(others), True]


def test_text_that_is_not_utf_8_is_not_read_by_a_layout() -> None:
    for text in (b"\xff", b"\xed\xa0\x80", b"\xc3"):
        values = [order(0), b'{"id":1,"name":"' + text + b'"}']
        with pytest.raises(UnreadableError):
            flat(values)
        compare(ORDER, values)
    assert flat([order(0), '{"id":1,"name":"ä😀"}'.encode()]) == [True, True]


NUMBERS = (
    "0", "-0", "1", "-1", "10", "01", "-01", "00", "+1", "1.", ".5", "-.5", "1.5", "-1.50", "01.5", "1.e5", "1e5", "1E5", "1e+5",
    "1e-5", "1e", "1e+", "e5", "1.5e3", "1..5", "1.5.5", "--1", "1-", "1-2", "0x1F", "0x", "1f", "1_0", "1 ", " 1", "NaN", "nan",
    "-NaN", "Inf", "inf", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "127", "128", "-128", "-129", "32768", "2147483648",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "16777217", "9007199254740993",
    "0.1", "0.30000000000000004", "123456789012345678901234567890.123456789", "99999999.99", "9999999.999", "1.10", "-", "",
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), None]
)
def test_numbers_are_those_of_the_row_by_row_reader(kind: pa.DataType | None) -> None:
    """Each alone between two that are fine, and all of them together; ``None`` for a member that no column has."""
    column_type = pa.struct([("row", pa.int64()), ("x" if kind else "y", kind or pa.int64())])

    def documents(texts: list[str]) -> list[bytes]:
        return [b'{"row":%d,"x":%s}' % (row, text.encode()) for row, text in enumerate(["1", *texts, "2"])]

    for text in NUMBERS:
        compare(column_type, documents([text]))
    compare(column_type, documents(list(NUMBERS)))
    reader = reader_of(column_type)
    for text in ("01", "+1", "1.", ".5", "1.e5", "0x1F", "inf", "nan", "", "-", "1-2"):
        _, left = reader.read_column(payloads(documents([text])))
        assert left[1], text


def test_a_value_that_is_empty_hides_no_number_in_base_16() -> None:
    column_type = pa.struct([("x", pa.int64())])
    values = [b'{"x":1}', b'{"x":}', b'{"x":-1}', b'{"x":0x10}', b'{"x":2}']
    assert flat(values, column_type) == [True, False, True, False, True]


@pytest.mark.parametrize(
    "kind", [pa.decimal128(9, 2), pa.decimal128(38, 10), pa.decimal128(38, 0), pa.decimal128(38, 38)]
)
def test_decimals_that_overflow_128_bits_are_not_read_as_other_numbers(kind: pa.DataType) -> None:
    rng = random.Random(38)
    texts = ["9" * 400, "0." + "0" * 60 + "1", "0.5", "1e34", "1e-50", "619577.630e34", "-0." + "1" * 38, "1" * 28]
    texts += [str(rng.randrange(10**38))[: rng.randrange(1, 39)] for _ in range(30)]
    texts += [f"{rng.randrange(10**25)}.{rng.randrange(10**40)}"[-rng.randrange(4, 50) :] for _ in range(30)]
    column_type = pa.struct([("row", pa.int64()), ("x", kind)])
    for text in texts:
        reader = column_reader.FlatReader(reader_of(column_type).plan)
        values = [b'{"row":1,"x":null}', b'{"row":2,"x":%s}' % text.encode()]
        parts, left = reader.read(payloads(values), np.arange(2))
        if 1 not in left:
            assert parts[-1][1][-1].as_py() == reader_of(column_type).read_one(values[1]), text


def test_a_name_that_looks_like_the_end_of_a_document_is_not_found_in_two_of_them() -> None:
    column_type = pa.struct([("a", pa.int64()), ("x}{y", pa.string())])
    whole = b'{"a":1,"x}{y":"s"}'
    values = [whole, whole, b'{"a":1,"x}', b'{y":"text, which is longer"}', whole]
    assert layout_of(payloads(values), np.arange(5), {field.name: field.type for field in column_type}) is None
    compare(column_type, values)


def test_a_few_other_documents_do_not_decide_how_all_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_reader, "_MAX_ROWS", 100)
    compared: list[int] = []
    read = flat_objects.read_flat

    def counted(documents: Payloads, layout: ObjectLayout) -> Any:
        compared.append(len(layout.members))
        return read(documents, layout)

    monkeypatch.setattr(flat_objects, "read_flat", counted)
    many = b"{" + b",".join(b'"f%d":1' % nth for nth in range(50)) + b"}"
    long = b'{"' + b"n" * 10_000 + b'":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}'
    richer = order(1, more=1.5)
    column, left = reader_of(ORDER).read_column(payloads([many, long, richer, *map(order, range(3, 300))]))
    assert not left.any()
    assert column.field("id").to_pylist() == [None, None, *range(1, 2), *range(3, 300)]
    assert compared == [7, 7, 7]

    compared.clear()
    other = b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}'
    column, left = reader_of(ORDER).read_column(payloads([other, *map(order, range(1, 300))]))
    assert column.field("id").to_pylist() == [None, *range(1, 300)] and not left.any()
    assert compared == [7, 6, 6, 6]


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-03-01T12:30:00Z", "2026-03-01T12:30:00+01:00"],
        ["2026-03-01T12:30:00", "2026-03-01 12:30:00.123456"],
        ["2026-03-01T12:30:00Z", "2026-03-01T12:30:00"],
        ["2026-03-01T12:30:00Z", "2026-3-1", "yesterday", ""],
    ],
)
def test_timestamps_with_and_without_zones_are_those_of_the_row_by_row_reader(texts: list[str]) -> None:
    for column_type in (pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()):
        values = [json.dumps({"row": row, "x": texts[row % len(texts)]}).encode() for row in range(20)]
        compare(pa.struct([("row", pa.int64()), ("x", column_type)]), values)


def test_no_document_shifts_the_rows_after_it() -> None:
    """Each row that is read has its own number; each other one is left, whatever stands in its place."""
    reader = reader_of(pa.struct([("row", pa.int64()), ("x", pa.float64())]))
    rng = random.Random(16)
    for density in (0.01, 0.3):
        values, bad = [], set()
        for row in range(3_000):
            if rng.random() < density:
                bad.add(row)
                values.append(rng.choice(SHIFTING).replace(b"%d", b"%d" % row))
            else:
                values.append(number(row))
        column, left = reader.read_column(payloads(values))
        assert set(np.flatnonzero(left).tolist()) >= bad
        for row in np.flatnonzero(~left).tolist():
            assert column[row].as_py() == {"row": row, "x": row + 0.5}


def test_documents_behind_frames_are_read_by_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_reader.JsonReader, "_in_blocks", None)
    values = [b"\0\0\0\x80\xff" * (row % 2) + order(row) for row in range(50)]
    found = read_column(Json(), ORDER, pa.array(values, pa.binary()))
    assert found.reasons == {}
    assert found.column.field("id").to_pylist() == list(range(50))


def test_documents_of_several_producers_come_back_in_order() -> None:
    def document(row: int) -> bytes:
        if row % 3 == 0:
            return b'{"id":%d,"name":"a"}' % row
        return b'{"name": "b", "id": %d}' % row if row % 3 == 1 else b'{"x":{},"id":%d}' % row

    column, left = reader_of(ORDER).read_column(payloads([document(row) for row in range(2_000)]))
    assert not left.any()
    assert column.field("id").to_pylist() == list(range(2_000))
    assert column.field("name").to_pylist() == [("a", "b", None)[row % 3] for row in range(2_000)]


def test_a_field_that_must_not_be_null_is_not_read_where_it_is() -> None:
    column_type = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    _, left = reader_of(column_type).read_column(
        payloads([b'{"id":1,"name":"a"}', b'{"id":null,"name":"a"}', b'{"id":2}'])
    )
    assert left[1]


def test_damaged_values_do_not_keep_the_others_from_being_read_by_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[int] = []
    in_blocks = column_reader.JsonReader._in_blocks

    def counted(self: Any, documents: Payloads, whole: Any) -> Any:
        blocks.append(len(documents))
        return in_blocks(self, documents, whole)

    monkeypatch.setattr(column_reader.JsonReader, "_in_blocks", counted)
    values = [order(row) if row % 100 else b'{"id":"no number"}' for row in range(10_000)]
    column, left = reader_of(ORDER).read_column(payloads(values))
    assert blocks == [100]
    assert np.flatnonzero(left).tolist() == list(range(0, 10_000, 100))
    assert column.field("id")[1:100].to_pylist() == list(range(1, 100))
