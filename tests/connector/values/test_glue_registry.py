"""AWS Glue's schema registry: its frames, and its API as botocore speaks it to a stub that holds all to AWS's published model."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import traceback
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from pykafka_wire import read_topic
from pykafka_wire.errors import DecodeError, MissingLibraryError, OptionError, RegistryError
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.local.jars import Coordinate, classpath, resolve
from pykafka_wire.local.java import ensure_java
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.sink.written_schema import look_up_encoding
from pykafka_wire.source.reader_schema import ReaderSchema
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.bulk.reading import ColumnTooLargeError
from pykafka_wire.values.converter import Converter, read_column
from pykafka_wire.values.json.format import Json, JsonSchema
from pykafka_wire.values.optional_libraries import library
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry import framing, glue
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import SchemaId, encode_frame, split_frames
from pykafka_wire.values.registry.registered_schema import Schema
from pykafka_wire.values.registry.schemas import WriterSchema, subject_of
from pykafka_wire.values.registry.settings import registry_of
from tests.connector.values.glue_stub import SECRET, URL, GlueStub, RefusedError, glue_stub, use_glue

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
NEWER = ORDER.replace('"fields": [', '"fields": [{"name": "note", "type": "string", "default": "-"}, ')
ID_TYPE = pa.struct([("id", pa.int64())])
#: In the order of their names: Basket, Order, Order.Line, Order.PricesEntry, which the map stands for, and Refund.
PROTO = """syntax = "proto3";
package shop;
message Refund { int64 id = 1; }
message Order {
  int64 id = 1;
  message Line { int64 id = 1; }
  map<string, int64> prices = 2;
}
message Basket { int64 id = 1; }
"""
LIBRARY = Coordinate("software.amazon.glue", "schema-registry-serde", "1.1.27")


@pytest.fixture(scope="module")
def server() -> Iterator[GlueStub]:
    """One for all tests: to make botocore's client takes half a second."""
    glue._client.cache_clear()  # a client keeps its endpoint
    with glue_stub() as found, pytest.MonkeyPatch.context() as patch:
        use_glue(found, patch)
        yield found
    glue._client.cache_clear()


@pytest.fixture
def stub(server: GlueStub) -> GlueStub:
    server.reset()
    return server


@pytest.fixture
def registry() -> Registry:
    return Registry(URL)


def read(value_format: Any, *rows: bytes | None, kind: pa.DataType = ID_TYPE) -> tuple[list[Any], dict[int, str]]:
    found = read_column(value_format, kind, pa.array(rows, pa.binary()))
    return found.column.to_pylist(), dict(found.reasons)


def written(value_format: Any, *rows: Any, kind: pa.DataType = ID_TYPE) -> list[bytes]:
    values: list[bytes] = Converter(format=value_format, type=None)(pa.array(rows, kind)).to_pylist()
    return values


def compressed(version: uuid.UUID, payload: bytes) -> bytes:
    return b"\3\5" + version.bytes + zlib.compress(payload)


VERSIONS = [uuid.UUID(int=number) for number in (0, 1, 1 << 64, 2**128 - 1)]


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=30),
            st.tuples(
                st.sampled_from(VERSIONS), st.binary(max_size=30), st.sampled_from(["plain", "zlib", "cut", "odd"])
            ),
        )
    ),
    st.sampled_from(["required glue", "known glue", "optional"]),
)
def test_frames_are_found_in_all_rows_at_once(values: list[Any], kind: Any) -> None:
    """Beside a plain reading of each value alone."""
    rows, expected = [], []
    for value in values:
        if isinstance(value, tuple):
            version, payload, how = value
            row = encode_frame(version, payload) if how == "plain" else compressed(version, payload)
            row = row[:-1] if how == "cut" else b"\3\7" + row[2:] if how == "odd" else row
            expected.append((version, payload) if how in ("plain", "zlib") else "reason")
        else:
            row = value
            has_frame = row is not None and len(row) >= 18 and row[0] == 3
            if has_frame:
                expected.append((uuid.UUID(bytes=row[2:18]), row[18:]) if row[1] == 0 else "reason")
            elif kind == "optional" and row is not None and len(row) >= 5 and row[0] == 0:
                expected.append((None, row[5:]))
            else:
                expected.append(None if row is None else (None, row) if kind != "required glue" else "reason")
        rows.append(row)
    found = split_frames(pa.array(rows, pa.binary()), kind)
    got: list[Any] = [None] * len(rows)
    for schema_id, index in found.groups:
        assert list(index) == sorted(index)
        for row in index.tolist():
            assert got[row] is None
            got[row] = (None if schema_id is None else schema_id.id, found.payloads[row])
    for row in found.reasons:
        assert got[row] is None
        got[row] = "reason"
    if kind == "optional":
        expected = [(None, each[1]) if isinstance(each, tuple) else each for each in expected]
    assert got == expected
    assert (found.payloads.ends[:-1] <= found.payloads.ends[1:]).all()


def test_the_numbers_of_messages_stand_before_protobufs_payloads() -> None:
    rows = [
        encode_frame(VERSIONS[1], b"\x02ab"),
        compressed(VERSIONS[1], b"\xac\x02c"),
        encode_frame(VERSIONS[1], b"\xff"),
    ]
    found = split_frames(pa.array(rows, pa.binary()), "required glue", has_message_indexes=True)
    groups = {schema_id: [found.payloads[row] for row in index.tolist()] for schema_id, index in found.groups}
    assert groups == {
        SchemaId(VERSIONS[1], message_number=2): [b"ab"],
        SchemaId(VERSIONS[1], message_number=300): [b"c"],
    }
    assert found.reasons == {2: "it ends within its message's number"}


def test_a_value_that_becomes_too_large_is_a_broken_value_and_many_are_read_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framing, "_MAX_DECOMPRESSED", 1 << 20)
    large, larger = (compressed(VERSIONS[1], bytes(size)) for size in (600 << 10, 1 << 21))
    assert len(larger) < 4_000
    found = split_frames(pa.array([larger, None], pa.binary()), "required glue")
    assert list(found.reasons) == [0] and "more than 1 MiB when decompressed" in found.reasons[0]
    assert len(split_frames(pa.array([large], pa.binary()), "required glue").groups) == 1
    with pytest.raises(ColumnTooLargeError, match="too large"):
        split_frames(pa.array([large, large], pa.binary()), "required glue")


def test_values_of_several_versions_are_read_with_one_request_each(stub: GlueStub, registry: Registry) -> None:
    old, new = stub.put("orders", "AVRO", ORDER), stub.put("orders", "AVRO", NEWER)
    rows = [encode_frame(old, b"\x0e"), compressed(new, b"\x02x\x10"), None, encode_frame(old, b"\x12")] * 3
    found, reasons = read(Avro(registry=registry, reader_schema=RegistryClient(registry).latest("orders")[1]), *rows)
    assert found == [{"id": 7}, {"id": 8}, None, {"id": 9}] * 3 and not reasons
    assert stub.asked == ["GetSchemaVersion"] * 3  # the newest, and one for each version


def test_what_cannot_be_read_names_why(stub: GlueStub, registry: Registry) -> None:
    good, json_schema, unknown = stub.put("orders", "AVRO", ORDER), stub.put("j", "JSON", "{}"), uuid.uuid4()
    rows = [
        encode_frame(good, b"\x02"), b"\3\0" + bytes(15), encode_frame(7, b"\x02"), b"\3\x01" + good.bytes,
        b"\3\5" + good.bytes + b"no zlib", compressed(good, b"\x02") + b"more", encode_frame(unknown, b""),
        encode_frame(json_schema, b"{}"), encode_frame(good, b"\x80"),
    ]  # fmt: skip
    found, reasons = read(Avro(registry=registry), *rows)
    assert found == [{"id": 1}] + [None] * 8
    for row, expected in enumerate(
        [
            "its 17 bytes do not begin with AWS Glue's byte 3",
            "its 6 bytes do not begin with AWS Glue's byte 3",
            "its compression, 1 in AWS Glue's frame, is neither 0 (none) nor 5 (zlib)",
            "is not compressed with zlib, or damaged",
            "does not end where zlib's data does",
            f"its schema with the version {unknown} in {URL}: the registry has no such schema",
            "is JSON and not AVRO",
            "it is shorter than its schema says",
        ],
        1,
    ):
        assert expected in reasons[row]


def test_subjects_are_the_topics_names(stub: GlueStub, registry: Registry) -> None:
    """As ``AWSSchemaNamingStrategyDefaultImpl`` has them, of keys, too."""
    assert {subject_of("TopicNameStrategy", "orders", name, registry=registry) for name in ("key", "value")} == {
        "orders"
    }
    for name in ("orders", "orders-shop.Order", "other"):
        stub.put(name, "AVRO", ORDER)
    assert RegistryClient(registry).subjects("orders") == ["orders", "orders-shop.Order"]
    assert stub.asked == ["ListSchemas"] * 3


def test_a_schema_is_registered_once(stub: GlueStub, registry: Registry) -> None:
    first = WriterSchema.of(registry, "AVRO", "orders", ORDER)
    assert stub.asked == ["GetSchemaByDefinition", "RegisterSchemaVersion", "CreateSchema", "GetSchemaVersion"]
    assert stub.compatibility == {"orders": "BACKWARD"}
    again, second = (WriterSchema.of(registry, "AVRO", "orders", text) for text in (ORDER, NEWER))
    assert again == first != second
    assert [each["text"] for each in stub.schemas["orders"]] == [ORDER, NEWER]
    assert WriterSchema.of(registry, "AVRO", "orders", None) == second
    assert RegistryClient(registry).lookup("orders", first.schema) == first.schema_id
    with pytest.raises(DecodeError, match="no such schema"):
        RegistryClient(registry).lookup("orders", Schema(kind="AVRO", text='"int"'))
    with pytest.raises(OptionError, match="no references"):
        RegistryClient(registry).register("orders", Schema(kind="AVRO", text=ORDER, references=(REFERENCE,)))


REFERENCE: Any = type("Reference", (), {"name": "other"})()


def test_two_that_make_a_schema_at_once_get_the_same(stub: GlueStub, registry: Registry) -> None:
    """The second is told that it exists already, though it was not there when it asked."""
    missing = [RefusedError("EntityNotFoundException", "not found") for _ in range(2)]
    version = stub.put("orders", "AVRO", ORDER)
    stub.refusals = missing
    assert WriterSchema.of(registry, "AVRO", "orders", NEWER).schema_id != version
    assert stub.asked[:4] == ["GetSchemaByDefinition", "RegisterSchemaVersion", "CreateSchema", "RegisterSchemaVersion"]


def test_a_version_is_used_when_it_is_available(
    stub: GlueStub, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glue, "_PAUSE_S", 0.01)
    stub.put("orders", "AVRO", ORDER)
    stub.status = "FAILURE"  # told after a look or two
    with pytest.raises(RegistryError, match=r"schema orders in .* is FAILURE, not AVAILABLE: it is not compatible"):
        RegistryClient(registry).register("orders", Schema(kind="AVRO", text=NEWER))
    with pytest.raises(RegistryError, match=r"the newest version of the schema orders in .* is FAILURE"):
        RegistryClient(registry).latest("orders")
    monkeypatch.setattr(glue, "_CHECK_S", 0)
    stub.schemas["orders"][-1]["status"] = "PENDING"
    with pytest.raises(RegistryError, match="is PENDING, not AVAILABLE: try again later"):
        RegistryClient(registry).lookup("orders", Schema(kind="AVRO", text=NEWER))


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        (
            "ThrottlingException",
            400,
            "does not respond .*ThrottlingException.*No value can be decoded until it responds",
        ),
        ("InternalServiceException", 500, "does not respond .*InternalServiceException"),
        ("AccessDeniedException", 400, "denies access .*AccessDeniedException: secret-free.*glue:GetSchemaVersion"),
        ("InvalidSignatureException", 403, r"denies access \(GetSchemaVersion: InvalidSignatureException\)"),
        ("InvalidInputException", 400, "refuses the request .*InvalidInputException"),
    ],
)
def test_what_aws_refuses_fails_the_query(
    stub: GlueStub, registry: Registry, monkeypatch: pytest.MonkeyPatch, code: str, status: int, expected: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # botocore's pauses
    message = f"canonical string with {SECRET}" if "Signature" in code else "secret-free"
    stub.refusals = [RefusedError(code, message, status)] * glue._MAX_ATTEMPTS
    with pytest.raises(RegistryError, match=expected) as raised:
        read(Avro(registry=registry), encode_frame(uuid.uuid4(), b""))
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert len(stub.asked) == (glue._MAX_ATTEMPTS if "does not respond" in expected else 1)


def test_throttled_requests_are_repeated(
    stub: GlueStub, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    version = stub.put("orders", "AVRO", ORDER)
    stub.refusals = [RefusedError("ThrottlingException", "Rate exceeded")] * 2
    with caplog.at_level("DEBUG"):
        assert RegistryClient(registry).by_id(version).text == ORDER
    assert stub.asked == ["GetSchemaVersion"] * 3
    assert SECRET not in caplog.text and "AWS4-HMAC-SHA256" not in caplog.text


def test_a_registry_that_is_not_there_is_named(stub: GlueStub, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Registry("glue://eu-west-1/nowhere")
    client = RegistryClient(other)
    for ask in (lambda: client.subjects("o"), lambda: client.register("o", Schema(kind="AVRO", text=ORDER))):
        with pytest.raises(
            RegistryError, match="no schema registry nowhere in eu-west-1: check the name and the region"
        ):
            ask()
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(RegistryError, match=r"glue://eu-west-1/nowhere does not respond .*Check the region eu-west-1"):
        RegistryClient(replace(other, timeout_s=2)).latest("orders")  # by a client of its own


def test_without_credentials_the_error_says_where_they_come_from(
    stub: GlueStub, registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(RegistryError, match=r"no credentials of AWS for the schema registry .*AWS_PROFILE"):
        RegistryClient(replace(registry, timeout_s=3)).latest("orders")  # by a client of its own


def test_what_is_missing_to_ask_is_named(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(
        MissingLibraryError, match=r"AWS Glue needs the module botocore.*pip install 'pykafka-wire\[aws\]'"
    ):
        RegistryClient(registry).latest("orders")
    library.cache_clear()


def test_options_that_mean_nothing_to_glue_are_refused() -> None:
    assert registry_of({"schema.registry.url": "glue://eu-west-1/shop"}) == Registry(URL)
    assert registry_of({"schema.registry.url": "glue://eu-west-1"}) is not None  # AWS's default registry
    for url in (
        "glue://",
        "glue:///shop",
        "glue://eu-west-1/a/b",
        "glue://eu-west-1/a,glue://eu-west-1/b",
        "glue://EU/a b",
    ):
        with pytest.raises(OptionError, match="must be glue://region/name"):
            Registry(url)
    for more in (
        {"basic.auth.user.info": "me:s3cret"},
        {"bearer.auth.token": "s3cret"},
        {"schema.registry.ssl.truststore.location": "/ca.pem"},
    ):
        with pytest.raises(
            OptionError, match="takes its credentials and its authorities from AWS's own settings"
        ) as raised:
            registry_of({"schema.registry.url": URL, **more})
        assert "s3cret" not in str(raised.value)
    with pytest.raises(OptionError, match=r"has no rules: remove rule\.executors"):
        registry_of({"schema.registry.url": URL, "rule.executors": "module:Class"})


def test_values_that_are_bytes_alone_have_their_lengths(stub: GlueStub, registry: Registry) -> None:
    """Unlike Confluent's serializers, Glue's follow Avro's specification."""
    value_format = Avro(registry=registry, writer=WriterSchema.of(registry, "AVRO", "raw", '"bytes"'))
    (value,) = written(value_format, b"abc", kind=pa.binary())
    assert value[18:] == b"\x06abc"
    assert read(value_format, value, kind=pa.binary()) == ([b"abc"], {})


def test_json_is_read_with_its_frame_by_each_format(stub: GlueStub, registry: Registry) -> None:
    value_format = JsonSchema(
        registry=registry, writer=WriterSchema.of(registry, "JSON", "clicks", '{"type": "object"}')
    )
    (value,) = written(value_format, {"id": 7})
    for each in (value_format, Json(registry=registry), Json()):
        assert read(each, value) == ([{"id": 7}], {})
    assert read(Json(registry=registry), value, b'{"id": 8}')[0] == [{"id": 7}, {"id": 8}]


@pytest.mark.parametrize("message", [None, "shop.Order", "shop.Order.Line", "Basket"])
def test_protobufs_messages_are_written_and_read_by_their_numbers(
    stub: GlueStub, registry: Registry, message: str | None
) -> None:
    writer = WriterSchema.of(registry, "PROTOBUF", "orders", PROTO)
    (value,) = written(Protobuf(registry=registry, writer=writer, message=message), {"id": 7})
    number = {None: 4, "shop.Order": 1, "shop.Order.Line": 2, "Basket": 0}[message]
    assert value[18:] == bytes((number, 8, 7))
    assert read(Protobuf(registry=registry), value) == ([{"id": 7}], {})
    one = Protobuf(registry=registry, reader_schema=writer.schema, message=message)
    assert read(one, value, encode_frame(uuid.UUID(bytes=value[2:18]), b"\3\x08\7"))[1] == {
        1: "its schema has no message with the number 3"  # which stands for the map's entries
    }


@pytest.mark.broker
def test_a_topic_is_written_and_read_by_its_options(stub: GlueStub, kafka: Any, topic: Any, outside: Any) -> None:
    """What a write's driver and tasks do, and then a bounded read: in this process, which has the stub's environment."""
    name = topic(1)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "schema.registry.url": URL, "valueFormat": "avro"}
    types = StructType().add("value", StructType().add("id", "long"))
    sink = parse_sink_options({**options, "topic": name, "schema.registry.auto.register": "true"})
    (batch,) = look_up_encoding(sink, types).encode(iter([pa.record_batch([pa.array([{"id": 7}])], ["value"])]), name)
    outside.produce(name, [outside.Record(value=each) for each in (*batch.column(0).to_pylist(), b"\3")])
    asked = {**options, "subscribe": name, "onValueError": "divert", "includeValueSchema": "true"}
    good, bad = read_topic(asked).read_all().to_pylist()
    ((version,),) = stub.schemas.values()
    assert (good["value"], good["valueSchemaId"], good["valueError"]) == ({"id": 7}, version["id"], None)
    assert (bad["value"], bad["valueSchemaId"]) == (None, None) and "AWS Glue's byte 3" in bad["valueError"]
    assert stub.schemas.keys() == {name}


def test_a_checkpoint_and_a_table_keep_the_version(stub: GlueStub, registry: Registry) -> None:
    version = stub.put("orders", "AVRO", ORDER)
    pinned = ReaderSchema(format="avro", schema_id=version, subject="orders")
    kept = ReaderSchema.from_json(json.loads(json.dumps(pinned.to_json())))
    assert kept == pinned and kept.column_type(registry) == ID_TYPE
    landed = Landed(query="q", micro_batch=1, topic="orders", topic_id="t", schema_id=version)
    assert Landed.from_json(landed.to_json()) == landed


class Java:
    """AWS's own serializers, in a process of their own, against the stub."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _answer(self, *parts: str) -> bytes:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(parts) + "\n")
        self._process.stdin.flush()
        found = self._process.stdout.readline().strip()
        assert found and not found.startswith("!"), found
        return base64.b64decode(found)

    def write(self, kind: str, topic: str, schema: str, value: bytes, *, compression: str, message: str = "-") -> bytes:
        schema_text, payload = (base64.b64encode(each).decode() for each in (schema.encode(), value))
        return self._answer("write", kind, compression, topic, message, schema_text, payload)

    def read(self, kind: str, value: bytes) -> bytes:
        return self._answer("read", kind, base64.b64encode(value).decode())


@pytest.fixture
def java(stub: GlueStub) -> Iterator[Java]:
    process = subprocess.Popen(
        [
            str(ensure_java().executable),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classpath(resolve(f"glue-serde-{LIBRARY.version}", [LIBRARY], transitive=True)),
            str(Path(__file__).parents[2] / "conformance" / "GlueSerde.java"),
            stub.url,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # slf4j has no logger
        text=True,
        encoding="utf-8",
    )
    yield Java(process)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


@pytest.mark.broker  # it needs Java and its libraries, as brokers do
@pytest.mark.long
def test_values_are_those_of_amazons_library(stub: GlueStub, registry: Registry, java: Java) -> None:
    """What it writes is read here, and what is written here is read by it, of each format, with and without compression."""
    writers: list[tuple[str, str, str, bytes, Any]] = [
        ("AVRO", ORDER, "-", b"\x0e", lambda writer: Avro(registry=registry, writer=writer)),
        ("JSON", '{"type":"object"}', "-", b'{"id":7}', lambda writer: JsonSchema(registry=registry, writer=writer)),
        *(
            ("PROTOBUF", PROTO, name, b"\x08\x07", _protobuf(registry, name))
            for name in ("shop.Refund", "shop.Order", "shop.Order.Line", "shop.Basket")
        ),
    ]
    for kind, schema, message, payload, made in writers:
        topic = f"{kind.lower()}-{message}"
        for compression in ("NONE", "ZLIB"):
            theirs = java.write(kind, topic, schema, payload, compression=compression, message=message)
            assert theirs[1] == (5 if compression == "ZLIB" else 0)
            reader = {"AVRO": Avro, "JSON": JsonSchema, "PROTOBUF": Protobuf}[kind](registry=registry)
            assert read(reader, theirs) == ([{"id": 7}], {}), message
        writer = WriterSchema.of(registry, kind, topic, None)
        (ours,) = written(made(writer), {"id": 7})
        assert ours == java.write(kind, topic, schema, payload, compression="NONE", message=message)
        named = f"{message}\n".encode() if kind == "PROTOBUF" else b""
        assert java.read(kind, ours) == named + payload
    assert stub.compatibility == dict.fromkeys(stub.schemas, "BACKWARD")


def _protobuf(registry: Registry, name: str) -> Callable[[WriterSchema], Protobuf]:
    return lambda writer: Protobuf(registry=registry, writer=writer, message=name)
