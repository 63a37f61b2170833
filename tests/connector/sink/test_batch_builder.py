"""The record batches of a task's rows: each row in its topic-partition, in order. No broker is needed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from pykafka_wire.errors import WriteError
from pykafka_wire.options.sink import parse_sink_options
from pykafka_wire.sink import batch_builder
from pykafka_wire.sink.batch_builder import BatchBuilder
from pykafka_wire.sink.columns import RecordColumns
from pykafka_wire.wire.records.batches import EncodedBatch
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.oracle import decode_batches, murmur2

N_PARTITIONS = {"orders": 7, "returns": 1, "wide": 300}
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class Destination:
    """What a builder asks of a producer."""

    def partitions_for(self, topic: str) -> int:
        return N_PARTITIONS[topic]

    def max_batch_bytes(self, topic: str) -> int | None:
        return 3_000 if topic == "orders" else None

    def append(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        raise NotImplementedError


def records(n_records: int, seed: int, topics: list[str] | None, partitions: list[int | None] | None) -> RecordColumns:
    rng = random.Random(seed)
    keys = [b"key %d" % rng.randrange(500) * rng.randrange(1, 3) for _ in range(n_records)]
    return RecordColumns(
        n_records=n_records,
        key=pa.array(keys, pa.binary()),
        value=pa.array(
            [None if nth % 9 == 0 else rng.randbytes(rng.randrange(90)) for nth in range(n_records)], pa.binary()
        ),
        headers=pa.array([[{"key": "n", "value": b"%d" % nth}] for nth in range(n_records)], HEADERS),
        topic=None if topics is None else pa.array(topics, pa.string()),
        partition=None if partitions is None else pa.array(partitions, pa.int32()),
        timestamp_ms=np.arange(n_records, dtype=np.int64) + 1_700_000_000_000,
    )


def builder(**options: str) -> BatchBuilder:
    return BatchBuilder(Destination(), parse_sink_options({"kafka.bootstrap.servers": "b:1"} | options))


@pytest.mark.parametrize("together_bytes", [1, 20_000, 16 << 20])
@pytest.mark.parametrize("topic", ["orders", "returns", "wide", None])
def test_each_row_is_in_its_topic_partition_in_order(
    topic: str | None, together_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_builder, "_TOGETHER_BYTES", together_bytes)
    building = builder() if topic is None else builder(topic=topic)
    found = defaultdict(list)
    expected = defaultdict(list)
    n_rows: dict[TopicPartition, int] = defaultdict(int)
    rng = random.Random(7)
    for seed in range(3):  # a task's Arrow batches
        topics = None if topic is not None else [rng.choice(list(N_PARTITIONS)) for _ in range(1_000)]
        partitions = [rng.choice((None, None, 0)) for _ in range(1_000)]
        given = records(1_000, seed, topics, partitions)
        for built in building.build(given):
            tp = TopicPartition(built.topic, built.partition)
            for batch in built.batches:
                assert batch.first_row == n_rows[tp]
                n_rows[tp] += batch.n_records
                found[tp] += [(r.key, r.value, r.headers, r.timestamp) for r in decode_batches(bytes(batch.data))]
        rows = zip(given.key.to_pylist(), given.value.to_pylist(), given.timestamp_ms.tolist(), strict=True)
        for nth, (key, value, timestamp) in enumerate(rows):
            name = topics[nth] if topics is not None else topic
            assert name is not None
            place = partitions[nth]
            if place is None:
                place = (murmur2(key) & 0x7FFFFFFF) % N_PARTITIONS[name]
            expected[TopicPartition(name, place)].append((key, value, [("n", b"%d" % nth)], timestamp))
    assert found == expected


def test_no_rows_are_no_batches() -> None:
    assert list(builder(topic="orders").build(records(0, 0, None, None))) == []


def test_a_partition_that_the_topic_lacks_is_refused() -> None:
    with pytest.raises(WriteError, match="names partition 7 of topic orders, which has 7 partitions"):
        list(builder(topic="orders").build(records(3, 0, None, [0, 7, 1])))
