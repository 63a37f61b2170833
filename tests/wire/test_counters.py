"""A client counts its requests, bytes, waits, throttling and retries."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pykafka_wire.wire import Consumer, RecordProducer, TopicPartition
from pykafka_wire.wire.connection.connection import Connection, first_to_arrive
from pykafka_wire.wire.connection.counters import ClientCounters, ClientTotals
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import TransportError
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykafka_wire.wire.settings import ClientSettings
from tests.wire.fake_broker import FakeBroker

ASK = MetadataRequest(topics=[])
PAUSE_S = 0.05


def test_requests_bytes_and_waits_are_counted() -> None:
    def response(request: Any, version: int) -> MetadataResponse:
        time.sleep(PAUSE_S)
        return MetadataResponse(throttle_time_ms=7)

    counters = ClientCounters()
    with FakeBroker() as broker:
        broker.on[MetadataRequest] = response
        settings = ClientSettings(bootstrap_servers=(("127.0.0.1", broker.port),))
        connection = Connection("127.0.0.1", broker.port, settings, Trace(""), "1", counters)
        connection.open(Deadline.after_ms(20_000))
        opened = counters.totals()
        assert (opened.connections_opened, opened.requests, opened.responses) == (1, 0, 0)
        first = connection.send(ASK)
        assert first_to_arrive([first], Deadline.after_ms(20_000)) is first
        assert counters.totals().since(opened).wait_s >= PAUSE_S * 0.9
        first.result(Deadline.after_ms(20_000))
        second = connection.send(ASK)
        second.result(Deadline.after_ms(20_000))
        connection.close()
    found = counters.totals().since(opened)
    assert (found.requests, found.responses, found.connections_opened) == (2, 2, 0)
    assert found.bytes_sent == first.sent.size + second.sent.size
    assert found.bytes_received > 20
    assert found.wait_s >= 2 * PAUSE_S * 0.9
    assert found.throttle_s == pytest.approx(0.014, abs=0.001)


def test_an_address_that_refuses_is_no_connection() -> None:
    with FakeBroker() as broker:
        port = broker.port
    settings = ClientSettings(bootstrap_servers=(("127.0.0.1", port),))
    connection = Connection("127.0.0.1", port, settings, Trace(""), "1")
    with pytest.raises(TransportError):
        connection.open(Deadline.after_ms(20_000))
    totals = connection.counters.totals()
    assert totals.connections_opened == 0 and totals.wait_s > 0


@pytest.mark.broker
def test_a_producer_and_a_consumer_have_their_totals(kafka: Any, topic: Any) -> None:
    name, settings = topic(1), {"bootstrap.servers": kafka.bootstrap_servers}
    with RecordProducer(settings) as producer:
        assert producer.metrics() == ClientTotals()
        producer.send(name, b"x" * 5_000)
        producer.flush()
        sent = producer.metrics()
    with Consumer(settings) as consumer:
        consumer.assign({TopicPartition(name, 0): 0})
        while not len(consumer.poll(1_000)):
            pass
        received = consumer.metrics()
    for totals in (sent, received):
        assert totals.connections_opened >= 1 and totals.requests >= totals.responses >= 2 and totals.wait_s > 0
    assert sent.bytes_sent > 5_000 > sent.bytes_received
    assert received.bytes_received > 5_000 > received.bytes_sent
