"""When a broker is connected to again after failed attempts."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from pykafka_wire.wire.cluster.connection_pool import GENERAL, ConnectionPool, Reconnects
from pykafka_wire.wire.cluster.metadata_cache import Broker
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import TransportError
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker


def settings(first_ms: int, most_ms: int) -> ClientSettings:
    return ClientSettings.from_options(
        {
            "bootstrap.servers": "h:1",
            "reconnect.backoff.ms": str(first_ms),
            "reconnect.backoff.max.ms": str(most_ms),
        }
    )


def early_s(reconnects: Reconnects) -> float:
    (failure,) = reconnects._failures.values()
    return failure.retry_at - time.monotonic()


def test_each_failure_doubles_the_pause_up_to_the_longest_and_a_success_ends_it() -> None:
    reconnects = Reconnects(settings(100_000, 300_000))
    for least, most in ((80, 120), (160, 240), (240, 360), (240, 360)):
        reconnects.record_failure("h", 1, TransportError("refused", broker="7 (h:1)", remedy="Start it."))
        assert least - 5 < early_s(reconnects) <= most
    with pytest.raises(TransportError, match="refused") as raised:
        reconnects.require_due("h", 1)
    assert (raised.value.broker, raised.value.remedy) == ("7 (h:1)", "Start it.")
    reconnects.require_due("h", 2)
    reconnects.record_success("h", 1)
    reconnects.require_due("h", 1)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # bound and not listening: connections are refused, and nobody else gets the port
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_broker_is_not_connected_to_within_the_pause(closed_port: int) -> None:
    pool = ConnectionPool(settings(600_000, 600_000), Trace(""), ClientCounters())
    node = Broker(1, "127.0.0.1", closed_port, None)
    with pytest.raises(TransportError, match="refused") as first:
        pool.get(node, GENERAL, Deadline.after_ms(10_000))
    for purpose in (GENERAL, "fetch"):
        with pytest.raises(TransportError, match="refused") as again:
            pool.get(node, purpose, Deadline.after_ms(10_000))
        assert again.value.__cause__ is first.value  # no other attempt
        assert str(again.value) == str(first.value)
    with pytest.raises(TransportError, match="refused") as seed:
        pool.open_seed("127.0.0.1", closed_port, Deadline.after_ms(10_000))
    assert seed.value.__cause__ is first.value


def test_a_broker_that_closes_an_open_connection_is_connected_to_at_once() -> None:
    """Brokers close idle connections: only failed attempts count."""
    pool = ConnectionPool(settings(600_000, 600_000), Trace(""), ClientCounters())
    with FakeBroker() as broker:
        node = Broker(1, "127.0.0.1", broker.port, None)
        first = pool.get(node, GENERAL, Deadline.after_ms(10_000))
        first.close()
        assert pool.get(node, GENERAL, Deadline.after_ms(10_000)) is not first
        pool.close()


def test_waiting_ends_when_an_attempt_is_due_or_the_deadline_is_over() -> None:
    reconnects = Reconnects(settings(40, 40))
    reconnects.record_failure("h", 1, TransportError("refused"))
    reconnects.wait_until_due("h", 1, Deadline.after_ms(60_000))
    reconnects.require_due("h", 1)
    slow = Reconnects(settings(600_000, 600_000))
    slow.record_failure("h", 1, TransportError("refused"))
    slow.wait_until_due("h", 1, Deadline.after_ms(10))
    with pytest.raises(TransportError):
        slow.require_due("h", 1)
