"""A client above its quota on a real broker: it waits for the throttle time, and nothing is lost."""

from __future__ import annotations

import re
import threading
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import DeadlineExceededError
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.produce.producer import PURPOSE, Producer
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition
from tests.wire.test_producer import VALUE_ONLY, encode, numbered, read, settings_of

pytestmark = [pytest.mark.broker, pytest.mark.needs("quotas set through brokers")]

#: Of a broker that looks back on one to two seconds: 40 KB are a second too much.
BYTES_A_SECOND = 20_000
N_RECORDS = 400
#: Both clocks are rounded to milliseconds.
ROUNDING = timedelta(milliseconds=2)


def waits(trace: Path, api: str) -> list[tuple[timedelta, timedelta]]:
    """Of each response that asked the client to wait: for how long, and how long it was until the next such request."""
    asked: list[tuple[datetime, timedelta]] = []
    waits: list[tuple[timedelta, timedelta]] = []
    for line in trace.read_text("utf-8").splitlines():
        time, direction = line.split(" ", 1)[0], re.search(rf" (->|<-) {api} ", line)
        throttle = re.search(r" throttle_time_ms=(\d+)", line)
        if direction and direction[1] == "->":
            now = datetime.strptime(time, "%H:%M:%S.%f")
            waits += [(wait, (now - at) % timedelta(days=1)) for at, wait in asked]
            asked = []
        elif direction and throttle:
            asked.append((datetime.strptime(time, "%H:%M:%S.%f"), timedelta(milliseconds=int(throttle[1]))))
    return waits


@pytest.fixture
def slow_client(kafka_tv1: Any) -> str:
    """A client id with a quota."""
    client = f"slow-{uuid.uuid4().hex[:8]}"
    rates = f"producer_byte_rate={BYTES_A_SECOND},consumer_byte_rate={BYTES_A_SECOND}"
    entity = ["--entity-type", "clients", "--entity-name", client]
    kafka_tv1.tool("kafka.admin.ConfigCommand", "--alter", "--add-config", rates, *entity)
    return client


def test_a_client_above_its_quota_waits_for_the_throttle_time(
    kafka_tv1: Any, topic: Any, slow_client: str, tmp_path: Path
) -> None:
    name, trace = topic(cluster=kafka_tv1), tmp_path / "trace"
    with Cluster(settings_of(kafka_tv1, client_id=slow_client, trace=trace)) as cluster:
        producer = Producer(cluster)
        for first, last in ((0, N_RECORDS), (N_RECORDS, N_RECORDS + 1)):
            producer.append(name, 0, encode(numbered(first, last)))
            producer.flush()
        assert read(cluster, name) == numbered(0, N_RECORDS + 1)
        throttled_s = cluster.counters.totals().throttle_s
    for api in ("Produce", "Fetch"):
        found = waits(trace, api)
        assert found, api
        assert all(waited >= asked - ROUNDING for asked, waited in found), (api, found)
        throttled_s -= sum(asked.total_seconds() for asked, _ in found)
    assert throttled_s > -0.1  # requests in flight may be throttled at the same time, which counts once


def test_the_wait_for_the_end_of_a_throttle_ends_when_its_deadline_is_cancelled(
    kafka_tv1: Any, topic: Any, slow_client: str
) -> None:
    """As when a member of a group is closed: its thread waits for the broker."""
    name = topic(cluster=kafka_tv1)
    with Cluster(settings_of(kafka_tv1, client_id=slow_client)) as cluster:
        producer = Producer(cluster)
        producer.append(name, 0, encode(numbered(0, 2 * N_RECORDS), max_batch_bytes=1 << 20))
        producer.flush()
        node, _ = cluster.metadata.leader(TopicPartition(name, 0))
        cancelled = threading.Event()
        threading.Timer(0.1, cancelled.set).start()
        began = time.monotonic()
        throttled_s = cluster.throttled_s(node, purpose=PURPOSE)
        assert throttled_s is not None
        assert throttled_s > 1
        with pytest.raises(DeadlineExceededError, match="throttles this client"):
            cluster.send(
                node,
                MetadataRequest(topics=[]),
                purpose=PURPOSE,
                deadline=Deadline.after_ms(60_000, cancelled=cancelled),
            )
        assert time.monotonic() - began < throttled_s - 0.5


def test_a_batch_that_a_quota_never_lets_through_is_reported(kafka_tv1: Any, topic: Any, slow_client: str) -> None:
    name = topic(cluster=kafka_tv1)
    with Cluster(settings_of(kafka_tv1)) as unlimited:
        producer = Producer(unlimited)
        producer.append(name, 0, encode(numbered(0, 5 * BYTES_A_SECOND // 100), max_batch_bytes=1 << 20))
        producer.flush()
    whole = OffsetRange(topic=name, partition=0, start_offset=0, end_offset=1)
    with (
        Cluster(settings_of(kafka_tv1, client_id=slow_client)) as cluster,
        pytest.raises(DeadlineExceededError, match=r"throttles this client.*consumer_byte_rate"),
    ):
        list(fetch_ranges(cluster, [whole], columns=VALUE_ONLY, deadline_ms=500))
