"""Records for transactions, and those that committed readers see."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.encode import encode_batches
from tests.broker_features import lacking

ClusterOf = Callable[..., Cluster]
DESCRIBED = not lacking(["transactions that are described"])
described = pytest.mark.needs("transactions that are described")


def encode(*values: bytes, max_records: int = 2) -> list[EncodedBatch]:
    return encode_batches(
        key=None,
        value=pa.array(values, pa.binary()),
        headers=None,
        timestamp=np.full(len(values), int(time.time() * 1000), np.int64),
        codec=Codec.NONE,
        max_batch_bytes=16_384,
        max_records=max_records,
    )


def committed_values(brokers: Any, topic: str, partitions: int = 1) -> list[list[bytes]]:
    """What a read_committed reader of another client sees, by partition; fails where it cannot get to the end."""
    settings = {
        "bootstrap.servers": brokers.bootstrap_servers,
        "group.id": "outside",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    start = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, p, start) for p in range(partitions)])
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    deadline = time.monotonic() + 60
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, "an open transaction holds the reader up"
            message = consumer.poll(1.0)
            if message is not None and message.error() is not None:
                at_end.add(message.partition())
            elif message is not None:
                values[message.partition()].append(message.value())
    finally:
        consumer.close()
    return values
