"""Connections that are opened in threads: ready at once, later, or with an error."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pykafka_wire.wire.cluster.client import BrokerReadiness
from pykafka_wire.wire.errors import TransportError
from tests.wire.fake_broker import FakeBroker
from tests.wire.fake_fetch import client, two_brokers


@pytest.fixture
def brokers() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with two_brokers() as both:
        yield both


def test_a_connection_is_opened_once_and_then_ready(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    first, second = brokers
    with client(first) as cluster:
        cluster.metadata.topics(["t"])
        opener = BrokerReadiness(cluster, "fetch")
        assert not cluster.is_connected(2, purpose="fetch")
        await_ready(opener, 2)
        assert cluster.is_connected(2, purpose="fetch")
        assert not cluster.is_connected(2, purpose="another")
        assert opener.ready(2)
    assert second.n_connections == 1


def test_a_handshake_without_response_is_not_waited_for_and_fails_in_time(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = brokers
    with client(first, socket_connection_setup_timeout_ms="3000") as cluster:
        cluster.metadata.topics(["t"])
        second.silent = True
        opener = BrokerReadiness(cluster, "fetch")
        began = time.monotonic()
        assert not opener.ready(2)
        assert time.monotonic() - began < 2.8
        with pytest.raises(TransportError):
            await_ready(opener, 2)
        second.silent = False
        await_ready(opener, 2)


def await_ready(opener: BrokerReadiness, node_id: int) -> None:
    deadline = time.monotonic() + 30
    while not opener.ready(node_id):
        assert time.monotonic() < deadline
        time.sleep(0.02)
