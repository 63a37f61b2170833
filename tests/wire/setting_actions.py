"""What the rows of tests/wire/test_setting_effects.py do with a setting, and what they look at."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire import Consumer, TopicPartition, WireError
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.produce.producer import Producer
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.effects import TIMEOUT_S, Rig
from tests.wire.fake_broker import CLOSE, FakeBroker
from tests.wire.test_producer import encode

# --- what the trace of an action has, with the setting and without ----------------------------------------------------


def write(rig: Rig, options: dict[str, str]) -> None:
    rig.write(options, rig.topic(), [b"a"])


def read(rig: Rig, options: dict[str, str]) -> None:
    topic = rig.topic()
    rig.write({}, topic, [b"a"])
    consumer = rig.make(Consumer, options)
    consumer.assign({TopicPartition(topic, 0): 0})
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.poll(500):
        assert time.monotonic() < deadline


def transact(rig: Rig, options: dict[str, str]) -> None:
    cluster = rig.cluster(options)
    Transaction.begin(cluster, uuid.uuid4().hex).abort()


def join(rig: Rig, options: dict[str, str]) -> None:
    consumer = rig.make(Consumer, {"group.id": uuid.uuid4().hex, **options})
    consumer.subscribe([rig.topic()])
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.assignment:
        consumer.poll(100)
        assert time.monotonic() < deadline


def join_by_heartbeat(rig: Rig, options: dict[str, str]) -> None:
    join(rig, {"group.protocol": "consumer", **options})


# --- how it is looked at ----------------------------------------------------------------------------------------------


def opened(rig: Rig, options: dict[str, str], address: str) -> None:
    host, _, port = address.rpartition(":")
    connection = Connection(host, int(port), rig.settings(options), Trace(""), "broker")
    with pytest.raises(WireError):
        connection.open(Deadline.after_ms(60_000))


def buffer_of(rig: Rig, options: dict[str, str], which: int) -> int:
    settings = rig.settings(options)
    connection = Connection(*settings.bootstrap_servers[0], settings, Trace(""), "broker").open(
        Deadline.after_ms(60_000)
    )
    try:
        assert connection.readable_at is not None
        with socket.socket(fileno=os.dup(connection.readable_at)) as same:
            return same.getsockopt(socket.SOL_SOCKET, which)
    finally:
        connection.close()


def polled(consumer: Consumer) -> list[Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if found := list(consumer.poll(500)):
            return found
    raise AssertionError("nothing came")


def batch_sizes(log: Path) -> list[int]:
    """The size of each record batch of a segment; zeros follow where the file was allocated ahead."""
    content, at, sizes = log.read_bytes(), 0, []
    while at + 12 <= len(content) and (size := int.from_bytes(content[at + 8 : at + 12], "big")):
        sizes.append(12 + size)
        at += 12 + size
    return sizes


def sent_unasked(rig: Rig, options: dict[str, str]) -> bool:
    """Whether batches leave before anybody asks for it."""
    producer, topic = Producer(rig.cluster(options)), rig.topic()
    before = len(rig.trace("-> Produce"))
    for value in (b"a" * 200, b"b" * 200):
        producer.append(topic, 0, encode([value]))
    unasked = len(rig.trace("-> Produce")) > before
    producer.flush()
    return unasked


def uses_both_partitions(rig: Rig, options: dict[str, str]) -> bool:
    topic = rig.topic(2)
    rig.write(options, topic, [b"a"] * 10, key=b"always the same")
    return all(batch_sizes(rig.log(topic, partition)) for partition in (0, 1))


def n_failed_lookups(rig: Rig, options: dict[str, str]) -> int:
    """How often a topic is asked for within two seconds that is not there."""
    name = uuid.uuid4().hex
    cluster = rig.cluster(options)
    cluster.metadata.brokers()
    with pytest.raises(WireError):
        cluster.metadata.topics([name], deadline=Deadline.after_ms(2_000))
    return sum("-> Metadata" in line for line in rig.trace(name))  # all topics are asked for once, to suggest one


def commits(rig: Rig, options: dict[str, str]) -> tuple[bool, bool]:
    """Whether a consumer that polls has committed, and whether it has once it is closed."""
    topic = rig.topic()
    rig.write({}, topic, [b"a"])
    before = len(rig.trace("-> OffsetCommit"))
    consumer = Consumer(rig.settings({"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", **options}))
    consumer.assign([TopicPartition(topic, 0)])
    polled(consumer)
    consumer.poll(0)
    consumer._commits._end_auto_commit(Deadline.after_ms(30_000))  # it is sent by a thread of its own, if it is due
    while_open = len(rig.trace("-> OffsetCommit")) > before
    consumer.close()
    return while_open, len(rig.trace("-> OffsetCommit")) > before


def n_failed_connections(rig: Rig, options: dict[str, str]) -> int:
    """How often a broker is connected to within two seconds that closes each connection at its first request."""
    with FakeBroker() as broker:
        broker.on[ApiVersionsRequest] = lambda *_: CLOSE
        times = {"retry.backoff.ms": "20", "retry.backoff.max.ms": "20", "default.api.timeout.ms": "2000"}
        rig.refused({"bootstrap.servers": broker.address} | times | options)
        return broker.n_connections
