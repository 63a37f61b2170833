"""What topics hold, and how they are filled: plain, transactional with aborted records, or compacted.

Plain and compacted ones are written by the JVM connector, whose producer makes batches as Java applications do: full ones
of ``batch.size`` bytes after compression. Values are JSON-like text that lz4 shrinks to about a half.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from rig import Rig

#: librdkafka reports each connection that ends, those of the cluster's own end included.
QUIET: Final[Mapping[str, int]] = {"log_level": 2}

_KEY_BYTES = 8
# One JSON field, `"f0":"0123ABCD",`; values of more than so many are repetitions.
_FIELD_BYTES = 16
_MOST_FIELDS = 128
_TRANSACTION_RECORDS = 5_000
#: One transaction in this many is aborted, after its records have been written.
_ABORTED_EVERY = 5
_SEND_S = 60
_COMPACTED_S = 240


class Filled(Protocol):
    """A topic and its content: equal ones are written once."""

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    @property
    def topic_config(self) -> Mapping[str, str]: ...

    def fill(self, rig: Rig) -> int:
        """The number of records that readers of the topic, which exists and is empty, will see once this is done."""

    def __hash__(self) -> int: ...


class Log(Enum):
    """The state of a topic's records."""

    PLAIN = ""
    TRANSACTIONAL = "transactional"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What a topic holds: `n_records` of `record_bytes` each, spread evenly.

    8 bytes of a record are its key; one that is not larger has none. A transactional log has aborted records besides; a
    compacted one has held each record twice.
    """

    n_records: int
    record_bytes: int = 100
    codec: str = "none"
    batch_bytes: int = 16 * 1024
    partitions: int = 4
    headers: int = 0
    log: Log = Log.PLAIN

    @property
    def has_key(self) -> bool:
        return self.record_bytes > _KEY_BYTES

    @property
    def value_bytes(self) -> int:
        return self.record_bytes - _KEY_BYTES if self.has_key else self.record_bytes

    @property
    def topic(self) -> str:
        headers = f"-{self.headers}h" if self.headers else ""
        log = f"-{self.log.value}" if self.log.value else ""
        return (
            f"bench-{self.n_records}x{self.record_bytes}-{self.codec}-"
            f"{self.batch_bytes // 1024}k-{self.partitions}p{headers}{log}"
        )

    @property
    def topic_config(self) -> dict[str, str]:
        """The topic's settings."""
        config = {"compression.type": "producer"}
        if self.log is Log.COMPACTED:
            segment_bytes = max(1 << 20, self.n_records * self.record_bytes // self.partitions // 8)
            config |= {
                "cleanup.policy": "compact",
                "segment.bytes": str(segment_bytes),
                "min.cleanable.dirty.ratio": "0.01",
            }
        return config

    def fill(self, rig: Rig) -> int:
        """The number of records that readers of the topic, which exists and is empty, will see once this is done."""
        spark, servers = rig.spark, rig.bootstrap_servers
        if self.log is Log.TRANSACTIONAL:
            _write_transactions(servers, self)
        else:
            _write(spark, servers, self)
        if self.log is Log.COMPACTED:
            _await_compaction(spark, servers, self)
            # What was not cleaned yet stays as it is, or a later run would read something else.
            entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
            rig.admin.incremental_alter_configs([resource])[resource].result()
        n_records = count_committed(spark, servers, self.topic)
        if self.log is not Log.COMPACTED and n_records != self.n_records:
            raise RuntimeError(f"{self.topic} holds {n_records} records, not {self.n_records}")
        return n_records


def rows(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The rows of `dataset`, made by Spark: key, value, partition and headers."""
    key = f"cast(lpad(cast(id as string), {_KEY_BYTES}, '0') as binary)" if dataset.has_key else "cast(null as binary)"
    columns = [
        f"{key} as key",
        f"cast({_value_sql(dataset.value_bytes)} as binary) as value",
        f"cast(id % {dataset.partitions} as int) as partition",
    ]
    if dataset.headers:
        structs = (
            f"struct('header-{i}' as key, cast(hex(hash(id)) as binary) as value)" for i in range(dataset.headers)
        )
        columns.append(f"array({', '.join(structs)}) as headers")
    times = 2 if dataset.log is Log.COMPACTED else 1
    ids = spark.range(dataset.n_records * times, numPartitions=2).selectExpr(f"id % {dataset.n_records} as id")
    return ids.selectExpr(*columns)


def count_committed(spark: SparkSession, bootstrap_servers: str, topic: str) -> int:
    """The records of a topic but for aborted ones, as the JVM connector counts them."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers).option("subscribe", topic)
    reader = reader.option("kafka.isolation.level", "read_committed").option("kafka.fetch.max.wait.ms", "10")
    return int(reader.load().count())


@contextlib.contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """`frame` cached in memory, so that the measurement does not include computing it."""
    frame = frame.cache()
    frame.count()
    try:
        yield frame
    finally:
        frame.unpersist(blocking=True)


def _write(spark: SparkSession, bootstrap_servers: str, dataset: Dataset) -> None:
    settings: dict[str, object] = {
        "topic": dataset.topic,
        "kafka.compression.type": dataset.codec,
        "kafka.batch.size": dataset.batch_bytes,
        "includeHeaders": dataset.headers > 0,
    }
    write_records(rows(spark, dataset), bootstrap_servers, settings)


def write_records(frame: DataFrame, bootstrap_servers: str, settings: Mapping[str, object]) -> None:
    """Writes `frame` by the JVM connector, in batches that leave because they are full."""
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    for name, value in {"kafka.linger.ms": 200, "kafka.buffer.memory": 64 << 20, **settings}.items():
        writer = writer.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    writer.mode("append").save()


def _write_transactions(bootstrap_servers: str, dataset: Dataset) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": dataset.topic,
            "compression.type": dataset.codec,
            "batch.size": dataset.batch_bytes,
            "linger.ms": 50,
            **QUIET,
        }
    )
    producer.init_transactions(_SEND_S)
    n_written = nth = 0
    while n_written < dataset.n_records:
        n = min(_TRANSACTION_RECORDS, dataset.n_records - n_written)
        producer.begin_transaction()
        for i in range(n_written, n_written + n):
            value = (b'{"id":%d,"digits":%d}' % (i, i * 2_654_435_761)).ljust(dataset.value_bytes, b".")
            producer.produce(dataset.topic, value=value, key=b"%08d" % i, partition=i % dataset.partitions)
        producer.poll(0)
        if producer.flush(_SEND_S):
            raise KafkaException(f"{dataset.topic} was not written within {_SEND_S} s")
        nth += 1
        if nth % _ABORTED_EVERY:
            producer.commit_transaction(_SEND_S)
            n_written += n
        else:
            producer.abort_transaction(_SEND_S)


def _await_compaction(spark: SparkSession, bootstrap_servers: str, dataset: Dataset) -> None:
    """Waits until the cleaner has nothing more to do: the count is near that of the keys, and has not changed twice."""
    until = time.monotonic() + _COMPACTED_S
    counts = [2 * dataset.n_records]
    while len(counts) < 3 or counts[-1] > 1.5 * dataset.n_records or len(set(counts[-3:])) > 1:
        if time.monotonic() > until:
            raise TimeoutError(f"{dataset.topic} was not compacted within {_COMPACTED_S} s: {counts[-3:]} records")
        time.sleep(2)
        counts.append(count_committed(spark, bootstrap_servers, dataset.topic))


def _value_sql(n_bytes: int) -> str:
    """An SQL expression for `n_bytes` of JSON-like text, different for every id: fixed names, pseudo-random values."""
    n_fields = n_bytes // (_FIELD_BYTES - 1) + 1
    fields = (f"""'"f{i}":"', hex(hash(id, {i}) & 4294967295), '",'""" for i in range(min(n_fields, _MOST_FIELDS)))
    text = f"concat({', '.join(fields)})"
    if n_fields > _MOST_FIELDS:
        text = f"repeat({text}, {n_fields // _MOST_FIELDS + 1})"
    return f"rpad({text}, {n_bytes}, '.')"
