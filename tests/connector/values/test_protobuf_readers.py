"""Which message a Protobuf value is, and by whose schema it is read: the reader's, the writer's, or the only one there is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.errors import OptionError
from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.converter import Converter, read_column
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.framing import encode_frame, encode_message_indexes
from pykafka_wire.values.registry.schemas import WriterSchema
from tests.connector.values.scripted_registry import scripted_registry

OLD = """syntax = "proto3"; package shop; message Note { string text = 1; }
message Order { int64 id = 1; string land = 2; string gone = 4; message Line { int32 n = 1; } repeated Line lines = 3; }"""
#: A field renamed, one removed, one added; another message before it.
NEW = """syntax = "proto3"; package shop; message Extra { int32 a = 1; } message Note { string text = 1; }
message Order { int64 id = 1; string country = 2; message Line { int32 n = 1; int32 price = 2; } repeated Line lines = 3;
  optional double discount = 5; }"""
ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("country", pa.string()),
        ("lines", pa.list_(pa.struct([("n", pa.int32()), ("price", pa.int32())]))),
        ("discount", pa.float64()),
    ]
)
CONTENT = b"\x08\x07\x12\x02DE\x1a\x02\x08\x05\x22\x01x"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    texts = {1: OLD, 2: NEW}
    responses: Any = {f"/schemas/ids/{n}": {"schemaType": "PROTOBUF", "schema": text} for n, text in texts.items()}
    with scripted_registry(responses) as url:
        yield Registry(url)


def schema(text: str) -> Schema:
    return Schema(kind="PROTOBUF", text=text)


def framed(schema_id: int, indexes: tuple[int, ...], content: bytes = CONTENT) -> bytes:
    return encode_frame(schema_id, encode_message_indexes(indexes) + content)


def test_with_a_readers_schema_field_numbers_decide_and_not_names(registry: Registry) -> None:
    value_format = Protobuf(registry=registry, reader_schema=schema(NEW), message="shop.Order")
    assert value_format.column_type() == ORDER
    order = {"id": 7, "country": "DE", "lines": [{"n": 5, "price": 0}], "discount": None}
    rows = pa.array(
        [framed(1, (1,)), framed(2, (2,)), framed(1, (0,)), None, framed(1, (9,)), framed(9, (1,))], pa.binary()
    )
    found = read_column(value_format, ORDER, rows)
    assert found.column.to_pylist() == [order, order, None, None, None, None]
    assert found.reasons[2] == "it is a message shop.Note, and shop.Order is read"
    assert found.reasons[4] == "its schema has no message with the indexes (9,)"
    assert sorted(found.reasons) == [2, 4, 5]


def test_without_a_readers_schema_each_value_is_read_by_its_own(registry: Registry) -> None:
    rows = pa.array([framed(1, (1,)), framed(2, (2,)), framed(1, (1, 0), b"\x08\x03")], pa.binary())
    wanted = pa.struct([("id", pa.int64()), ("country", pa.string()), ("land", pa.string()), ("n", pa.int32())])
    assert Converter(format=Protobuf(registry=registry), type=wanted)(rows).to_pylist() == [
        {"id": 7, "country": None, "land": "DE", "n": None},
        {"id": 7, "country": "DE", "land": None, "n": None},
        {"id": None, "country": None, "land": None, "n": 3},
    ]


def test_without_a_registry_values_have_no_frame() -> None:
    value_format = Protobuf(registry=None, reader_schema=schema(NEW), message="Order")
    found = read_column(value_format, value_format.column_type(), pa.array([CONTENT, b"", b"\x08"], pa.binary()))
    assert [each and each["id"] for each in found.column.to_pylist()] == [7, 0, None]
    assert found.reasons == {2: "it is not what its schema says (DecodeError)"}
    nested = Protobuf(registry=None, reader_schema=schema(NEW), message="Order.Line")
    assert nested.column_type() == pa.struct([("n", pa.int32()), ("price", pa.int32())])
    with pytest.raises(OptionError, match="no message Bill"):
        Protobuf(registry=None, reader_schema=schema(NEW), message="Bill").column_type()


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("message M { map<string, int32> counts = 1; message Line { int32 n = 1; } message Next {} }", (0, 0)),
        (
            "message M { map<string, int32> a = 1; map<string, M> b = 2; message N {} message Line { int32 n = 1; } }",
            (0, 1),
        ),
        # As Confluent's registry shows what came to it as a descriptor: the entries are written out, and counted.
        (
            "message M { repeated AEntry a = 1; message AEntry { option map_entry = true; string key = 1; int32 value = 2; } "
            "message Line { int32 n = 1; } }",
            (0, 1),
        ),
    ],
)
def test_message_indexes_count_what_the_text_declares(text: str, indexes: tuple[int, ...]) -> None:
    written = schema(f'syntax = "proto3"; {text}')
    assert Protobuf(registry=None, reader_schema=written, message="M.Line").message_indexes() == indexes
    with scripted_registry({"/schemas/ids/1": {"schemaType": "PROTOBUF", "schema": written.text}}) as url:
        value_format = Protobuf(registry=Registry(url))
        beyond = (0, 7)
        rows = pa.array([framed(1, indexes, b"\x08\x03"), framed(1, beyond, b"\x08\x03")], pa.binary())
        found = read_column(value_format, pa.struct([("n", pa.int32())]), rows)
    assert found.column.to_pylist() == [{"n": 3}, None]
    assert found.reasons == {1: "its schema has no message with the indexes (0, 7)"}


def test_message_indexes_do_not_count_groups_of_a_text() -> None:
    text = "message M { optional group G = 1 { message Inner {} } message Line { optional int32 n = 1; } } message N {}"
    text += " message O { extensions 9; } extend O { optional group Far = 9 {} } message P {}"
    for message, indexes in (("M.Line", (0, 0)), ("P", (3,))):
        value_format = Protobuf(registry=None, reader_schema=schema(f'syntax = "proto2"; {text}'), message=message)
        assert value_format.message_indexes() == indexes


def test_values_are_written_behind_the_frame_and_read_again(registry: Registry) -> None:
    rows = pa.array([{"id": 1, "country": "FR", "lines": [{"n": 1, "price": 2}], "discount": 0.0}, None], ORDER)
    writer = WriterSchema(schema_id=2, schema=schema(NEW))
    framed_rows = Converter(format=Protobuf(registry=registry, writer=writer, message="Order"), type=None)(rows)
    assert framed_rows[0].as_py().startswith(framed(2, (2,), b"\x08\x01"))
    assert Converter(format=Protobuf(registry=registry), type=ORDER)(framed_rows).to_pylist() == rows.to_pylist()
    plain = WriterSchema(schema_id=None, schema=schema(NEW))
    plain_rows = Converter(format=Protobuf(registry=None, writer=plain, message="Order"), type=None)(rows)
    assert plain_rows[0].as_py() == framed_rows[0].as_py()[len(framed(2, (2,), b"")) :]


def test_what_is_read_one_by_one_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct a = 1; int32 b = 2; }'
    value_format = Protobuf(registry=None, reader_schema=schema(text))
    rows = pa.array([b"", b"\x0a\x00", b"\x10\x05"], pa.binary())
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            found = read_column(value_format, value_format.column_type(), rows).column.to_pylist()
            assert found == [{"a": None, "b": 0}, {"a": "{}", "b": 0}, {"a": None, "b": 5}]
            read_column(value_format, pa.struct([("b", pa.string())]), rows)
    assert [each.getMessage() for each in caplog.records if "one by one" in each.message] == [
        "Protobuf messages M in which these are set are read one by one, not in columns: a",
        "Protobuf messages M are read one by one, not in columns: b is read as string, which is not the type of the field M.b",
    ]
