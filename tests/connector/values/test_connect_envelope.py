"""Documents in the envelope of Kafka Connect's converter: read in columns as they are read alone, and found by a plain oracle."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.errors import DecodeError, OptionError
from pykafka_wire.values.bulk.reading import Payloads
from pykafka_wire.values.json.column_reader import document_reader
from pykafka_wire.values.single_json.connect_envelope import is_connect_schema
from pykafka_wire.values.single_json.encodings import Encodings
from pykafka_wire.values.single_json.text import parse_json
from pykafka_wire.values.single_json.variant import variant_of

pytestmark = pytest.mark.unit

ROW: Final = pa.struct([("id", pa.int64()), ("type", pa.string())])
OF_CONNECT: Final = (
    {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "type", "type": "string"}]},
    {"type": "struct", "name": "é", "fields": [{"field": "id", "type": "int64"}]},
    {"type": "struct", "fields": []},
    {"type": "map", "keys": {"type": "string"}, "values": {"type": "array", "items": {"type": "float"}}},
    {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
)  # fmt: skip
#: The schemas that a column separates, and its type; payloads of other schemas have no place.
SEPARATED: Final = (None, *(json.dumps(schema) for schema in OF_CONNECT[:3]))
PARTS: Final = pa.struct(
    [("document", ROW), *((f"schema_{number}", pa.struct([("payload", ROW)])) for number in range(len(SEPARATED)))]
)
OF_OTHERS: Final = (
    {"type": "object"}, {"type": "struct"}, {}, {"type": None}, 5, [], "x", True, {"type": "array"}, {"type": ["int8"]},
    {"type": "struct", "fields": [{"type": "int64"}]}, {"type": "map", "keys": {"type": "string"}},
    {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "two"}},
    {"type": "int8", "parameters": 5},
)  # fmt: skip


def document(make: random.Random) -> bytes:
    row = {"id": make.randint(0, 99), "type": make.choice(("a", "é", 'b"}'))}
    content = make.choice((row, row, {}, None, {"payload": row, "schema": None}, {"id": "x"}))
    members: dict[str, Any] = {"schema": make.choice((None, *OF_CONNECT, *OF_OTHERS)), "payload": content}
    if make.random() < 0.5:
        members = {"schema": make.choice((None, OF_CONNECT[0])), "payload": row}
    kind = make.random()
    if kind < 0.2:
        members = {**row, **({"payload": content} if make.random() < 0.5 else {})}
    elif kind < 0.3:
        members = {**members, "more": 1}
    elif kind < 0.35:
        members = {"payload": content}
    if make.random() < 0.2:
        members = dict(make.sample(sorted(members.items()), len(members)))
    text = json.dumps(members, ensure_ascii=make.random() < 0.5, indent=make.choice((None, None, 1)))
    if make.random() < 0.1:
        text = text.replace('"schema"', r'"s\u0063hema"').replace('"payload"', r'"\u0070ayload"')
    if make.random() < 0.1:
        text = make.choice((" " * 40, "\ufeff", "\n")) + text + make.choice(("", " ", " x", "}"))
    return make.choice((text.encode(),) * 9 + (text.encode()[:-1],))


def enveloped(text: bytes) -> tuple[Any, Any] | None:
    """Return the schema and the payload of a document, both parsed; None without envelope."""
    try:
        parsed = parse_json(text)
    except DecodeError:
        return None
    if not isinstance(parsed, dict) or sorted(parsed) != ["payload", "schema"]:
        return None
    schema, payload = parsed["schema"], parsed["payload"]
    if schema == OF_CONNECT[2] and payload:  # a schema of nothing, and a payload of something
        return None
    return (schema, payload) if schema is None or schema in OF_CONNECT else None


def read(reader: Any, documents: list[bytes]) -> list[Any]:
    """Return what becomes of documents, an exception's text for those that cannot be read."""
    column, left = reader.read_column(Payloads.of(pa.array(documents, pa.binary())))
    values = column.to_pylist()
    for row in np.flatnonzero(left).tolist():
        values[row] = alone(reader, documents[row])
    return values


def alone(reader: Any, text: bytes) -> Any:
    try:
        return pa.array([reader.read_one(text)], reader_type(reader)).to_pylist()[0]
    except DecodeError as error:
        return str(error)


def reader_type(reader: Any) -> pa.DataType:
    return getattr(reader, "column_type", ROW)


@given(st.integers(0, 2**40))
def test_documents_are_read_by_themselves(seed: int) -> None:
    make = random.Random(seed)
    documents = [document(make) for _ in range(make.choice((1, 5, 200)))]
    plain = document_reader(ROW)
    unwrapped, separated = document_reader(ROW, envelope="unwrap"), document_reader(PARTS, schemas=SEPARATED)
    of_documents, of_parts = read(unwrapped, documents), read(separated, documents)
    nothing = dict.fromkeys(field.name for field in PARTS)
    for text, value, found in zip(documents, of_documents, of_parts, strict=True):
        parts = enveloped(text)
        if parts is None:
            wanted = alone(plain, text)
            assert value == wanted
            assert found == (wanted if isinstance(wanted, str) else nothing | {"document": wanted})
            continue
        schema, payload = parts
        wanted = alone(plain, json.dumps(payload).encode())
        assert value == ("its payload is null" if payload is None else wanted), text
        known = [None, *OF_CONNECT[:3]]
        if schema not in known:
            assert found == "the column has no field for its schema"
        elif isinstance(wanted, str):
            assert found == wanted
        else:
            assert found == nothing | {f"schema_{known.index(schema)}": {"payload": wanted}}


def test_schemas_of_connect() -> None:
    assert all(map(is_connect_schema, OF_CONNECT))
    assert not any(map(is_connect_schema, (*OF_OTHERS, None)))
    deep: dict[str, Any] = {"type": "int8"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    assert not is_connect_schema(deep)


def test_a_column_that_separates_documents_has_a_field_for_each_schema() -> None:
    part = pa.struct([("payload", ROW)])
    for wanted in (ROW, pa.string(), pa.struct([("document", ROW)]), pa.struct([("schema_0", ROW)]),
                   pa.struct([("schema_0", part), ("schema_1", part)])):  # fmt: skip
        with pytest.raises(OptionError, match="schema_0"):
            document_reader(wanted, schemas=(None,))
    reader = document_reader(pa.struct([("schema_0", part)]), schemas=(None,))
    assert read(reader, [b'{"id": 1}', b"oops", b'{"schema":null,"payload":{"id":1}}']) == [
        "the column has no field for its schema",
        alone(document_reader(ROW), b"oops"),
        {"schema_0": {"payload": {"id": 1, "type": None}}},
    ]


@given(
    st.decimals(allow_nan=False, allow_infinity=False)
    | st.sampled_from([Decimal("1E+400"), Decimal("-0.0"), Decimal("1e-500")])
)
def test_a_number_of_a_variant_keeps_its_digits_as_binary(number: Decimal) -> None:
    value = variant_of(number, "binary")["value"]
    assert value[0] in (0x20, 0x24, 0x28, 0x3C)
    if value[0] == 0x3C:  # bytes
        text = value[5:].decode()
        assert (Decimal(text), text.startswith("-")) == (number, number.is_signed())
        assert int.from_bytes(value[1:5], "little") == len(text)


def test_numbers_that_json_does_not_have_are_binary_in_a_nested_variant_too() -> None:
    metadata = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
    variant = pa.struct([pa.field("value", pa.binary(), nullable=False), metadata])
    column_type = pa.struct([("v", variant)])
    reader = document_reader(column_type, Encodings(variant_numbers="binary"))
    values = [reader.read_one(text)["v"]["value"] for text in (b'{"v": NaN}', b'{"v": 1e400}', b'{"v": -Infinity}')]
    assert [value[5:] for value in values] == [b"NaN", b"1E+400", b"-Infinity"]
    with pytest.raises(DecodeError):
        document_reader(column_type).read_one(b'{"v": 1e400}')
