"""The trace: what a line says, and what it never says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.state_machine import Received, Sent
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import AuthenticationError, UnknownTopicError
from pykafka_wire.wire.protocol.messages.handshake import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pykafka_wire.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykafka_wire.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker

PASSWORD = "correct-horse-battery-staple"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.txt"


@pytest.fixture
def trace(path: Path) -> Iterator[Trace]:
    trace = Trace(str(path))
    yield trace
    trace.close()


def test_a_request_has_a_line(trace: Trace, path: Path) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30,
        topic_data=[
            TopicProduceData(
                name="a topic",
                partition_data=[
                    PartitionProduceData(index=0, records=b"private"),
                    PartitionProduceData(index=1, records=bytearray(b"privatedata")),
                    PartitionProduceData(index=2, records=None),
                ],
            )
        ],
    )
    trace.sent("1 (h:9092)", Sent(17, request, 9, 321))
    (line,) = path.read_text().splitlines()
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} 1 \(h:9092\) -> Produce v9 #17 321 B ", line)
    assert "acks=-1" in line
    assert "name='a topic'" in line
    assert "{index=0 records=7B}, {index=1 records=11B}, {index=2 records=null}" in line
    assert "topic_id" not in line  # version 9 has none
    assert "private" not in line


def test_a_response_has_a_line_with_latency_and_error_names(trace: Trace, path: Path) -> None:
    partitions = [MetadataResponsePartition(partition_index=0, error_code=5), MetadataResponsePartition()]
    response = MetadataResponse(
        throttle_time_ms=12, topics=[MetadataResponseTopic(name="t", error_code=3, partitions=partitions)]
    )
    trace.received("1 (h:9092)", Received(Sent(17, MetadataRequest(), 12, 50), response, 99), 4.25)
    (line,) = path.read_text().splitlines()
    assert "1 (h:9092) <- Metadata v12 #17 99 B 4.2 ms LEADER_NOT_AVAILABLE,UNKNOWN_TOPIC_OR_PARTITION " in line
    assert "throttle_time_ms=12" in line


def test_a_large_message_is_cut(trace: Trace, path: Path) -> None:
    topics = [MetadataResponseTopic(name=f"topic-{i}") for i in range(5_000)]
    trace.received("1", Received(Sent(1, MetadataRequest(), 12, 9), MetadataResponse(topics=topics), 9), 1.0)
    assert len(path.read_text()) < 600


def test_without_a_target_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYKAFKA_WIRE_TRACE", raising=False)
    broken: Any = object()
    Trace("").sent("1", broken)
    Trace("").received("1", broken, 1.0)


def test_stderr_is_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    Trace("stderr").sent("1", Sent(0, MetadataRequest(), 12, 9))
    assert "-> Metadata v12 #0" in capsys.readouterr().err


def test_a_closed_trace_continues_with_the_next_line(trace: Trace, path: Path) -> None:
    for _ in range(2):
        trace.sent("1", Sent(0, MetadataRequest(), 12, 9))
        trace.close()
    assert len(path.read_text().splitlines()) == 2


def test_a_target_that_cannot_be_written_to_ends_the_trace_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = Trace(str(tmp_path / "no such folder" / "trace"))
    with FakeBroker() as broker:
        host, _, port = broker.address.rpartition(":")
        settings = ClientSettings(bootstrap_servers=((host, int(port)),))
        connection = Connection(host, int(port), settings, trace, "1").open(Deadline.after_ms(30_000))
        try:
            for _ in range(2):
                response = connection.send(MetadataRequest(topics=[])).result(Deadline.after_ms(30_000))
                assert [each.node_id for each in response.brokers] == [1]
        finally:
            connection.close()
    assert len([record for record in caplog.records if "The trace ends" in record.message]) == 1


def test_the_environment_turns_it_on_for_a_whole_session(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKAFKA_WIRE_TRACE", str(path))
    with FakeBroker(1) as broker:
        broker.topics = {"t": {0: (1, 0)}}
        with Cluster(ClientSettings(bootstrap_servers=(("127.0.0.1", broker.port),))) as cluster:
            cluster.metadata.topics(["t"])
    steps = [line.split(" ", 1)[1].split(" ")[-0:3] for line in path.read_text().splitlines()]
    kinds = [" ".join(step[1:3]) for step in steps]
    assert kinds == ["-> ApiVersions", "<- ApiVersions", "== connected", "-> Metadata", "<- Metadata"]


@pytest.mark.parametrize("accepted", [True, False])
def test_no_secret_is_in_it(path: Path, accepted: bool) -> None:
    """Nor what the broker echoes of it."""
    with FakeBroker(1) as broker:
        broker.on[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"])
        broker.on[SaslAuthenticateRequest] = lambda request, version: SaslAuthenticateResponse(
            error_code=0 if accepted else 58, error_message=f"no {PASSWORD}", auth_bytes=PASSWORD.encode()
        )
        settings = ClientSettings(
            bootstrap_servers=(("127.0.0.1", broker.port),),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="someone",
            sasl_password=PASSWORD,
            trace=str(path),
        )
        with Cluster(settings) as cluster:
            if accepted:
                cluster.metadata.brokers()
            else:
                with pytest.raises(AuthenticationError):
                    cluster.metadata.brokers()
    text = path.read_text()
    assert "-> SaslHandshake v1 #1" in text
    assert "mechanism=PLAIN" in text
    assert "auth_bytes=***" in text
    assert ("SASL_AUTHENTICATION_FAILED" in text) is not accepted
    assert PASSWORD not in text


@pytest.mark.broker
def test_a_real_exchange_can_be_read(kafka: Any, topic: Any, path: Path) -> None:
    name = topic()
    options = {"bootstrap.servers": kafka.bootstrap_servers, "trace": str(path)}
    with Cluster(ClientSettings.from_options(options)) as cluster:
        cluster.metadata.topics([name])
        with pytest.raises(UnknownTopicError):
            cluster.metadata.topics(["never-was"])
    lines = path.read_text().splitlines()
    assert any(re.search(rf"<- Metadata v\d+ #\d+ \d+ B [\d.]+ ms brokers=.*name={name}", line) for line in lines)
    assert any("UNKNOWN_TOPIC_OR_PARTITION" in line for line in lines)
