"""Fetch responses of fake brokers: a log of ten records, two brokers that lead a partition each, and a client of theirs."""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykafka_wire.wire.records.compression import Codec
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.records.encode import encode_batches
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange
from tests.wire.fake_broker import FakeBroker

N_RECORDS = 10
VALUES = Columns(key=False, value=True, headers=False, timestamp=False, timestamp_type=False)


@contextlib.contextmanager
def two_brokers() -> Iterator[tuple[FakeBroker, FakeBroker]]:
    """Two brokers that know of each other; the first leads partition 0 of ``t``, the second partition 1."""
    with FakeBroker(1) as first, FakeBroker(2) as second:
        for broker in (first, second):
            broker.peers = {1: first, 2: second}
            broker.topics = {"t": {0: (1, 0), 1: (2, 0)}}
        yield first, second


def client(broker: FakeBroker, **options: str) -> Cluster:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Cluster(ClientSettings.from_options({"bootstrap.servers": broker.address, **named}))


def range_of(partition: int, end_offset: int = N_RECORDS) -> OffsetRange:
    return OffsetRange(topic="t", partition=partition, start_offset=0, end_offset=end_offset)


def asked_of(request: FetchRequest) -> FetchPartition:
    return request.topics[0].partitions[0]


def batch_at(offset: int, n_records: int = N_RECORDS, *, leader_epoch: int = -1, size: int = 0) -> memoryview:
    values = pa.array([(b"%d" % (offset + i)).ljust(size) for i in range(n_records)], pa.binary())
    (batch,) = encode_batches(
        key=None, value=values, headers=None, timestamp=np.zeros(n_records, np.int64), codec=Codec.NONE,
        max_batch_bytes=1 << 20,
    )  # fmt: skip
    struct.pack_into(">q", batch.data, 0, offset)
    struct.pack_into(">i", batch.data, 12, leader_epoch)  # neither is covered by the CRC
    return memoryview(batch.data)


def response(request: FetchRequest, topic_id: uuid.UUID = ZERO_UUID, **fields: object) -> FetchResponse:
    """One partition's response, for a log of ten records unless `fields` say otherwise."""
    data = {"high_watermark": N_RECORDS, "last_stable_offset": N_RECORDS, "records": memoryview(b""), **fields}
    partition = PartitionData(partition_index=asked_of(request).partition, **data)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=[partition])])
