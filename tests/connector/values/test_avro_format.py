"""The format Avro: with a registry and without, readers' schemas with references, several schemas in one column, what is logged."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.errors import OptionError, SchemaError
from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import Converter, read_column
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.registered_schema import Reference
from pykafka_wire.values.registry.schemas import WriterSchema
from tests.conformance.avro_cases import long
from tests.connector.values.scripted_registry import scripted_registry

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")


def record(name: str, *fields: tuple[str, Any]) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}
    )


OLD = record("Order", ("id", "int"), ("note", "string"))
NEW = record("Order", ("extra", "double"), ("number", "long"), ("item", "shop.Item"))
ITEM = record("shop.Item", ("sku", "string"))
READ = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "number", "type": "long", "aliases": ["id"]},
            {"name": "item", "type": ["null", "shop.Item"], "default": None},
        ],
    }
)
REFERENCE = Reference(name="shop.Item", subject="item", version=1)
TEXT = b"\x04hi"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    references = [{"name": "shop.Item", "subject": "item", "version": 1}]
    responses: dict[str, Any] = {
        "/schemas/ids/1": {"schema": OLD},
        "/schemas/ids/2": {"schema": NEW, "references": references},
        f"/schemas/guids/{GUID}": {"schema": OLD},
        "/subjects/item/versions/1": {"schema": ITEM},
    }
    with scripted_registry(responses) as url:
        yield Registry(url)


def test_values_without_a_frame_are_of_the_schema_that_is_given() -> None:
    value_format = Avro(reader_schema=OLD)
    assert value_format.column_type() == pa.struct([("id", pa.int32()), ("note", pa.string())])
    rows = pa.array([long(7) + TEXT, None, b"\0\0\0\0\1" + long(7) + TEXT], pa.binary())
    found = Converter(format=value_format, type=value_format.column_type(), on_error="divert")(rows).to_pylist()
    assert [row["value"] for row in found] == [{"id": 7, "note": "hi"}, None, None]
    assert "left over" in found[2]["error"]


def test_schemas_of_ids_and_guids_in_one_column_are_resolved_to_a_readers_schema_with_references(
    registry: Registry,
) -> None:
    read = Schema(kind="AVRO", text=READ, references=(REFERENCE,))
    value_format = Avro(registry=registry, reader_schema=read)
    old, new = long(7) + TEXT, bytes(8) + long(1 << 40) + TEXT
    rows = pa.array([encode_frame(1, old), encode_frame(2, new), None, old, encode_frame(1, old)] * 100, pa.binary())
    headers = pa.array([None, None, None, b"\1" + GUID.bytes, None] * 100, pa.binary())
    found = read_column(value_format, value_format.column_type(), rows, schema_headers=headers)
    assert not found.reasons
    first, second = {"number": 7, "item": None}, {"number": 1 << 40, "item": {"sku": "hi"}}
    assert found.column.to_pylist() == [first, second, None, first, first] * 100


def test_bytes_at_the_top_are_all_that_follows_a_frame() -> None:
    number = '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}'
    with scripted_registry(
        {
            "/schemas/ids/1": {"schema": number},
            "/schemas/ids/2": {"schema": '["null", "bytes"]'},
            "/schemas/ids/3": {"schema": '"bytes"'},
        }
    ) as url:
        registry = Registry(url)
        rows = [
            encode_frame(1, b"\1\0"),
            encode_frame(1, b"\xff"),
            None,
            encode_frame(2, b"\2\2\7"),
            encode_frame(1, b""),
        ]
        union = Converter(format=Avro(registry=registry), type=pa.binary())(pa.array(rows[3:4]))
        assert union.to_pylist() == [b"\7"]
        numbers = read_column(Avro(registry=registry), pa.decimal128(9, 2), pa.array(rows[:3] + rows[4:]))
        assert numbers.column.to_pylist() == [Decimal("2.56"), Decimal("-0.01"), None, None]
        assert list(numbers.reasons) == [3]
        # A reader's schema may have another type: string as promotion, or a union.
        for read, expected in (('"string"', ["ab", ""]), ('["null", "bytes"]', [b"ab", b""])):
            found = Converter(
                format=Avro(registry=Registry(url, timeout_s=9), reader_schema=read),
                type=pa.string() if read == '"string"' else pa.binary(),
            )
            for values in ([b"ab", b""], [b"ab", b""] * 100):
                rows = [encode_frame(3, each) for each in values]
                assert found(pa.array(rows)).to_pylist() == expected * (len(values) // 2)
        writer = WriterSchema(schema_id=1, schema=Schema(kind="AVRO", text=number))
        column = pa.array([Decimal("2.56"), None, Decimal("-0.01")], pa.decimal128(9, 2))
        written = Converter(format=Avro(registry=registry, writer=writer), type=None)(column)
        assert written.to_pylist() == [encode_frame(1, b"\1\0"), None, encode_frame(1, b"\xff")]
    # Without a frame the length is there, as the specification has it.
    plain = Avro(reader_schema=number, writer=WriterSchema(schema_id=None, schema=writer.schema))
    assert Converter(format=plain, type=None)(column).to_pylist() == [b"\4\1\0", None, b"\2\xff"]
    assert Converter(format=plain, type=column.type)(pa.array([b"\4\1\0", b"\2\xff"])).to_pylist() == [
        Decimal("2.56"),
        Decimal("-0.01"),
    ]


def test_a_schema_that_is_not_valid_is_an_error_of_the_option(registry: Registry) -> None:
    with pytest.raises(OptionError, match="reader_schema: its schema is not valid"):
        Avro(registry=registry, reader_schema='"unknown"')
    with pytest.raises(OptionError, match="without a registry need the schema"):
        Avro()
    with pytest.raises(OptionError, match=r"reader_schema: .*refer"):
        Avro(reader_schema=Schema(kind="AVRO", text=READ, references=(REFERENCE,)))
    tree = record("Tree", ("next", ["null", "Tree"]))
    with pytest.raises(SchemaError, match=r"the schema\.next is the record Tree again"):
        Avro(reader_schema=tree).column_type()


def test_what_is_not_read_in_columns_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    nulls = {"type": "array", "items": "null"}
    value_format = Avro(reader_schema=record("R", ("id", "long"), ("nulls", nulls)))
    rows = pa.array([long(7) + long(2) + b"\0"] * 3, pa.binary())
    with caplog.at_level(logging.INFO, "pykafka_wire.values"):
        for _ in range(3):
            found = Converter(format=value_format, type=value_format.column_type())(rows)
    assert found.to_pylist() == [{"id": 7, "nulls": [None, None]}] * 3
    messages = [each.getMessage() for each in caplog.records]
    assert len(messages) == 1
    assert "nulls are read one by one" in messages[0]


def test_unions_are_structs_of_their_members_or_of_those_that_are_wanted() -> None:
    value_format = Avro(reader_schema=record("R", ("u", ["null", "int", "string", {"type": "array", "items": "long"}])))
    rows = pa.array([b"\0", b"\2" + long(5), b"\4" + TEXT, b"\6" + long(1) + long(9) + b"\0"] * 10, pa.binary())
    found = Converter(format=value_format, type=value_format.column_type())(rows)
    none = {"member0": None, "member1": None, "member2": None}
    expected = [None, {**none, "member0": 5}, {**none, "member1": "hi"}, {**none, "member2": [9]}]
    assert [row["u"] for row in found.to_pylist()] == expected * 10
    wanted = pa.struct([("u", pa.struct([("member1", pa.string())]))])
    some = Converter(format=value_format, type=wanted)(rows).to_pylist()
    assert [row["u"] for row in some] == [each and {"member1": each["member1"]} for each in expected] * 10


@pytest.mark.parametrize(
    ("kind", "logical", "number", "column", "stored"),
    [
        ("long", "timestamp-millis", 1 << 52, pa.timestamp("us", "UTC"), (1 << 52) * 1000),
        ("long", "timestamp-micros", -(1 << 62), pa.timestamp("us", "UTC"), -(1 << 62)),
        ("long", "local-timestamp-nanos", -1_500, pa.timestamp("us"), -2),
        ("int", "date", 5_000_000, pa.date32(), 5_000_000),
        ("long", "time-micros", 86_399_999_999, pa.time64("ns"), 86_399_999_999_000),
        ("int", "time-millis", 86_399_999, pa.time64("ns"), 86_399_999_000_000),
        ("long", "time-micros", 7, pa.int64(), 7),
        ("long", "timestamp-millis", 7, pa.int64(), 7),
    ],
)
def test_times_keep_their_whole_range(kind: str, logical: str, number: int, column: Any, stored: int) -> None:
    value_format = Avro(reader_schema=json.dumps({"type": kind, "logicalType": logical}))
    reader = value_format.reader(None, column)
    values = pa.array([long(number)], pa.binary())
    found = Converter(format=value_format, type=column)(values)
    number_type = pa.int32() if column == pa.date32() else pa.int64()
    assert found.view(number_type).to_pylist() == [stored]
    assert pa.array([reader.read_one(long(number))], column).view(number_type).to_pylist() == [stored]


def test_a_reader_with_another_unit_or_scale_reads_what_was_meant() -> None:
    def field(name: str, kind: str, **logical: Any) -> tuple[str, Any]:
        return name, {"type": kind, **logical}

    written = record(
        "R",
        field("at", "long", logicalType="timestamp-millis"),
        field("price", "bytes", logicalType="decimal", precision=5, scale=1),
    )
    read = record(
        "R",
        field("at", "long", logicalType="timestamp-micros"),
        field("price", "bytes", logicalType="decimal", precision=7, scale=2),
    )
    with scripted_registry({"/schemas/ids/1": {"schema": written}}) as url:
        value_format = Avro(registry=Registry(url), reader_schema=read)
        rows = pa.array([encode_frame(1, long(7) + long(1) + b"\x0f")], pa.binary())
        (row,) = Converter(format=value_format, type=value_format.column_type())(rows)
    assert (row["at"].value, str(row["price"])) == (7_000, "1.50")
