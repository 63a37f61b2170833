"""Who is asked for metadata, in what order, for how long, and what is said when nobody responds."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykafka_wire.wire.cluster import Cluster, metadata_source
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import (
    AuthenticationError,
    DeadlineExceededError,
    MisroutedConnectionError,
    NoBrokerAvailableError,
)
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest, ApiVersionsResponse
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import CLOSE, VERSIONS, FakeBroker, versions_response


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Three brokers of one cluster."""
    three = [FakeBroker(node_id) for node_id in (1, 2, 3)]
    for broker in three:
        broker.peers = {each.node_id: each for each in three}
    yield three
    for broker in three:
        broker.close()


def cluster_of(*addresses: str, **settings: Any) -> Cluster:
    pairs = tuple((host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses))
    return Cluster(ClientSettings(bootstrap_servers=pairs, **settings))


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_dead_and_stopped_servers_are_passed_over(brokers: list[FakeBroker]) -> None:
    brokers[0].silent = brokers[1].silent = True
    started = time.monotonic()
    with cluster_of(free_address(), *(each.address for each in brokers)) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}
    # Each of the four servers had 1.5 s at most.
    assert time.monotonic() - started < 5


def slowly(broker: FakeBroker, after_s: float) -> None:
    """The broker's metadata come late."""

    def response(request: MetadataRequest, version: int) -> MetadataResponse:
        time.sleep(after_s)
        return broker.metadata(request, version)

    broker.on[MetadataRequest] = response


def test_a_server_that_has_shaken_hands_may_take_its_time_for_the_metadata(brokers: list[FakeBroker]) -> None:
    slowly(brokers[0], 1.5)
    with cluster_of(brokers[0].address, socket_connection_setup_timeout_ms=500) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}
    assert brokers[0].count(MetadataRequest) == 1


def test_servers_that_are_slow_to_shake_hands_get_more_than_their_share_in_the_second_round(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_source, "_FIRST_CONTACT_MS", 600)
    monkeypatch.setattr(metadata_source, "_MIN_ATTEMPT_MS", 200)

    def late_versions(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        time.sleep(0.5)
        return versions_response()

    for broker in brokers:
        broker.on[ApiVersionsRequest] = late_versions
    with cluster_of(*(each.address for each in brokers), socket_connection_setup_timeout_ms=1_000) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}


def test_known_brokers_that_are_slow_get_more_time_with_each_round(brokers: list[FakeBroker]) -> None:
    with cluster_of(brokers[0].address, socket_connection_setup_timeout_ms=400) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}
        for broker in brokers:
            slowly(broker, 1.0)
        assert cluster.metadata.topics(None) == {}


def test_a_server_that_speaks_something_else_is_passed_over(brokers: list[FakeBroker]) -> None:
    brokers[0].on[ApiVersionsRequest] = lambda request, version: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with cluster_of(brokers[0].address, brokers[1].address) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}


def test_a_server_that_has_not_joined_its_cluster_is_passed_over(brokers: list[FakeBroker]) -> None:
    brokers[0].on[MetadataRequest] = lambda request, version: MetadataResponse()
    with cluster_of(brokers[0].address, brokers[1].address) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}


def test_when_no_broker_responds_each_address_is_named_with_its_reason(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_source, "_FIRST_CONTACT_MS", 300)
    monkeypatch.setattr(metadata_source, "_MIN_ATTEMPT_MS", 100)
    dead = free_address()
    brokers[0].silent = True
    brokers[1].on[ApiVersionsRequest] = lambda request, version: b"SSH-2.0-OpenSSH_9.2\r\n"
    brokers[2].on[MetadataRequest] = lambda request, version: MetadataResponse()
    addresses = [dead, *(each.address for each in brokers), "no-such-host.invalid:9092"]
    started = time.monotonic()
    with pytest.raises(NoBrokerAvailableError) as raised:
        cluster_of(*addresses, socket_connection_setup_timeout_ms=200).metadata.topics(["t"])
    assert time.monotonic() - started < 5
    reasons = dict(raised.value.attempts)
    assert list(reasons) == addresses
    assert "connection refused" in reasons[dead]
    assert "did not respond in time" in reasons[brokers[0].address]
    assert "an SSH server responds" in reasons[brokers[1].address]
    assert reasons[brokers[2].address] == "it does not know any broker yet"
    assert "cannot be resolved" in reasons["no-such-host.invalid:9092"]
    assert all(address in str(raised.value) for address in addresses)


@given(answers=st.lists(st.sampled_from(["closes", "stays silent"]), max_size=2))
@settings(max_examples=10, deadline=None)
def test_an_attempt_that_the_deadline_cuts_off_hides_no_earlier_reason(answers: list[str]) -> None:
    """A listener closes the first TLS connection. It closes some of the next connections, and responds to none of the last."""
    answers = ["closes", *answers]
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in [*answers, *["stays silent"] * 100]:
                try:
                    held.append(listener.accept()[0])
                except OSError:
                    return
                if answer == "closes":
                    held.pop().close()

        threading.Thread(target=serve, daemon=True).start()
        host, port = listener.getsockname()
        with pytest.raises(NoBrokerAvailableError, match="the TLS handshake failed"):
            cluster_of(f"{host}:{port}", security_protocol="SSL", default_api_timeout_ms=400).metadata.topics(["t"])
        listener.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def test_a_cluster_that_is_not_there_is_known_within_seconds() -> None:
    started = time.monotonic()
    with pytest.raises(NoBrokerAvailableError):
        cluster_of(free_address()).metadata.topics(["t"])
    assert time.monotonic() - started < 8


def test_silence_of_all_brokers_is_warned_of_and_the_error_says_how_long_it_took(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when all brokers are down under a stream, which asks for the ends of its topics again and again."""
    monkeypatch.setattr(metadata_source, "_WARN_AFTER_S", 0.1)
    caplog.set_level(logging.INFO, "pykafka_wire")
    with cluster_of(
        brokers[0].address, default_api_timeout_ms=1_000, retry_backoff_max_ms=20, reconnect_backoff_ms=5
    ) as cluster:
        cluster.metadata.brokers()
        for broker in brokers:
            broker.close()
        for _ in range(2):
            with pytest.raises(NoBrokerAvailableError) as raised:
                cluster.metadata.topics(["t"])
        assert re.search(
            r"no broker is available after (0\.9|1\.\d) s \(default\.api\.timeout\.ms\): ", str(raised.value)
        )
        assert "connection refused" in str(raised.value)
        assert "reconnect.backoff.ms" not in str(raised.value)  # it says nothing of what happened
        warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert 1 <= len(warned) <= 3  # after 0.1, 0.4 and 1.6 s, of some hundred attempts
        assert all("no broker has responded for" in each and "connection refused" in each for each in warned)
        assert re.search(r"trying for another \d s \(default\.api\.timeout\.ms\)", warned[0])
        with pytest.raises(
            DeadlineExceededError, match=r"in (0\.9|1\.\d) s \(default\.api\.timeout\.ms\).*connection refused"
        ):
            cluster.request(1, MetadataRequest(topics=[]))


def test_a_broker_that_responds_ends_the_silence(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_source, "_WARN_AFTER_S", 0.1)
    caplog.set_level(logging.INFO, "pykafka_wire")
    settings = {"socket_connection_setup_timeout_ms": 50, "retry_backoff_ms": 5, "reconnect_backoff_ms": 5}
    with cluster_of(brokers[0].address, **settings) as cluster:
        for n_silences in (1, 2):
            cluster.metadata.brokers()
            for broker in brokers:
                broker.silent = True
            with pytest.raises(NoBrokerAvailableError):
                cluster.metadata.topics(None, deadline=Deadline.after_ms(300))
            for broker in brokers:
                broker.silent = False
            cluster.metadata.topics(None)
            texts = [each.getMessage() for each in caplog.records]
            assert sum("no broker has responded for 0 s" in each for each in texts) == n_silences
            assert sum("s without any" in each for each in texts) == n_silences


def test_a_refusal_is_final(brokers: list[FakeBroker]) -> None:
    """No other server is tried with credentials that one refused: accounts get locked."""
    brokers[0].on[ApiVersionsRequest] = lambda request, version: versions_response()
    settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    from pykafka_wire.wire.protocol.messages.handshake import SaslHandshakeRequest, SaslHandshakeResponse

    brokers[0].on[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(error_code=33)
    cluster = cluster_of(brokers[0].address, brokers[1].address, sasl_username="u", sasl_password="p", **settings)
    with pytest.raises(AuthenticationError):
        cluster.metadata.brokers()
    assert [each.n_connections for each in brokers] == [1, 0, 0]


def test_a_bootstrap_connection_to_a_broker_is_kept(brokers: list[FakeBroker]) -> None:
    with cluster_of(brokers[0].address) as cluster:
        cluster.metadata.brokers()
        cluster.send(1, MetadataRequest(topics=[])).result(Deadline.after_ms(5_000))
        assert brokers[0].n_connections == 1


def test_a_bootstrap_connection_to_another_name_is_closed(brokers: list[FakeBroker]) -> None:
    with cluster_of(f"localhost:{brokers[0].port}") as cluster:
        cluster.metadata.brokers()
        cluster.send(1, MetadataRequest(topics=[])).result(Deadline.after_ms(5_000))
        assert brokers[0].n_connections == 2


def test_known_brokers_are_asked_before_the_bootstrap_servers(brokers: list[FakeBroker]) -> None:
    with FakeBroker(9) as seed:
        seed.peers = brokers[0].peers
        with cluster_of(seed.address) as cluster:
            cluster.metadata.brokers()
            seed.close()
            brokers[0].close()
            assert cluster.metadata.topics([]) == {}
            cluster.metadata.invalidate("t")
            assert cluster.metadata.topics(None) == {}


def move(seed: FakeBroker) -> FakeBroker:
    """The broker that `seed` names dies; from now on it names another one."""
    old, new = seed.peers[1], FakeBroker(1)
    seed.peers = {1: new}
    old.close()
    return new


def test_when_no_known_broker_responds_the_bootstrap_servers_are_asked_again() -> None:
    with FakeBroker(9) as seed, FakeBroker(1) as old:
        seed.peers = {1: old}
        with cluster_of(seed.address) as cluster:
            assert cluster.metadata.brokers()[1].port == old.port
            with move(seed) as new:
                cluster.metadata.topics(None)
                assert cluster.metadata.brokers()[1].port == new.port


def test_with_recovery_turned_off_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker(9) as seed, FakeBroker(1) as old:
        seed.peers = {1: old}
        with cluster_of(seed.address, metadata_recovery_strategy="none") as cluster:
            cluster.metadata.brokers()
            with move(seed), pytest.raises(NoBrokerAvailableError) as raised:
                cluster.metadata.topics(None, deadline=Deadline.after_ms(500))
            assert [address for address, _ in raised.value.attempts] == [old.address]


def test_brokers_that_stay_silent_for_long_are_forgotten() -> None:
    """KIP-1102: what responds at their addresses may be another cluster's by now."""
    with FakeBroker(9) as seed, FakeBroker(1) as old:
        seed.peers = {1: old}
        settings: dict[str, Any] = {
            "socket_connection_setup_timeout_ms": 200,
            "metadata_recovery_rebootstrap_trigger_ms": 300,
        }
        with cluster_of(seed.address, **settings) as cluster:
            cluster.metadata.brokers()
            old.silent = seed.silent = True
            with pytest.raises(NoBrokerAvailableError):
                cluster.metadata.topics(None, deadline=Deadline.after_ms(600))
            seed.silent = False
            with FakeBroker(1) as new:
                seed.peers = {1: new}
                n_before = old.n_connections
                cluster.metadata.topics(None)
                assert old.n_connections == n_before
                assert cluster.metadata.brokers()[1].port == new.port


def test_a_broker_may_ask_for_a_new_bootstrap() -> None:
    """KIP-1102: REBOOTSTRAP_REQUIRED comes from Metadata version 13 on."""
    with FakeBroker(9) as seed, FakeBroker(1) as old, FakeBroker(1) as new:
        for each in (seed, old, new):
            each.on[ApiVersionsRequest] = lambda request, version: versions_response({**VERSIONS, 3: (0, 13)})
        seed.peers = {1: old}
        new.topics = seed.topics = {"t": {0: (1, 5)}}
        with cluster_of(seed.address) as cluster:
            cluster.metadata.brokers()
            old.on[MetadataRequest] = lambda request, version: MetadataResponse(error_code=129)
            seed.peers = {1: new}
            assert list(cluster.metadata.topics(["t"])) == ["t"]
            assert cluster.metadata.brokers()[1].port == new.port


def refuse_others(broker: FakeBroker, cluster_id: str) -> list[ApiVersionsRequest]:
    """Have it respond as Kafka 4.4 does to a client that means another broker, or another cluster; what it is asked."""
    asked: list[ApiVersionsRequest] = []

    def response(request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        asked.append(request)
        meant = request.node_id in (-1, broker.node_id) and request.cluster_id in (None, cluster_id)
        return versions_response({**VERSIONS, 18: (0, 5)}, error_code=0 if meant else 129)

    broker.on[ApiVersionsRequest] = response
    broker.cluster_id = cluster_id
    return asked


def test_a_broker_that_is_not_the_one_that_is_meant_is_left_and_the_client_bootstraps_again() -> None:
    """KIP-1242: the address of broker 1 leads to a broker of another cluster by now."""
    with FakeBroker(9) as seed, FakeBroker(1) as other, FakeBroker(1) as new:
        for each, cluster_id in ((seed, "ours"), (new, "ours"), (other, "theirs")):
            refuse_others(each, cluster_id)
            each.topics = {"t": {0: (1, 5)}}
        other.peers = {1: other}
        seed.peers = {1: other}
        new.peers = {1: new}
        with cluster_of(seed.address) as cluster:
            cluster.metadata.brokers()
            seed.peers = {1: new}
            assert cluster.metadata.brokers(refresh=True)[1].port == new.port
            # The known brokers give no metadata where one of them is another's: it might be theirs.
            assert not [each for each in other.requests if isinstance(each, MetadataRequest)]


def test_a_broker_that_is_not_the_one_that_is_meant_ends_in_an_error_that_names_it() -> None:
    with FakeBroker(9) as seed, FakeBroker(1) as other:
        refuse_others(seed, "ours")
        refuse_others(other, "theirs")
        seed.peers = {1: other}
        with cluster_of(seed.address) as cluster:
            cluster.metadata.brokers()
            with pytest.raises(
                DeadlineExceededError, match=r"not broker 1 of cluster ours.*ApiVersions v5.*advertised"
            ) as raised:
                cluster.request(1, MetadataRequest(topics=[]), deadline=Deadline.after_ms(2_000))
            assert isinstance(raised.value.__cause__, MisroutedConnectionError)


@pytest.mark.parametrize("off", [{"metadata_cluster_check_enable": False}, {"metadata_recovery_strategy": "none"}])
def test_without_the_check_no_broker_is_asked_who_it_is(off: dict[str, Any]) -> None:
    with FakeBroker(9) as seed, FakeBroker(1) as other:
        refuse_others(seed, "ours")
        asked = refuse_others(other, "theirs")
        seed.peers = {1: other}
        with cluster_of(seed.address, **off) as cluster:
            cluster.metadata.brokers()
            cluster.metadata.brokers(refresh=True)
            assert asked and all(each.node_id == -1 and each.cluster_id is None for each in asked)


def test_a_connection_that_breaks_under_the_question_is_not_the_end(brokers: list[FakeBroker]) -> None:
    responses = iter([CLOSE, CLOSE])
    brokers[0].on[MetadataRequest] = lambda request, version: (
        next(responses, None) or brokers[0].metadata(request, version)
    )
    with cluster_of(brokers[0].address) as cluster:
        assert set(cluster.metadata.brokers()) == {1, 2, 3}
