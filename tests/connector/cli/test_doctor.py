"""What doctor says of clusters that are well, secured, and broken in the ways that people meet."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from pykafka_wire.wire.protocol.messages.handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.connector.cli.conftest import plain, terminal_output
from tests.wire.fake_broker import FakeBroker
from tests.wire.secured import PASSWORDS, Secured

Command = Callable[..., subprocess.CompletedProcess[str]]
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    """The address of a server that takes whatever it is sent for a bad HTTP request."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_cluster_that_is_well(
    doctor: Callable[..., dict[str, Any]], command: Command, kafka: Any, topic: Any
) -> None:
    name = topic(2)
    report = doctor(
        {"bootstrap.servers": kafka.bootstrap_servers}, "--topic", name, "--for", "both", "--group", "g",
        "--transactional-id", "t",
    )  # fmt: skip
    found = {check["name"]: check["found"] for check in report["checks"]}
    assert set(found) == {
        "name", "tcp", "api versions", "metadata", "advertised", "leaders", "topic", "group", "transactional id",
    }  # fmt: skip
    assert found["leaders"] == "2 partitions, each with a leader, all in sync"
    assert "Read" in found["topic"]
    assert "does not exist yet" in found["group"]
    assert "not used yet" in found["transactional id"]
    shown = command("doctor", "-b", kafka.bootstrap_servers).stdout
    assert "✓ tcp" in shown
    assert shown.endswith("No problem found.\n")
    assert "\x1b" not in shown


def test_to_look_at_a_transactional_id_does_not_fence_its_producer(
    doctor: Callable[..., dict[str, Any]], kafka: Any, topic: Any
) -> None:
    name, transactional_id = topic(), f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.flush(30)
    report = doctor({"bootstrap.servers": kafka.bootstrap_servers}, "--transactional-id", transactional_id)
    assert report["by_name"]["transactional id"]["found"].startswith("Ongoing")
    producer.commit_transaction(30)


def test_secured_listeners_that_are_well(doctor: Callable[..., dict[str, Any]], secured_kafka: Secured) -> None:
    report = doctor(secured_kafka.options("TLS"))
    assert "TLSv1.3; the certificate names localhost, 127.0.0.1 and expires" in report["by_name"]["tls"]["found"]
    credentials = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": PASSWORDS["alice"]}
    report = doctor(secured_kafka.options("SASLTLS", **credentials))
    assert report["by_name"]["identity"]["found"] == "alice, from sasl.username"
    assert report["by_name"]["sasl"]["found"].startswith("authenticated by SCRAM-SHA-512")
    assert PASSWORDS["alice"] not in json.dumps(report)


def test_a_port_without_a_listener(doctor: Callable[..., dict[str, Any]]) -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        failed = doctor({"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}"}, code=3)["failed"]
    assert failed["tcp"]["found"] == "127.0.0.1: connection refused"
    assert "check the port" in failed["tcp"]["remedy"]


def test_a_name_that_does_not_resolve(doctor: Callable[..., dict[str, Any]]) -> None:
    failed = doctor({"bootstrap.servers": "no-such-host.invalid:9092"}, code=3)["failed"]
    assert "cannot be resolved" in failed["name"]["found"]
    assert "spelling" in failed["name"]["remedy"]


def test_one_of_two_bootstrap_servers_is_enough_to_look_on(doctor: Callable[..., dict[str, Any]], kafka: Any) -> None:
    report = doctor({"bootstrap.servers": f"127.0.0.1:1,{kafka.bootstrap_servers}"}, code=1)
    assert list(report["failed"]) == ["tcp"]
    assert report["by_name"]["leaders"]["result"] == "ok"


def test_tls_spoken_to_a_plaintext_port(doctor: Callable[..., dict[str, Any]], kafka: Any) -> None:
    failed = doctor({"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL"}, code=2)["failed"]
    assert failed["tls"]["found"] == "the port speaks plaintext, not TLS"
    assert "security.protocol" in failed["tls"]["remedy"]


def test_plaintext_spoken_to_a_tls_port(doctor: Callable[..., dict[str, Any]], secured_kafka: Secured) -> None:
    failed = doctor({"bootstrap.servers": secured_kafka.cluster.bootstrap("TLS")}, code=2)["failed"]
    assert "the port speaks TLS" in failed["api versions"]["found"]
    assert "Set security.protocol to SSL" in failed["api versions"]["remedy"]


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("PLAINTEXT", "an HTTP server responds on this port, not a Kafka broker"),
        ("SSL", "the peer does not speak TLS: it may be a plaintext listener"),
    ],
)
def test_a_web_servers_port_is_named_alike_by_doctor_and_by_every_other_command(
    doctor: Callable[..., dict[str, Any]], command: Command, protocol: str, said: str
) -> None:
    with web_server() as address:
        settings = {"bootstrap.servers": address, "security.protocol": protocol}
        (failed,) = doctor(settings, code=3)["failed"].values()
        assert said in failed["found"]
        short = ["-X", f"security.protocol={protocol}", "-X", "default.api.timeout.ms=1000"]
        error = command("topics", "-b", address, *short, code=3).stderr
    assert said in error


def test_no_sasl_where_the_listener_demands_it(doctor: Callable[..., dict[str, Any]], secured_kafka: Secured) -> None:
    failed = doctor({"bootstrap.servers": secured_kafka.cluster.bootstrap("SASLPLAIN")}, code=4)["failed"]
    assert "requires SASL (" in failed["sasl"]["found"]
    assert "SCRAM-SHA-512" in failed["sasl"]["found"]
    assert "SASL_PLAINTEXT" in failed["sasl"]["remedy"]


def test_brokers_that_respond_to_a_sasl_handshake_on_a_listener_without_sasl(
    doctor: Callable[..., dict[str, Any]],
) -> None:
    with FakeBroker() as broker:
        offers = SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"])
        broker.on[SaslHandshakeRequest] = lambda request, version: offers
        report = doctor({"bootstrap.servers": broker.address})
    assert report["by_name"]["api versions"]["result"] == "ok"
    assert report["by_name"]["metadata"]["found"] == "1 broker; you may describe 0 topics"
    assert report["by_name"]["leaders"]["found"] == "no partitions to check"


def test_lines_at_80_columns_keep_their_indent(kafka: Any) -> None:
    for code, settings in ((0, []), (2, ["-X", "security.protocol=SSL"])):
        printed = terminal_output(["doctor", "-b", kafka.bootstrap_servers, *settings], columns=80, code=code)
        lines = [line.rstrip() for line in plain(printed).splitlines()]
        assert all(len(line) <= 80 for line in lines), lines
        # A check's mark, its text from column 19 on, what to do; and the verdict.
        shape = re.compile(r"[✓✗!] [a-z ]{16} \S| {19}\S|    → \S|      \S|No problem found|\d of \d checks? failed")
        assert all(shape.match(line) for line in lines), lines


def test_a_topic_that_is_called_nearly_so(doctor: Callable[..., dict[str, Any]], kafka: Any, topic: Any) -> None:
    name = topic()
    failed = doctor({"bootstrap.servers": kafka.bootstrap_servers}, "--topic", f"{name}s", code=1)["failed"]
    assert f"Did you mean {name}? Check its name" in failed["topic"]["remedy"]


def test_certificates_that_do_not_hold(doctor: Callable[..., dict[str, Any]], secured_kafka: Secured) -> None:
    expired = doctor(secured_kafka.options("EXPIRED"), code=4)["failed"]["tls"]
    assert "certificate has expired" in expired["found"]
    assert "Renew the broker's certificate" in expired["remedy"]
    elsewhere = doctor(secured_kafka.options("ELSEWHERE"), code=4)["failed"]["tls"]
    assert "ostname mismatch" in elsewhere["found"]
    assert "names localhost" in elsewhere["remedy"]
    stranger = secured_kafka.options("TLS", ssl_truststore_location=str(secured_kafka.certificates.stranger_path))
    untrusted = doctor(stranger, code=4)["failed"]["tls"]
    assert "ssl.truststore.location" in untrusted["remedy"]


def test_a_client_certificate_that_is_missing(doctor: Callable[..., dict[str, Any]], secured_kafka: Secured) -> None:
    (failed,) = doctor(secured_kafka.options("MTLS"), code=4)["failed"].values()
    assert "ssl.keystore" in failed["remedy"]


def test_sasl_on_a_listener_without_it_and_half_of_a_login(doctor: Callable[..., dict[str, Any]], kafka: Any) -> None:
    options = {
        "bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
    }  # fmt: skip
    half = doctor(options, code=2)["failed"]["sasl"]
    assert "sasl.username is missing" in half["found"] and "sasl.jaas.config" in half["remedy"]
    whole = doctor({**options, "sasl.username": "alice", "sasl.password": "alice-secret"}, code=4)["failed"]["sasl"]
    assert whole["found"] == "the listener has no SASL"
    assert "security.protocol to PLAINTEXT" in whole["remedy"]


def test_a_wrong_password_and_a_mechanism_that_is_off(
    doctor: Callable[..., dict[str, Any]], secured_kafka: Secured
) -> None:
    wrong = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": "not-the-password"}
    report = doctor(secured_kafka.options("SASLPLAIN", **wrong), code=4)
    assert list(report["failed"]) == ["sasl"]
    assert report["failed"]["sasl"]["remedy"]
    assert "not-the-password" not in json.dumps(report)
    off = doctor(secured_kafka.options("OAUTHU", **wrong), code=4)["failed"]["sasl"]
    assert "OAUTHBEARER" in off["found"] + off["remedy"]


def test_missing_acls_are_named_with_the_command_that_grants_them(
    doctor: Callable[..., dict[str, Any]], guarded_kafka: Any, topic: Any
) -> None:
    name = topic(cluster=guarded_kafka)
    alice = {
        "bootstrap.servers": guarded_kafka.bootstrap("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{JAAS} username="alice" password="alice-secret";',
    }
    looked = ["--topic", name, "--group", "g", "--transactional-id", "t"]
    failed = doctor(alice, *looked, code=4)["failed"]
    assert set(failed) == {"topic", "group", "transactional id"}
    assert "may not describe it" in failed["topic"]["found"]
    assert f"--operation Read --operation Describe --topic {name}" in failed["topic"]["remedy"]
    assert "--group g" in failed["group"]["remedy"]
    assert "--transactional-id t" in failed["transactional id"]["remedy"]

    acls = "org.apache.kafka.tools.AclCommand"
    allow = ["--add", "--allow-principal", "User:alice"]
    guarded_kafka.tool(acls, *allow, "--operation", "Write", "--topic", name)
    guarded_kafka.tool(acls, *allow, "--operation", "Read", "--group", "g")
    guarded_kafka.tool(acls, *allow, "--operation", "Describe", "--transactional-id", "t")
    failed = doctor(alice, *looked, code=4)["failed"]
    assert set(failed) == {"topic"}
    assert failed["topic"]["found"] == "you may Write, Describe; Read is missing"
    assert doctor(alice, *looked, "--for", "write")["ok"]


def test_an_advertised_listener_that_cannot_be_reached(
    doctor: Callable[..., dict[str, Any]], unreachable_kafka: Any
) -> None:
    servers = f"127.0.0.1:{unreachable_kafka.nodes[0].listeners[0].port}"
    advertised = doctor({"bootstrap.servers": servers}, code=1)["failed"]["advertised"]
    assert "broker 1 (127.0.0.1:1)" in advertised["where"]
    assert "connection refused" in advertised["found"]
    assert "correct advertised.listeners there" in advertised["remedy"]
