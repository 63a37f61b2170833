"""Requests to a schema registry: TLS and credentials as it sees them, its faults, GUIDs, and how often it is asked."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from pykafka_wire.errors import ConnectorError, DecodeError, RegistryError
from pykafka_wire.local.cluster import free_ports
from pykafka_wire.values.avro.format import Avro
from pykafka_wire.values.converter import read_column
from pykafka_wire.values.protobuf.format import Protobuf
from pykafka_wire.values.registry.address import Registry
from pykafka_wire.values.registry.cache import cached
from pykafka_wire.values.registry.client import RegistryClient
from pykafka_wire.values.registry.framing import header_values
from pykafka_wire.values.registry.rest import NotARegistryError, environment_proxy
from pykafka_wire.values.registry.settings import registry_of
from tests.connector.values.registry_front import RegistryFront, Response, registry_front, schema_response
from tests.wire.secured import CLIENT_ID, CLIENT_SECRET, Issuer

ID_SCHEMA = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
ID_TYPE = pa.struct([("id", pa.int64())])


@pytest.fixture
def front() -> Iterator[RegistryFront]:
    with registry_front() as found:
        found.responses["/schemas/ids/7"] = schema_response(ID_SCHEMA)
        yield found


def registry(front: RegistryFront, **options: str) -> Registry:
    named = {name.replace("__", "."): text for name, text in options.items()}
    found = registry_of({"schema.registry.url": front.url, **named})
    assert found is not None
    return found


# --- TLS -----------------------------------------------------------------------------------------------------------------


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.authority, self.stranger = trustme.CA(), trustme.CA()
        self.client = self.authority.issue_cert("client.example", key_type=trustme.KeyType.RSA)
        self.ca, self.pem, self.p12 = folder / "ca.pem", folder / "client.pem", folder / "client.p12"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.client.private_key_and_cert_chain_pem.write_to_path(str(self.pem))
        from cryptography import x509

        key = load_pem_private_key(self.client.private_key_pem.bytes(), None)
        chain = [x509.load_pem_x509_certificate(blob.bytes()) for blob in self.client.cert_chain_pems]
        store = pkcs12.serialize_key_and_certificates(
            b"client",
            key,
            chain[0],
            chain[1:],
            BestAvailableEncryption(b"s3cret"),  # type: ignore[arg-type]
        )
        self.p12.write_bytes(store)

    def server(self, host: str = "localhost", authority: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (authority or self.authority).issue_cert(host).configure_cert(context)
        self.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("registry-tls"))


def test_tls_with_a_client_certificate_in_each_form(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_STORE_PASSWORD", "s3cret")
    monkeypatch.setenv("REGISTRY_KEY", certificates.client.private_key_pem.bytes().decode())
    ca = {"schema__registry__ssl__truststore__location": str(certificates.ca)}
    pem = "".join(blob.bytes().decode() for blob in certificates.client.cert_chain_pems)
    forms = {
        "a file of PEM": {"schema__registry__ssl__keystore__location": str(certificates.pem)},
        "PKCS12": {
            "schema__registry__ssl__keystore__location": str(certificates.p12),
            "schema__registry__ssl__keystore__type": "PKCS12",
            "schema__registry__ssl__keystore__password": "env:REGISTRY_STORE_PASSWORD",
        },
        "PEM as values": {
            "schema__registry__ssl__keystore__certificate__chain": pem,
            "schema__registry__ssl__keystore__key": "env:REGISTRY_KEY",
        },
    }
    with registry_front(tls=certificates.server()) as front:
        front.responses["/schemas/ids/7"] = schema_response(ID_SCHEMA)
        for form, options in forms.items():
            assert RegistryClient(registry(front, **ca, **options)).by_id(7).text == ID_SCHEMA, form
        assert len(front.asked) == len(forms)
        with pytest.raises(RegistryError, match=r"does not respond \(.*SSL|does not respond \(.*Connection") as refused:
            RegistryClient(registry(front, **ca)).by_id(7)
        assert "s3cret" not in str(refused.value)
        assert len(front.asked) == len(forms)


def test_tls_that_fails_is_an_outage(certificates: Certificates) -> None:
    options = {"schema__registry__ssl__keystore__location": str(certificates.pem)}
    with registry_front(tls=certificates.server(authority=certificates.stranger)) as front:
        ca = {"schema__registry__ssl__truststore__location": str(certificates.ca)}
        with pytest.raises(RegistryError, match=r"does not respond \(https://localhost.*certificate verify failed"):
            RegistryClient(registry(front, **ca, **options)).by_id(7)
    with registry_front(tls=certificates.server("elsewhere.example")) as front:
        front.responses[""] = schema_response(ID_SCHEMA)
        with pytest.raises(RegistryError, match=r"does not respond \(.*[Hh]ostname"):
            RegistryClient(registry(front, **ca, **options)).by_id(7)
        unchecked = {"schema__registry__ssl__endpoint__identification__algorithm": ""}
        assert RegistryClient(registry(front, **ca, **options, **unchecked)).by_id(7).text == ID_SCHEMA


# --- Proxies --------------------------------------------------------------------------------------------------------------


def through(proxy: RegistryFront) -> dict[str, str]:
    return {"proxy__host": "127.0.0.1", "schema__registry__proxy__port": proxy.url.rpartition(":")[2]}


def test_requests_go_through_the_proxy_of_the_options(front: RegistryFront) -> None:
    front.responses["http://registry.example:8081/schemas/ids/7"] = schema_response(ID_SCHEMA)
    found = registry_of(
        {"schema.registry.url": "http://registry.example:8081"}
        | {name.replace("__", "."): value for name, value in through(front).items()}
    )
    assert found is not None and RegistryClient(found).by_id(7).text == ID_SCHEMA
    assert front.asked == ["GET http://registry.example:8081/schemas/ids/7"]


def test_tls_goes_through_the_proxy_untouched(certificates: Certificates, front: RegistryFront) -> None:
    options = {
        "schema__registry__ssl__truststore__location": str(certificates.ca),
        "schema__registry__ssl__keystore__location": str(certificates.pem),
    }
    with registry_front(tls=certificates.server()) as behind:
        behind.responses["/schemas/ids/7"] = schema_response(ID_SCHEMA)
        assert RegistryClient(registry(behind, **through(front), **options)).by_id(7).text == ID_SCHEMA
        assert front.asked == [f"CONNECT {behind.url.removeprefix('https://')}"]


def test_the_environments_proxy_and_its_user(front: RegistryFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", front.url.replace("//", "//me:s3%40cret@"))
    monkeypatch.setenv("no_proxy", "internal.example")
    front.responses["http://registry.example/schemas/ids/7"] = schema_response(ID_SCHEMA)
    assert RegistryClient(Registry("http://registry.example")).by_id(7).text == ID_SCHEMA
    (headers,) = front.headers
    assert headers["proxy-authorization"] == f"Basic {base64.b64encode(b'me:s3@cret').decode()}"
    front.responses[""] = Response(status=502)
    with pytest.raises(RegistryError, match=r"through the proxy http://localhost:\d+\): HTTP 502") as refused:
        RegistryClient(Registry("http://registry.example")).by_id(8)
    assert "s3" not in str(refused.value)
    for direct in ("http://registry.internal.example", "http://localhost:8081", "http://127.0.0.9", "http://[::1]:1"):
        assert environment_proxy(direct) is None
    assert environment_proxy("https://registry.example") is None


# --- Credentials ---------------------------------------------------------------------------------------------------------


def test_the_registry_sees_the_user_the_token_and_confluent_clouds_headers(front: RegistryFront) -> None:
    RegistryClient(registry(front, basic__auth__user__info="me:s3cret")).by_id(7)
    RegistryClient(registry(front, bearer__auth__token="t0ken", bearer__auth__logical__cluster="lsrc-1")).by_id(7)
    first, second = front.headers
    assert first["authorization"] == f"Basic {base64.b64encode(b'me:s3cret').decode()}"
    assert (second["authorization"], second["target-sr-cluster"]) == ("Bearer t0ken", "lsrc-1")


def test_a_redirect_to_another_host_takes_no_credentials_along(front: RegistryFront) -> None:
    with registry_front() as other:
        other.responses["/schemas/ids/7"] = front.responses["/schemas/ids/7"]
        front.responses["/schemas/ids/7"] = Response(status=307, headers={"Location": f"{other.url}/schemas/ids/7"})
        options = {"bearer__auth__identity__pool__id": "pool-1", "bearer__auth__logical__cluster": "lsrc-1"}
        RegistryClient(registry(front, bearer__auth__token="t0ken", **options)).by_id(7)
    sent = {name.lower() for name in front.headers[0]}
    assert {"authorization", "confluent-identity-pool-id", "target-sr-cluster"} <= sent
    assert sent - {name.lower() for name in other.headers[0]} == {
        "authorization",
        "confluent-identity-pool-id",
        "target-sr-cluster",
    }


def test_a_redirect_within_the_registry_is_followed_with_its_credentials(front: RegistryFront) -> None:
    front.responses["/schemas/ids/8"] = Response(status=307, headers={"Location": f"{front.url}/schemas/ids/7"})
    RegistryClient(registry(front, bearer__auth__token="t0ken", bearer__auth__identity__pool__id="pool-1")).by_id(8)
    assert [each["Confluent-Identity-Pool-Id"] for each in front.headers] == ["pool-1", "pool-1"]


def test_a_code_that_is_the_status_is_shown_once(front: RegistryFront) -> None:
    front.responses["/schemas/ids/8"] = Response(
        status=404, content=b'{"error_code": 404, "message": "HTTP 404 Not Found"}'
    )
    with pytest.raises(NotARegistryError, match=r"HTTP 404 Not Found \(HTTP 404\)"):
        RegistryClient(registry(front)).by_id(8)


def test_an_unknown_schema_is_named_with_its_registry(front: RegistryFront) -> None:
    guid = uuid.uuid4()
    rows = pa.array([b"\0\0\0\0\x2a\2", b"\2"], pa.binary())
    headers = pa.array([None, b"\1" + guid.bytes], pa.binary())
    found = read_column(Avro(registry=registry(front)), ID_TYPE, rows, schema_headers=headers)
    unknown = "the registry has no such schema: Schema not found (HTTP 404, 40403)"
    assert found.reasons == {
        0: f"its schema with the id 42 in {front.url}: {unknown}",
        1: f"its schema with the GUID {guid} in {front.url}: {unknown}",
    }


def test_tokens_by_client_credentials_and_a_new_one_for_a_rejected_one(front: RegistryFront, tmp_path: Path) -> None:
    with Issuer(tmp_path).serving() as issuer:
        client = {
            "bearer__auth__credentials__source": "OAUTHBEARER",
            "bearer__auth__issuer__endpoint__url": issuer.url,
            "bearer__auth__client__id": CLIENT_ID,
            "bearer__auth__client__secret": CLIENT_SECRET,
            "kafka__sasl__oauthbearer__allow__http__loopback": "true",
        }
        asking = registry(front, **client)
        RegistryClient(asking).by_id(7)
        front.responses["/schemas/ids/8"] = schema_response(ID_SCHEMA)
        RegistryClient(asking).by_id(8)
        assert len(issuer.requests) == 1  # one token for both
        front.responses["/schemas/ids/9"] = Response(status=401)
        with pytest.raises(RegistryError, match="denies access"):
            RegistryClient(asking).by_id(9)
        assert len(issuer.requests) == 2 and front.n_asked("/schemas/ids/9") == 2


# --- Faults --------------------------------------------------------------------------------------------------------------

FAULTS = {
    "closes the connection": (Response(status=None), "does not respond"),
    "HTTP 500": (Response(status=500), "does not respond.*HTTP 500"),
    "HTTP 503, and asks for an hour": (
        Response(status=503, headers={"Retry-After": "3600"}),
        "does not respond.*HTTP 503",
    ),
    "too many requests": (Response(status=429, headers={"Retry-After": "3600"}), "does not respond.*HTTP 429"),
    "HTTP 401": (Response(status=401), r"denies access \(HTTP 401\): check basic\.auth\.user\.info"),
    "HTTP 403": (Response(status=403, content=b"<html>"), r"denies access \(HTTP 403\)"),
    "a page": (Response(content=b"<html>it works</html>"), "is it a schema registry"),
    "a list": (Response(content=b"[]"), "is it a schema registry"),
    "no schema": (Response(content=b'{"id": 7}'), "is it a schema registry"),
    "another path's 404": (
        Response(status=404, content=b'{"message": "HTTP 404 Not Found"}'),
        "is it a schema registry",
    ),
    "half a response": (Response(content=b'{"schema"', headers={"Content-Length": "99"}), "does not respond"),
    "too late": (Response(delay_s=60), "does not respond.*timed out"),
    "byte after byte": (
        Response(content=b" " * 500, delay_s=0.2, drips=True),
        "does not respond.*not complete in time",
    ),
    "a redirection to itself": (
        Response(status=301, headers={"Location": "/schemas/ids/7"}),
        "does not respond|HTTP 301",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_outage_under_every_policy_and_soon(front: RegistryFront, fault: str) -> None:
    front.responses[""], expected = FAULTS[fault]
    del front.responses["/schemas/ids/7"]
    asking = Registry(front.url, timeout_s=0.5, basic_auth="me:s3cret")
    started = time.monotonic()
    with pytest.raises(RegistryError, match=expected) as raised:
        read_column(Avro(registry=asking), ID_TYPE, pa.array([b"\0\0\0\0\7\2"]))
    assert "s3cret" not in str(raised.value)
    assert time.monotonic() - started < 30  # three attempts of half a second, on a machine that is busy
    front.responses[""] = schema_response(ID_SCHEMA)  # nothing of the outage is remembered
    assert read_column(Avro(registry=asking), ID_TYPE, pa.array([b"\0\0\0\0\7\2"])).column.to_pylist() == [{"id": 1}]


def test_an_address_that_fails_leaves_it_to_the_next(front: RegistryFront) -> None:
    (port,) = free_ports(1)
    for bad in (Response(status=500), Response(status=429), Response(status=None), Response(delay_s=60)):
        with registry_front() as broken:
            broken.responses[""] = bad
            url = f"{broken.url},http://127.0.0.1:{port},{front.url}"
            assert RegistryClient(Registry(url, timeout_s=0.5)).by_id(7).text == ID_SCHEMA
            assert broken.asked


def test_threads_that_need_the_same_schema_ask_once(front: RegistryFront) -> None:
    front.responses["/schemas/ids/7"] = Response(content=json.dumps({"schema": ID_SCHEMA}).encode(), delay_s=0.3)
    asking = Registry(front.url)
    barrier = threading.Barrier(8)

    def ask(_: int) -> str:
        barrier.wait(30)
        return RegistryClient(asking).by_id(7).text

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {ID_SCHEMA}
    assert len(front.asked) == 1


def test_many_unknown_ids_are_asked_for_once_each(front: RegistryFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykafka_wire.values.registry.cache._FAILURES_KEPT_S", 3600)
    rows = pa.array([b"\0" + schema_id.to_bytes(4, "big") + b"\2" for schema_id in range(8_000, 9_200)])
    value_format = Avro(registry=Registry(front.url, timeout_s=6))
    for _ in range(2):
        assert len(read_column(value_format, ID_TYPE, rows).reasons) == len(rows)
    assert len(front.asked) == len(rows)
    front.responses["/schemas/ids/8000"] = schema_response(ID_SCHEMA)
    monkeypatch.setattr("pykafka_wire.values.registry.cache._FAILURES_KEPT_S", 1)  # as when the time is over
    assert read_column(value_format, ID_TYPE, rows[:2]).column.to_pylist() == [{"id": 1}, None]


def test_requests_for_unknown_ids_are_bounded_but_never_those_of_a_new_schema(
    front: RegistryFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykafka_wire.values.registry.cache._FAILURES_KEPT_S", 3600)
    monkeypatch.setattr("pykafka_wire.values.registry.confluent._MAX_REQUESTS_FOR_UNKNOWN", 20)
    front.responses["/schemas/ids/1007"] = front.responses["/schemas/ids/7"]

    def read(*schema_ids: int) -> dict[int, str]:
        rows = [b"\0" + schema_id.to_bytes(4, "big", signed=True) + b"\2" for schema_id in schema_ids]
        return read_column(value_format, ID_TYPE, pa.array(rows)).reasons

    value_format = Avro(registry=Registry(front.url, timeout_s=8))
    reasons = read(*range(-10, 0), *range(1_000_000, 1_000_050))
    assert len(reasons) == 60 and len(front.asked) == 20
    assert sum("20 other ids that it does not know" in reason for reason in reasons.values()) == 40
    assert read(1007, 7) == {} and len(front.asked) == 22
    assert len(read(1, 11_007, 11_008)) == 3
    assert front.asked[22:] == ["GET /schemas/ids/1", "GET /schemas/ids/11007"]
    monkeypatch.setattr("pykafka_wire.values.registry.cache._FAILURES_KEPT_S", 1)  # as when the time is over
    assert len(read(1_000_049)) == 1 and front.asked[-1] == "GET /schemas/ids/1000049"
    front.responses["/schemas/ids/500000"] = front.responses["/schemas/ids/7"]
    value_format = Avro(registry=Registry(front.url, timeout_s=9))  # of a new process, which knows no id
    assert len(read(*range(-50, 0), 500_000, 500_000, *range(1_000_000, 1_000_050))) == 100


def test_the_failures_that_are_kept_are_bounded() -> None:
    asked = []

    @partial(cached, max_failures=3)
    def look_up(number: int) -> int:
        asked.append(number)
        raise DecodeError(f"no {number}")

    for number in (1, 2, 3, 3, 2, 1, 4, 4, 1):
        with pytest.raises(DecodeError, match=f"no {number}"):
            look_up(number)
    assert asked == [1, 2, 3, 4, 1]  # the fourth took the place of all before


def test_a_connection_serves_many_requests(front: RegistryFront) -> None:
    asking = Registry(front.url, timeout_s=7)  # whose connections no other test has
    for number in range(20):
        front.responses[f"/schemas/ids/{number}"] = schema_response(ID_SCHEMA)
        assert RegistryClient(asking).by_id(number).text == ID_SCHEMA
    assert len(front.asked) == 20 and front.n_connections == 1


# --- GUIDs ---------------------------------------------------------------------------------------------------------------

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
PROTO = 'syntax = "proto3"; message A { message B { int64 id = 1; } int64 id = 2; }'


def header_of(serializer: Any, value: Any) -> tuple[bytes, bytes]:
    """Payload and header as Confluent's client writes them."""
    headers: list[tuple[str, bytes]] = []
    payload = serializer(value, SerializationContext("orders", MessageField.VALUE, headers))
    ((name, header),) = headers
    assert name == "__value_schema_id"
    return payload, header


def headers_column(headers: list[list[tuple[str, bytes]]]) -> Any:
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.array([[{"key": k, "value": v} for k, v in row] for row in headers], pa.list_(entry))


def test_values_whose_guid_confluents_serializer_put_into_a_header(front: RegistryFront) -> None:
    """As Confluent's documentation has it: the response to a registration has the GUID, and /schemas/guids/{guid} the schema."""
    front.responses["/subjects/orders-value/versions?normalize=False"] = Response(
        content=json.dumps({"id": 7, "version": 1, "guid": str(GUID), "schema": ID_SCHEMA}).encode()
    )
    front.responses[f"/schemas/guids/{GUID}"] = schema_response(ID_SCHEMA, guid=str(GUID))
    settings = {"schema.id.serializer": header_schema_id_serializer}
    serializer = AvroSerializer(SchemaRegistryClient({"url": front.url}), ID_SCHEMA, conf=settings)
    payload, header = header_of(serializer, {"id": 5})
    assert payload == b"\x0a" and header == b"\1" + GUID.bytes
    rows = pa.array([payload, b"\0\0\0\0\7\2", payload])
    column = headers_column(
        [[("__value_schema_id", header)], [("other", header)], [("a", b""), ("__value_schema_id", header)]]
    )
    found = header_values(column, "__value_schema_id")
    read = read_column(Avro(registry=Registry(front.url)), ID_TYPE, rows, schema_headers=found)
    assert read.column.to_pylist() == [{"id": 5}, {"id": 1}, {"id": 5}] and not read.reasons
    assert front.n_asked(f"/schemas/guids/{GUID}") == 1


def test_protobufs_message_indexes_stand_behind_the_guid(front: RegistryFront) -> None:
    front.responses[f"/schemas/guids/{GUID}"] = schema_response(PROTO, "PROTOBUF")
    inner, outer = (SchemaId("PROTOBUF", None, str(GUID), indexes).guid_to_bytes() for indexes in ([0, 0], [0]))
    rows = pa.array([b"\x08\5", b"\x10\6"])
    value_format = Protobuf(registry=Registry(front.url))
    read = read_column(value_format, ID_TYPE, rows, schema_headers=pa.array([inner, outer]))
    assert read.column.to_pylist() == [{"id": 5}, {"id": 6}] and not read.reasons


def test_a_guid_that_the_registry_lacks_is_a_broken_value_and_a_registry_without_guids_an_error(
    front: RegistryFront,
) -> None:
    asking = Registry(front.url)
    with pytest.raises(DecodeError, match="no such schema"):
        RegistryClient(asking).by_id(GUID)
    front.responses[""] = Response(status=404, content=b'{"error_code": 404, "message": "RESTEASY003210: no resource"}')
    with pytest.raises(RegistryError, match=f"does not know schemas by GUID.*{GUID}.*Apicurio"):
        RegistryClient(Registry(front.url, timeout_s=9)).by_id(
            GUID
        )  # another registry, for which nothing is remembered
    front.responses[""] = Response(status=500)
    with pytest.raises(ConnectorError, match="does not respond"):
        RegistryClient(Registry(front.url, timeout_s=8)).by_id(GUID)
