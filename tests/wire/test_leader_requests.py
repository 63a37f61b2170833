"""Which brokers can be sent to: connections that are opened in threads are ready at once, later, or with an error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pykafka_wire.wire.cluster.leader_requests import LeaderRequests
from pykafka_wire.wire.deadline import Deadline
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
        requests = LeaderRequests[Any](cluster, "fetch")
        assert cluster.throttled_s(2, purpose="fetch") is None
        await_reachable(requests, 2)
        assert cluster.throttled_s(2, purpose="fetch") == 0
        assert cluster.throttled_s(2, purpose="another") is None
        assert list(requests.reachable([2])) == [(2, None)]
    assert second.n_connections == 1


def test_a_handshake_without_response_is_not_waited_for_and_fails_in_time(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = brokers
    with client(first, socket_connection_setup_timeout_ms="3000") as cluster:
        cluster.metadata.topics(["t"])
        second.silent = True
        requests = LeaderRequests[Any](cluster, "fetch")
        began = time.monotonic()
        assert list(requests.reachable([2])) == []
        assert list(requests.held_up) == [2]
        assert time.monotonic() - began < 2.8
        with pytest.raises(TransportError):
            await_reachable(requests, 2)
        second.silent = False
        await_reachable(requests, 2)


def test_why_a_connection_failed_long_ago_is_no_error_of_now(
    brokers: tuple[FakeBroker, FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that led nothing meanwhile leads again."""
    first, second = brokers
    with client(first, socket_connection_setup_timeout_ms="500") as cluster:
        cluster.metadata.topics(["t"])
        second.silent = True
        requests = LeaderRequests[Any](cluster, "fetch")
        assert list(requests.reachable([2])) == []
        assert requests._opening[2].wait(Deadline.after_ms(10_000))
        second.silent = False
        monkeypatch.setattr("pykafka_wire.wire.cluster.leader_requests._OPENED_S", 0.0)
        assert [error for _, error in requests.reachable([2])] in ([], [None])


def test_brokers_that_are_connected_come_before_others(brokers: tuple[FakeBroker, FakeBroker]) -> None:
    first, _ = brokers
    with client(first) as cluster:
        cluster.metadata.topics(["t"])
        requests = LeaderRequests[Any](cluster, "fetch")
        await_reachable(requests, 2)
        assert next(requests.reachable([1, 2])) == (2, None)


def await_reachable(requests: LeaderRequests[Any], node_id: int) -> None:
    deadline = time.monotonic() + 30
    while not (reachable := list(requests.reachable([node_id]))):
        assert time.monotonic() < deadline
        assert requests.next_response([]) is None  # waits until the broker is to be looked at again
    for _, error in reachable:
        if error is not None:
            raise error
