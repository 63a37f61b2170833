"""Schemas that a registry should not hold: none runs code, names a file, ends a task, or takes memory that it must not."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pykafka_wire.errors import OptionError, RegistryError
from pykafka_wire.values import Registry, Schema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import Converter, Format, OnError
from pykafka_wire.values.json.format import JsonSchema
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.framing import encode_frame
from pykafka_wire.values.registry.rest import authorization
from tests.connector.values.scripted_registry import scripted_registry

TYPE = pa.struct([("id", pa.int64())])
PROTO = 'syntax = "proto3"; message M { int64 id = 1; }'
DEEP = 100_000
MAX_GROWTH_BYTES = 64 << 20


@pytest.fixture(scope="module")
def responses() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
def url(responses: dict[str, Any]) -> Iterator[str]:
    with scripted_registry(responses) as found:
        yield found


@pytest.fixture
def registry(url: str, responses: dict[str, Any]) -> Registry:
    """With no schema, and unlike all others before, so that nothing of theirs is in a cache."""
    responses.clear()
    registry.count += 1  # type: ignore[attr-defined]
    return Registry(url, timeout_s=5 + registry.count / 1000)  # type: ignore[attr-defined]


registry.count = 0  # type: ignore[attr-defined]


def schema(kind: str, text: str, references: Any = ()) -> dict[str, Any]:
    return {"schemaType": kind, "schema": text, "references": references}


def memory_bytes(field: str) -> int:
    return int(Path("/proc/self/status").read_text("ascii").partition(f"{field}:")[2].split()[0]) * 1024


def reference(name: str, subject: str = "other") -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


def error_of(value_format: Format, payload: bytes) -> str:
    """The reason for which a value under schema 1 is diverted; the row beside it keeps its place."""
    column = Converter(format=value_format, type=TYPE, on_error="divert")(
        pa.array([encode_frame(1, payload), None], pa.binary())
    )
    bad, missing = column.to_pylist()
    assert bad["value"] is None and missing == {"value": None, "error": None}
    assert len(bad["error"]) < 1_000
    return str(bad["error"])


@pytest.mark.parametrize(
    "name", ["grpc_tools.py", "grpc_tools/__init__.py", "google/protobuf/__init__.py", "json.py", "sitecustomize.py"]
)
def test_a_reference_that_is_named_as_a_module_runs_nowhere(
    name: str, registry: Registry, responses: dict[str, Any], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()"
    responses["/schemas/ids/1"] = schema("PROTOBUF", f'import "{name}"; {PROTO}', [reference(name)])
    responses["/subjects/other/versions/1"] = schema("PROTOBUF", code)
    error = error_of(Protobuf(registry=registry), b"\0\x08\x07")
    assert not ran.exists()
    assert "its schema is not valid" in error


@pytest.mark.parametrize("name", ["/etc/passwd", "../../x.proto", "a" * 5_000, ".", "", "x/", "con.proto", "a\nb", "/"])
def test_a_reference_may_have_any_name(name: str, registry: Registry, responses: dict[str, Any]) -> None:
    text = f'syntax = "proto3"; import {json.dumps(name)}; message M {{ N n = 1; int64 id = 2; }}'
    responses["/schemas/ids/1"] = schema("PROTOBUF", text.replace("\\u0000", "\\0"), [reference(name)])
    responses["/subjects/other/versions/1"] = schema("PROTOBUF", 'syntax = "proto3"; message N {}')
    value_format = Protobuf(registry=registry)
    (row,) = Converter(format=value_format, type=TYPE)(
        pa.array([encode_frame(1, b"\0\x10\x07")], pa.binary())
    ).to_pylist()
    assert row == {"id": 7}


def descriptor(**changes: Any) -> str:
    file = FileDescriptorProto(syntax="proto3", **changes)
    return base64.b64encode(file.SerializeToString()).decode()


BAD = {
    "protobuf that is not text of a schema": schema("PROTOBUF", "\0\1\2"),
    "protobuf nested too deep": schema("PROTOBUF", 'syntax = "proto3";' + "message M {" * DEEP),
    "a package of deep names": schema(
        "PROTOBUF", f'syntax = "proto3"; package {".".join("a" * 40_000)}; message M {{}}'
    ),
    "an enum's long names": schema(
        "PROTOBUF", f'syntax = "proto3"; enum E {{ {"A" * 100_000} = 0; }} message M {{ E e = 1; }}'
    ),
    "more text than a schema has": schema("PROTOBUF", 'syntax = "proto3"; ' + "message M {} " * 400_000),
    "an option nested deep": schema("PROTOBUF", f'syntax = "proto3"; option (x) = {"{" * DEEP}'),
    "many strings": schema("PROTOBUF", "option x = " + '""' * DEEP),
    "a descriptor without fields' types": schema("PROTOBUF", descriptor(message_type=[{"field": [{"name": "a"}]}])),
    "a descriptor with an odd name": schema("PROTOBUF", descriptor(message_type=[{"name": "a b"}])),
    "a descriptor with an import of itself": schema("PROTOBUF", descriptor(dependency=["the schema"])),
    "a reference to itself": schema("PROTOBUF", PROTO, [reference("a.proto", "self")]),
    "a reference that is missing": schema("AVRO", '"long"', [reference("a", "missing")]),
    "half of a surrogate pair as a name": schema("PROTOBUF", PROTO, [reference("\ud800", "\ud800")]),
    "a subject that is a step in a path": schema("AVRO", '"long"', [reference("a", "..")]),
    "references for ever": schema("AVRO", '"long"', [reference("0", "0")]),
    "avro that is not JSON": schema("AVRO", "{"),
    "avro nested deep": schema("AVRO", '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000),
    "avro nested deeper than JSON goes": schema("AVRO", "[" * DEEP),
    "avro that is a number": schema("AVRO", "5"),
    "avro of unhashable parts": schema("AVRO", '{"type":{"type":[]}}'),
    "avro with fields that are none": schema("AVRO", '{"type":"record","name":"a","fields":5}'),
    "avro with an unknown type": schema("AVRO", '{"type":"record","name":"a","fields":[{"name":"x","type":"y"}]}'),
    "avro with a huge fixed": schema("AVRO", '{"type":"fixed","name":"f","size":1000000000000}'),
    "avro with a negative fixed": schema("AVRO", '{"type":"fixed","name":"f","size":-5}'),
    "avro with a huge precision": schema(
        "AVRO", '{"type":"bytes","logicalType":"decimal","precision":1000000000000,"scale":1000000000}'
    ),
    "a JSON schema that is not JSON": schema("JSON", "{"),
    "a JSON schema nested deep": schema("JSON", '{"not":' * DEEP),
    "a JSON schema that is a list": schema("JSON", "[]"),
    "a JSON schema of a dialect that is none": schema("JSON", '{"$schema":[]}'),
    "a JSON schema of a wrong type": schema("JSON", '{"type":5}'),
    "a JSON schema that refers to itself": schema("JSON", '{"$ref":"#"}'),
    "a JSON schema with a pattern that is none": schema("JSON", '{"pattern":"("}'),
    "a JSON schema with a reference that is not JSON": schema("JSON", '{"$ref":"x"}', [reference("x", "text")]),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_schema_is_a_reason_to_divert(bad: dict[str, Any], registry: Registry, responses: dict[str, Any]) -> None:
    responses["/schemas/ids/1"] = bad
    responses["/subjects/self/versions/1"] = schema("PROTOBUF", PROTO, [reference("a.proto", "self")])
    responses["/subjects/text/versions/1"] = schema("JSON", "no JSON")
    for number in range(1_100):
        responses[f"/subjects/{number}/versions/1"] = schema(
            "AVRO", '"int"', [reference(f"{number + 1}", f"{number + 1}")]
        )
    value_format: Format = {"AVRO": Avro, "JSON": JsonSchema, "PROTOBUF": Protobuf}[bad["schemaType"]](
        registry=registry
    )
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_bytes("VmRSS")
    payload = (
        b'"x"' if bad["schemaType"] == "JSON" else b"\0\x08\x07" if bad["schemaType"] == "PROTOBUF" else b"\x02\x07"
    )
    if bad is BAD["a reference to itself"]:
        assert Converter(format=value_format, type=TYPE)(pa.array([encode_frame(1, payload)])).to_pylist() == [
            {"id": 7}
        ]
    else:
        assert "an unexpected" not in error_of(value_format, payload)
    assert memory_bytes("VmHWM") - before < MAX_GROWTH_BYTES


def test_values_of_a_type_of_many_parts_take_no_memory_for_each_part_and_piece(
    registry: Registry, responses: dict[str, Any]
) -> None:
    messages = [f"message M{n} {{ {' '.join(f'repeated M{n + 1} f{i} = {i};' for i in (1, 2, 3))} }}" for n in range(7)]
    text = (
        f"syntax = 'proto3'; {' '.join(messages)} message M7 {{ repeated int32 f1 = 1; int32 f2 = 2; int32 f3 = 3; }}"
    )
    responses["/schemas/ids/1"] = schema("PROTOBUF", text)
    reader_schema = Schema(kind="PROTOBUF", text=text)
    column_type = Protobuf(registry=registry, reader_schema=reader_schema).column_type()
    payloads = [b"", *(bytes([8 * (n % 3 + 1) | 2, 2, 8 * (n % 2 + 1) | 2, 0]) for n in range(90))]
    rows = pa.array([encode_frame(1, b"\0" + payload) for payload in payloads], pa.binary())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_bytes("VmRSS")
    found = Converter(format=Protobuf(registry=registry), type=column_type)(rows)
    assert memory_bytes("VmHWM") - before < MAX_GROWTH_BYTES
    assert [len(found.field(place).slice(n, 1).flatten()) for n in (0, 1, 2) for place in range(3)] == [
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        0,
    ]


@pytest.mark.parametrize("around", ["{}", '{{"type":"array","items":{}}}'])
@pytest.mark.parametrize(
    ("part", "column_type"),
    [
        *((f'{{"type":"fixed","name":"F","size":{size}}}', pa.binary()) for size in (-1, -5, 2**31, 2**70, 1.5)),
        ('{"type":"enum","name":"E","symbols":[]}', pa.string()),
        ('{"type":"enum","name":"E","symbols":["' + "A" * 1_001 + '"]}', pa.string()),
        ("[]", pa.string()),
    ],
)
@pytest.mark.parametrize("is_wanted", [True, False])
def test_an_avro_type_that_no_value_can_have_is_a_reason_to_divert(
    part: str, around: str, column_type: pa.DataType, is_wanted: bool, registry: Registry, responses: dict[str, Any]
) -> None:
    field = f'{{"name":"x","type":{around.format(part)}}}, {{"name":"id","type":"long"}}'
    responses["/schemas/ids/1"] = schema("AVRO", f'{{"type":"record","name":"R","fields":[{field}]}}')
    wanted = pa.struct([*([("x", column_type if around == "{}" else pa.list_(column_type))] * is_wanted), *TYPE])
    rows = pa.array([encode_frame(1, payload) for payload in (b"", b"\2", b"\2\2\0\2", b"abcdefgh")], pa.binary())
    column = Converter(format=Avro(registry=registry), type=wanted, on_error="divert")(rows)
    column.validate(full=True)
    for row in column.to_pylist():
        assert row["value"] is None
        assert "its schema" in row["error"]


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"[]",
        b"[" * DEEP,
        b"\xff",
        b'{"schema":5}',
        b'{"schemaType":"AVRO"}',
        b'{"schema":"x","references":5}',
        b'{"schema":"x","references":[{"name":"a","subject":"b","version":1e999}]}',
        b'{"schema":"x","references":[{"name":"a","subject":"b","version":"x"}]}',
        b'{"error_code":[]}',
    ],
)
def test_what_is_not_a_registrys_response_is_the_registrys_error(
    response: bytes, registry: Registry, responses: dict[str, Any]
) -> None:
    responses["/schemas/ids/1"] = response
    if response == b'{"schema":5}':  # the schema 5, which is not valid
        assert "its schema" in error_of(Avro(registry=registry), b"")
    else:
        with pytest.raises(RegistryError, match=r"127\.0\.0\.1"):
            error_of(Avro(registry=registry), b"")


@pytest.mark.parametrize("token", ["s3cret\nword", "s3cret\r", "s3cret€"])
def test_a_token_that_no_header_can_hold_is_the_registrys_error_and_is_not_shown(token: str, url: str) -> None:
    policies: tuple[OnError, ...] = ("fail", "null", "divert")
    for on_error in policies:
        with pytest.raises(RegistryError, match="the bearer token must be") as raised:
            Converter(format=Avro(registry=Registry(url, bearer_token=token)), type=TYPE, on_error=on_error)(
                pa.array([encode_frame(1, b"\2")], pa.binary())
            )
        assert "s3cret" not in str(raised.value)


def test_basic_auth_is_sent_as_utf_8() -> None:
    assert authorization(Registry("http://localhost", basic_auth="me:1€")) == {"authorization": "Basic bWU6MeKCrA=="}


@pytest.mark.parametrize(
    "bad", ["http://[::1", "http://localhost:99999", "http://localhost:x", "ftp://localhost", "http://"]
)
def test_an_address_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(OptionError, match="must be http://host:port"):
        Registry(bad)


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ("[1, 1.0]", False),
        ("[1, true]", True),
        ("[[1], [true]]", True),
        ('[{"a":1,"b":[2]}, {"b":[2.0],"a":1}]', False),
        ('[{"a":1}, {"a":null}, {}, [], ""]', True),
        (json.dumps([{"a": number} for number in range(20_000)]), True),
    ],
)
def test_unique_items_are_found_without_comparing_each_with_all_others(
    items: str, is_unique: bool, registry: Registry, responses: dict[str, Any]
) -> None:
    responses["/schemas/ids/1"] = schema("JSON", '{"uniqueItems": true}')
    began = time.process_time()
    (row,) = Converter(format=JsonSchema(registry=registry), type=pa.list_(pa.string()), on_error="divert")(
        pa.array([encode_frame(1, items.encode())], pa.binary())
    ).to_pylist()
    assert time.process_time() - began < 30  # 20,000 objects, each with each: a quarter of an hour
    assert (row["error"] is None) == is_unique


@pytest.mark.parametrize(
    ("rules", "good", "bad"),
    [
        ({"items": [{"type": "integer"}, {"type": "string"}]}, '[1, "a"]', "[1, 2]"),
        ({"dependencies": {"a": ["b"]}}, '{"a":1,"b":2}', '{"a":1}'),
        ({"$ref": "#/definitions/n", "minimum": 5, "definitions": {"n": {"type": "integer"}}}, "1", '"a"'),
    ],
)
def test_a_json_schema_that_names_no_draft_is_of_draft_7(
    rules: Any, good: str, bad: str, registry: Registry, responses: dict[str, Any]
) -> None:
    responses["/schemas/ids/1"] = schema("JSON", json.dumps(rules))
    converter = Converter(format=JsonSchema(registry=registry), type=pa.string(), on_error="divert")
    rows = pa.array([encode_frame(1, each.encode()) for each in (good, bad)], pa.binary())
    read, broken = converter(rows).to_pylist()
    assert read["error"] is None and "rule" in broken["error"]


PROTO2 = """syntax = "proto2"; message M { required int64 id = 1; optional string text = 2; repeated string texts = 3;
    map<string, string> map = 4; optional M inner = 5; optional bytes raw = 6; map<string, bytes> raws = 7;
    map<int32, M> inners = 8; }"""


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "required fields are missing: id"),
        (b"\x08\x07\x2a\x00", "required fields are missing: inner.id"),
        (b"\x08\x07\x12\x01\xff", "text in its field M.text is not UTF-8"),
        (b"\x08\x07\x1a\x01a\x1a\x01\xff", "text in its field M.texts is not UTF-8"),
        (b"\x08\x07\x22\x06\x0a\x01a\x12\x01\xff", "text in its field M.MapEntry.value is not UTF-8"),
        (b"\x08\x07\x2a\x05\x08\x07\x12\x01\xff", "text in its field M.text is not UTF-8"),
        (b"\x08\x07\x42\x09\x08\x01\x12\x05\x08\x07\x12\x01\xff", "text in its field M.text is not UTF-8"),
    ],
)
def test_proto2_values_that_the_library_lets_pass_are_refused(
    payload: bytes, reason: str, registry: Registry, responses: dict[str, Any]
) -> None:
    responses["/schemas/ids/1"] = schema("PROTOBUF", PROTO2)
    assert reason in error_of(Protobuf(registry=registry), b"\0" + payload)


def test_proto2_texts_and_bytes_are_read(registry: Registry, responses: dict[str, Any]) -> None:
    responses["/schemas/ids/1"] = schema("PROTOBUF", PROTO2)
    payload = b"\x08\x07\x12\x02\xc3\xa9\x32\x01\xff\x3a\x06\x0a\x01a\x12\x01\xff\x1a\x02\xc3\xa9\x42\x06\x08\x01\x12\x02\x08\x07"
    wanted = pa.struct([("text", pa.string()), ("raw", pa.binary()), ("raws", pa.map_(pa.string(), pa.binary()))])
    column = Converter(format=Protobuf(registry=registry), type=wanted)(pa.array([encode_frame(1, b"\0" + payload)]))
    assert column.to_pylist() == [{"text": "é", "raw": b"\xff", "raws": [("a", b"\xff")]}]


def test_a_map_with_boolean_keys_is_read(registry: Registry, responses: dict[str, Any]) -> None:
    responses["/schemas/ids/1"] = schema("PROTOBUF", 'syntax = "proto3"; message M { map<bool, int32> map = 1; }')
    wanted = pa.struct([("map", pa.map_(pa.bool_(), pa.int32()))])
    rows = pa.array([encode_frame(1, b"\0\x0a\x04\x08\x01\x10\x05\x0a\x04\x08\x00\x10\x06")], pa.binary())
    (row,) = Converter(format=Protobuf(registry=registry), type=wanted)(rows).to_pylist()
    assert dict(row["map"]) == {True: 5, False: 6}
