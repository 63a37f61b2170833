"""Avro written in columns: fastavro reads it back, on random schemas and values; what fits, and how what does not is reported."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import pickle
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pykafka_wire.errors import EncodeError, SchemaError
from pykafka_wire.values.avro.column_writer import column_writer
from pykafka_wire.values.avro.schema import ParsedSchema, kind_of, parse
from pykafka_wire.values.avro.types import arrow_type, column_branches, member_name, widest
from pykafka_wire.values.bulk.writing import SegmentWriter
from tests.connector.values.avro_samples import UTC, Samples

#: `make conformance-values` tries 20,000.
N_SCHEMAS = int(os.environ.get("CONFORMANCE_VALUES", "150"))


def writer(schema: Any, column_type: pa.DataType, prefix: bytes = b"") -> SegmentWriter:
    return column_writer(parse(json.dumps(schema)), column_type, prefix)


def written(schema: Any, column: Any) -> list[bytes | None]:
    found = writer(schema, column.type).write(column)
    found.validate(full=True)
    assert found.type == pa.binary()
    return list(found.to_pylist())


def by_fastavro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def without_times(schema: Any) -> Any:
    """A schema in which only decimals are logical types: the numbers that stand for times are compared."""
    if isinstance(schema, list):
        return [without_times(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_kept = schema.get("logicalType") == "decimal"
    return {name: without_times(each) for name, each in schema.items() if is_kept or name != "logicalType"}


def reasons_of(schema: Any, column: Any) -> dict[int, str]:
    with pytest.raises(EncodeError) as error:
        writer(schema, column.type).write(column)
    return error.value.reasons


def refusal(schema: Any, column_type: pa.DataType) -> str:
    with pytest.raises(SchemaError) as error:
        writer(schema, column_type)
    return error.value.message


def row_of(schema: Any, value: Any, parsed: ParsedSchema) -> Any:
    """A value of fastavro's as a column of ``arrow_type(schema)`` has it: unions of several branches are structs."""
    schema = parsed.definition(schema)
    kind = kind_of(schema)
    if kind == "union":
        branches = [parsed.definition(each) for each in schema]
        if value is None:
            return None
        _, branch, inner = value
        columns = column_branches(branches)
        found = row_of(branches[branch], inner, parsed)
        return found if widest(columns) else {member_name(columns.index(branches[branch])): found}
    if kind == "record":
        return {each["name"]: row_of(each["type"], value[each["name"]], parsed) for each in schema["fields"]}
    if kind == "array":
        return [row_of(schema["items"], each, parsed) for each in value]
    if kind == "map":
        return [(key, row_of(schema["values"], each, parsed)) for key, each in value.items()]
    return value


class WritableSamples(Samples):
    """Values in which a union's branch stands beside its value: ``("branch", index, value)``."""

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            branch = self.random.randrange(len(schema))
            return None if schema[branch] == "null" else ("branch", branch, super().value(schema[branch]))
        return super().value(schema)


def plain(value: Any) -> Any:
    """A value of :class:`WritableSamples` without the branches."""
    if isinstance(value, tuple):
        return plain(value[2])
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("first", range(0, N_SCHEMAS, max(1, N_SCHEMAS // 8)))
def test_fastavro_reads_what_was_written_on_random_schemas(first: int) -> None:
    for seed in range(first, min(first + max(1, N_SCHEMAS // 8), N_SCHEMAS)):
        samples = WritableSamples(seed)
        schema, _ = samples.record()
        parsed = parse(json.dumps(schema))
        column_type = arrow_type(parsed)
        values = [samples.value(schema) for _ in range(samples.random.choice([1, 3, 40]))]
        rows = [row_of(schema, value, parsed) for value in values]
        places = sorted(samples.random.sample(range(len(rows) + 1), 1))
        for place in places:
            rows.insert(place, None)  # a tombstone
        column = pa.concat_arrays([pa.nulls(2, column_type), pa.array(rows, column_type)]).slice(2)
        found = column_writer(parsed, column_type, b"frame").write(column).to_pylist()
        assert [place for place, value in enumerate(found) if value is None] == places
        reader = fastavro.parse_schema(without_times(schema))
        present = [value for value in found if value is not None]
        for value, content in zip(values, present, strict=True):
            assert content.startswith(b"frame")
            stream = io.BytesIO(content[5:])
            read = fastavro.schemaless_reader(stream, reader)
            assert stream.read() == b"", seed
            expected = fastavro.schemaless_reader(io.BytesIO(by_fastavro(schema, plain(value))), reader)
            assert repr(read) == repr(expected), (seed, schema)


INTEGERS = [0, -1, 1, 63, 64, -64, -65, 127, 128, 8191, 8192, -8193, 2**31 - 1, -(2**31)]
LONGS = [
    *INTEGERS,
    *(sign * 2**bits + more for bits in range(27, 63) for sign in (1, -1) for more in (-1, 0)),
    2**63 - 1,
    -(2**63),
]


@pytest.mark.parametrize(
    "numbers",
    [LONGS, LONGS[::-1], LONGS[:14], [2**62, -(2**62)], [2**63 - 1], [-(2**63)], [2**55, -(2**55) - 1], [5], []],
)
def test_every_size_of_a_number(numbers: list[int]) -> None:
    assert written("long", pa.array(numbers, pa.int64())) == [by_fastavro("long", each) for each in numbers]


def test_neighbours_of_every_size_do_not_overwrite_each_other() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": f"f{n}", "type": kind}
            for n, kind in enumerate(["boolean", "long", "int", "long", "float", "long"])
        ],
    }
    rows = [
        {
            "f0": nth % 2 == 0,
            "f1": LONGS[nth % len(LONGS)],
            "f2": INTEGERS[nth % len(INTEGERS)],
            "f3": nth,
            "f4": 0.5,
            "f5": -each,
        }
        for nth, each in enumerate(LONGS[:-1] * 3)
    ]
    column = pa.array(rows, arrow_type(parse(json.dumps(schema))))
    assert written(schema, column) == [by_fastavro(schema, row) for row in rows]


DECIMALS = [
    Decimal(0),
    *(
        sign * Decimal(2**bits + more).scaleb(-2)
        for bits in range(0, 120, 4)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ),
    *(Decimal(-(2**bits)).scaleb(-2) for bits in range(7, 120, 8)),
]


@pytest.mark.parametrize("size", [None, 16, 17, 24, 33])
def test_decimals_of_every_size(size: int | None) -> None:
    schema: dict[str, Any] = {"logicalType": "decimal", "precision": 38, "scale": 2}
    schema |= {"type": "bytes"} if size is None else {"type": "fixed", "name": "F", "size": size}
    with decimal.localcontext(prec=60):
        column = pa.array(DECIMALS, pa.decimal128(38, 2))
        numbers = [int(each.scaleb(2)) for each in DECIMALS]
    # As Java's BigInteger.toByteArray writes them; fastavro takes a byte more for -128.
    min_sizes = [(each if each >= 0 else ~each).bit_length() // 8 + 1 for each in numbers]
    expected = [each.to_bytes(size or n, "big", signed=True) for each, n in zip(numbers, min_sizes, strict=True)]
    assert written(schema, column) == (expected if size else [bytes([2 * len(each)]) + each for each in expected])


def test_a_decimal_changes_its_scale_where_that_is_exact() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    column = pa.array([Decimal("1.5000"), None, Decimal("-999.9900")], pa.decimal128(9, 4))
    assert written(["null", schema], column) == [b"\x02\x04\x00\x96", None, b"\x02\x06\xfe\x79\x61"]
    wrong = pa.array(
        [Decimal("1.0000"), Decimal("1.0050"), Decimal("2.0000"), Decimal("1000.0000")], pa.decimal128(9, 4)
    )
    assert reasons_of(schema, wrong) == {
        1: "a number that DECIMAL(5,2) cannot hold exactly",
        3: "a number that DECIMAL(5,2) cannot hold exactly",
    }


AT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("logical", "expected"),
    [
        ("timestamp-millis", -1),  # rounded down, as by to_avro
        ("timestamp-micros", -1),
        ("timestamp-nanos", -1000),
        ("local-timestamp-millis", -1),
        ("local-timestamp-micros", -1),
        (None, -1),  # milliseconds, as by to_avro
    ],
)
@pytest.mark.parametrize("zone", ["UTC", None])
def test_timestamps(logical: str | None, expected: int, zone: str | None) -> None:
    schema = {"type": "long", "logicalType": logical} if logical else "long"
    column = pa.array([AT if zone else AT.replace(tzinfo=None)], pa.timestamp("us", tz=zone))
    assert written(schema, column) == [by_fastavro("long", expected)]


@pytest.mark.parametrize(
    ("schema", "column", "expected"),
    [
        ({"type": "int", "logicalType": "date"}, pa.array([datetime.date(1969, 12, 31)]), b"\x01"),
        ("int", pa.array([7], pa.int64()), b"\x0e"),
        ("int", pa.array([-7], pa.int8()), b"\x0d"),
        ("double", pa.array([1], pa.int32()), b"\0\0\0\0\0\0\xf0\x3f"),
        ("double", pa.array([1.5], pa.float32()), b"\0\0\0\0\0\0\xf8\x3f"),
        ({"type": "long", "logicalType": "time-micros"}, pa.array([1_000_001_000], pa.time64("ns")), b"\x82\x89\x7a"),
        ({"type": "int", "logicalType": "time-millis"}, pa.array([1_000_999_999], pa.time64("ns")), b"\xd0\x0f"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"ab"], pa.large_binary()), b"ab"),
        ("string", pa.array(["é"], pa.large_string()), b"\x04\xc3\xa9"),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            pa.array(["00000000-0000-0000-0000-000000000102"]),
            bytes(14) + b"\x01\x02",
        ),
        (["int", "null"], pa.array([1], pa.int32()), b"\x00\x02"),
        (["null", "int", "long"], pa.array([1], pa.int64()), b"\x04\x02"),
        (["null", "int", "long"], pa.array([1], pa.int32()), b"\x02\x02"),
        (["null", "int", "long"], pa.array([3_000_000_000], pa.uint32()), b"\x04\x80\xf8\x82\xad\x16"),
        (["float", "double"], pa.array([1.0], pa.float64()), b"\x02\0\0\0\0\0\0\xf0\x3f"),
        (["int", "string", "null"], pa.array(["a"]), b"\x02\x02a"),
        (["string"], pa.array(["a"]), b"\x00\x02a"),
        ({"type": "array", "items": "int"}, pa.array([[]], pa.list_(pa.int32())), b"\x00"),
        (
            {"type": "array", "items": ["null", "int"]},
            pa.array([[1, None]], pa.list_(pa.int32())),
            b"\x04\x02\x02\x00\x00",
        ),
        (
            {"type": "map", "values": "int"},
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
            b"\x02\x02a\x02\x00",
        ),
        ({"type": "record", "name": "R", "fields": []}, pa.array([{}], pa.struct([])), b""),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, (str, dict, list)) else "",
)
def test_a_column_of_each_type(schema: Any, column: Any, expected: bytes) -> None:
    assert written(schema, column) == [expected]


RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "Pieces",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Piece", "fields": [{"name": "price", "type": "int"}]},
            },
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}, "default": "NEW"},
    ],
}
PIECES = pa.list_(pa.struct([("price", pa.int64())]))
ORDER = pa.struct([("id", pa.int64()), ("pieces", PIECES), ("state", pa.string())])


def test_a_nullable_field_may_be_missing_and_names_match_in_any_case() -> None:
    column = pa.array([{"id": 1, "pieces": [{"price": 2}], "state": "SENT"}], ORDER)
    assert written(RECORD, column) == [b"\x02\x00\x02\x04\x00\x02"]


def test_every_row_that_does_not_fit_is_named_with_its_field() -> None:
    good = {"id": 1, "pieces": [{"price": 2}], "state": "NEW"}
    rows = [
        good,
        {**good, "id": None},
        None,
        {**good, "id": 2**31},
        {**good, "pieces": [{"price": 1}, {"price": -(2**31) - 1}]},
        {**good, "pieces": [None]},
        {**good, "pieces": None},
        {**good, "state": "GONE"},
        {**good, "pieces": [], "state": None},
        good,
    ]
    assert reasons_of(RECORD, pa.array(rows, ORDER)) == {
        1: "id: null, which the schema does not allow",
        3: "id: a number that 32 bits cannot hold",
        4: "Pieces[].price: a number that 32 bits cannot hold",
        5: "Pieces[]: null, which the schema does not allow",
        6: "Pieces: null, which the schema does not allow",
        7: "state: text that is not a symbol of the schema's enum",
        8: "state: null, which the schema does not allow",
    }


def test_rows_are_counted_over_groups_and_within_nullable_records() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", RECORD]}]}
    good = {"a": {"id": 1, "pieces": [], "state": "NEW"}}
    rows = [None, {"a": None}, good] * 11_000
    rows[-1] = {"a": {"id": 1, "pieces": [{"price": 2**40}], "state": "NEW"}}
    assert reasons_of(schema, pa.array(rows, pa.struct([("a", ORDER)]))) == {
        32_999: "a.Pieces[].price: a number that 32 bits cannot hold"
    }


@pytest.mark.parametrize(
    ("schema", "column", "reason"),
    [
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"abc"]), "not 2 bytes, the size of the schema's fixed"),
        (
            ["int", "string"],
            pa.array(
                [{"member0": None, "member1": None}], pa.struct([("member0", pa.int32()), ("member1", pa.string())])
            ),
            "null, which the schema's union does not have",
        ),
        (
            ["null", "int", "string"],
            pa.array(
                [{"member0": 1, "member1": "lost"}, {"member0": None, "member1": "kept"}, None],
                pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
            ),
            "several branches of one union are set",
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            pa.array([2**62], pa.timestamp("us")),
            "a number that 64 bits cannot hold",
        ),
        ("int", pa.array([3_000_000_000, 2**31 - 1], pa.uint32()), "a number that 32 bits cannot hold"),
        (["null", "int"], pa.array([2**31, None], pa.uint32()), "a number that 32 bits cannot hold"),
        ("int", pa.array([-(2**31) - 1], pa.int64()), "a number that 32 bits cannot hold"),
        (
            {"type": "int", "logicalType": "time-millis"},
            pa.array([2_147_484, 2_147_483], pa.time32("s")),
            "a number that 32 bits cannot hold",
        ),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pa.array(["x"]), "text that is not a uuid"),
    ],
)
def test_what_a_value_does_not_fit(schema: Any, column: Any, reason: str) -> None:
    assert reasons_of(schema, column) == {0: reason}


def not_utf8(n: int) -> Any:
    """A StringArray as Spark may have it: "a", bytes that are not UTF-8, "b" and so on."""
    return pa.array([(b"a", b"\xff", b"b")[nth % 3] for nth in range(n)], pa.binary()).view(pa.string())


def test_text_that_is_not_utf8_is_named_by_its_row() -> None:
    assert reasons_of("string", not_utf8(3)) == {1: "text that is not UTF-8"}
    texts = not_utf8(3)
    optional = pa.StructArray.from_arrays([texts, pa.array([1, 2, 3])], ["text", "id"])
    schema = record_of("R", text=["null", "string"], id="long")
    assert reasons_of(schema, optional) == {1: "text: text that is not UTF-8"}
    items = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), texts)
    assert reasons_of({"type": "array", "items": "string"}, items) == {0: "[]: text that is not UTF-8"}
    keys = pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), texts, pa.array([1, 2, 3]))
    assert reasons_of({"type": "map", "values": "long"}, keys) == {1: "key: text that is not UTF-8"}
    assert reasons_of({"type": "enum", "name": "E", "symbols": ["a", "b"]}, texts).keys() == {1}
    uuids = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    assert reasons_of(uuids, texts).keys() == {0, 1, 2}
    # Bytes under a null are not looked at.
    hidden = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), *texts.buffers()[1:]])
    assert written(["null", "string"], hidden) == [b"\2\2a", None, b"\2\2b"]


def record_of(name: str, **types: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in types.items()]}


def test_a_decimal_finds_its_branch_beside_any_other() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    column = pa.array([Decimal("2.56"), None], pa.decimal128(9, 2))
    others = ["string", "int", {"type": "fixed", "name": "F", "size": 2}, {"type": "array", "items": "int"}]
    assert written(["null", *others, price], column) == [b"\x0a\4\1\0", None]
    assert "make it one of the union's types" in refusal(["null", "string", price], pa.decimal128(9, 3))


def test_a_fixed_that_no_decimal_needs_is_refused() -> None:
    def decimal_of(size: int) -> Any:
        return {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": 9, "scale": 2}

    for size in (129, 2**31 - 1):
        assert f"fixed decimal(9,2) of {size} bytes" in refusal(decimal_of(size), pa.decimal128(9, 2))
    assert written(decimal_of(128), pa.array([Decimal("-2.56")], pa.decimal128(9, 2))) == [b"\xff" * 127 + b"\0"]


@pytest.mark.parametrize(
    ("schema", "column_type", "text"),
    [
        (
            "int",
            pa.string(),
            "the column is STRING and the schema's type is int: cast the column, or change the schema",
        ),
        ("float", pa.float64(), "the column is DOUBLE and the schema's type is float"),
        ("float", pa.int32(), "the column is INT and the schema's type is float"),
        ("string", pa.binary(), "the column is BINARY and the schema's type is string"),
        ("long", pa.date32(), "the column is DATE and the schema's type is long"),
        (
            {"type": "long", "logicalType": "time-micros"},
            pa.timestamp("us"),
            "TIMESTAMP_NTZ and the schema's type is long time-micros",
        ),
        (
            ["int", "string"],
            pa.bool_(),
            "make it one of the union's types, or a struct of member_int: int, member_string: string",
        ),
        (RECORD, pa.string(), "make it a struct of the record's fields, as in struct(id, note, Pieces, state)"),
        (
            RECORD,
            pa.struct([("id", pa.int32()), ("state", pa.string())]),
            "field Pieces (array) is missing in the column, and the schema allows no null",
        ),
        (
            RECORD,
            pa.struct([*ORDER, ("staet", pa.string())]),
            "field staet is not in the schema, whose record shop.Order has id, note, Pieces, state",
        ),
        (
            RECORD,
            pa.struct([*ORDER, ("ID", pa.int32())]),
            "fields id and ID are both the schema's field id: drop one of them",
        ),
        (
            RECORD,
            pa.struct(
                [("id", pa.int32()), ("Pieces", pa.list_(pa.struct([("price", pa.string())]))), ("state", pa.string())]
            ),
            "field Pieces[].price is STRING and the schema's type is int",
        ),
    ],
)
def test_a_column_that_a_schema_cannot_hold_is_refused_with_the_way_out(
    schema: Any, column_type: pa.DataType, text: str
) -> None:
    assert text in refusal(schema, column_type)


def test_all_fields_that_do_not_fit_are_named_up_to_five() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "int"} for n in range(7)]}
    text = refusal(schema, pa.struct([(f"f{n}", pa.string()) for n in range(7)]))
    assert text.count("cast the column") == 5
    assert text.endswith("; and 2 more.")


def test_a_writer_is_pickled() -> None:
    made = pickle.loads(pickle.dumps(writer(RECORD, ORDER, b"x")))
    assert made.write(pa.array([{"id": 1, "pieces": [], "state": "NEW"}], ORDER)).to_pylist() == [b"x\x02\x00\x00\x00"]


def test_a_recursive_schema_is_written_as_deep_as_the_column_goes() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    column_type = pa.struct([("n", pa.int32()), ("next", pa.struct([("n", pa.int32())]))])
    column = pa.array([{"n": 1, "next": {"n": 2}}, {"n": 3, "next": None}], column_type)
    assert written(schema, column) == [b"\x02\x02\x04\x00", b"\x06\x00"]


def test_many_items_are_joined_as_few_are() -> None:
    schema = {"type": "array", "items": ["null", "string"]}
    rows = [[None, "é", ""] * 9_000] * 3  # more items than are put in order by their places
    column = pa.array(rows, pa.list_(pa.string()))
    assert written(schema, column) == [by_fastavro(schema, row) for row in rows]
