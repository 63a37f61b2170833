"""Records produced and read back by ranges, for tests of bounded reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import confluent_kafka

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, list_offsets
from pykafka_wire.wire.fetch.range_read import FetchedRecords, fetch_ranges
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition

KEY_AND_VALUE = Columns(key=True, value=True, headers=False, timestamp=False, timestamp_type=False)


def cluster_of(brokers: Any, **options: str) -> Cluster:
    return Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers, **options}))


def produce(brokers: Any, topic: str, values: Iterable[tuple[int, bytes]], **config: object) -> None:
    """Writes (partition, value) pairs by an independent client."""
    # Idempotent, or a retry on a topic just made may put later records first.
    settings = {"bootstrap.servers": brokers.bootstrap_servers, "linger.ms": 5, "enable.idempotence": True, **config}
    producer = confluent_kafka.Producer(settings)
    for partition, value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def whole(cluster: Cluster, topic: str, isolation_level: str = "read_uncommitted") -> list[OffsetRange]:
    """A range for every partition, from offset 0 to its end, with the topic's id."""
    metadata = cluster.metadata.topics([topic])[topic]
    ends = list_offsets(
        cluster, dict.fromkeys([TopicPartition(topic, p) for p in metadata.partitions], LATEST),
        isolation_level=isolation_level,
    )  # fmt: skip
    return [
        OffsetRange(
            topic=topic, partition=tp.partition, start_offset=0, end_offset=end.offset, topic_id=metadata.topic_id
        )
        for tp, end in sorted(ends.items())
    ]


def rows_of(chunks: Iterable[FetchedRecords]) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) pairs by index of the range, in the order in which they came."""
    rows: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for chunk in chunks:
        records = chunk.records
        columns = zip(records.slice_index.tolist(), records.offset.tolist(), records.value.to_pylist(), strict=True)
        for index, offset, value in columns:
            rows[index].append((offset, value))
    return dict(rows)


def read(cluster: Cluster, ranges: Sequence[OffsetRange], **options: Any) -> dict[int, list[tuple[int, bytes]]]:
    return rows_of(fetch_ranges(cluster, ranges, columns=KEY_AND_VALUE, **options))


def numbered(n: int, partitions: int, size: int = 0) -> list[tuple[int, bytes]]:
    return [(i % partitions, str(i // partitions).encode().ljust(size, b".")) for i in range(n)]


def expected(n: int, size: int = 0) -> list[tuple[int, bytes]]:
    return [(i, str(i).encode().ljust(size, b".")) for i in range(n)]
