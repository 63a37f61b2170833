"""Records in and out by independent clients, and queries that run to the end of what is there."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import GroupIdNotFoundError, RetriableError

from pykafka_wire.local import LocalCluster
from tests.quick_start import JVM_OPTIONS
from tests.shared_servers import shared


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record as an independent client sends or sees it; ``offset`` is -1 before it is sent."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    offset: int = -1
    timestamp_ms: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _until(condition: Callable[[], Any], *, timeout_s: float = 60.0, what: str = "the condition") -> Any:
    """The first true value of ``condition``; fails after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.05)
    return found


#: librdkafka says on stderr that brokers went away at the end of the tests.
QUIET = {"log_level": 0}


class Outside:
    """Kafka as others see it: calls go through librdkafka, or kafka-python, and none through this package."""

    Record = Record

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, **QUIET})
        self._producers: dict[str, Producer] = {}

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none") -> None:
        """Send the records, each to its partition; returns when all are acknowledged."""
        if codec not in self._producers:
            settings = {"linger.ms": 20, "compression.type": codec}
            self._producers[codec] = Producer({"bootstrap.servers": self.servers, **QUIET, **settings})
        producer = self._producers[codec]
        errors: list[Any] = []
        for record in records:
            more: dict[str, Any] = {"timestamp": record.timestamp_ms} if record.timestamp_ms else {}
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, _: errors.append(error) if error else None,
                **more,
            )
        assert producer.flush(60) == 0
        assert not errors, errors

    def fill(self, topic: str, counts: Sequence[int], *, first: int = 0) -> list[tuple[int, bytes]]:
        """Send ``counts[p]`` records to each partition ``p``; returns (partition, value) of all."""
        number = itertools.count(first)
        records = [
            Record(value=b"%d" % next(number), partition=partition)
            for partition, count in enumerate(counts)
            for _ in range(count)
        ]
        self.produce(topic, records)
        return [(record.partition, record.value or b"") for record in records]

    def consume(self, topic: str, *, isolation_level: str = "read_uncommitted") -> list[Record]:
        """All records of a topic, by partition and offset."""
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": "outside",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 20,
            **QUIET,
        }
        consumer = Consumer(settings)
        try:
            partitions = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
            found, at_end = [], set()
            deadline = time.monotonic() + 60
            while len(at_end) < len(partitions):
                assert time.monotonic() < deadline, f"{topic} could not be read to its end"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    at_end.add(message.partition())
                    continue
                found.append(
                    Record(
                        key=message.key(),
                        value=message.value(),
                        partition=message.partition(),
                        offset=message.offset(),
                        timestamp_ms=message.timestamp()[1],
                        headers=tuple(message.headers() or ()),
                    )
                )
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Offsets that a group has committed.

        By kafka-python: while a coordinator loads, librdkafka's admin client ends this process with a segmentation fault
        (https://github.com/confluentinc/confluent-kafka-javascript/issues/374).
        """
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        deadline = time.monotonic() + 30
        try:
            while True:
                try:
                    found = admin.list_group_offsets(group)[group]
                    return {(tp.topic, tp.partition): each.offset for tp, each in found.items() if each.offset >= 0}
                except GroupIdNotFoundError:  # kfake's response for a group that was never used
                    return {}
                except RetriableError:
                    assert time.monotonic() < deadline, f"no coordinator responds for {group}"
                    time.sleep(0.05)
        finally:
            admin.close()

    def groups(self) -> set[str]:
        """Names of all groups."""
        return {group.group_id for group in self.admin.list_consumer_groups().result(30).valid}

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic and wait until every broker knows it."""
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
        _until(lambda: self._n_partitions(topic) == partitions, what=f"topic {topic}")

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self._producers.clear()  # their metadata are old
        self.admin.delete_topics([topic])[topic].result(30)
        _until(lambda: self._n_partitions(topic) == 0, what=f"the end of topic {topic}")

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions up to ``partitions``."""
        self._producers.clear()  # their metadata are old
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        _until(lambda: self._n_partitions(topic) == partitions, what=f"{partitions} partitions of {topic}")

    def age_out(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below an offset, as retention does."""
        asked = self.admin.delete_records([TopicPartition(topic, partition, before)])
        for future in asked.values():
            future.result(30)

    def _n_partitions(self, topic: str) -> int:
        every = self.admin.list_topics(timeout=30).topics
        return len(every[topic].partitions) if topic in every else 0


@pytest.fixture(scope="session")
def outside(kafka: Any) -> Iterator[Outside]:
    """An independent client of the test broker."""
    yield Outside(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def outside_of() -> Callable[[str], Outside]:
    """Makes an independent client of other brokers: ``outside_of(bootstrap_servers)``."""
    return Outside


class Queries:
    """Streaming queries into Parquet files, run to the end of what is there."""

    def __init__(self, spark: Any, servers: str, folder: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.table = folder / "table"

    def stream(self, **options: str) -> Any:
        """A streaming DataFrame of our source."""
        asked = {"kafka.bootstrap.servers": self.servers, "startingOffsets": "earliest"} | options
        return self.spark.readStream.format("pykafka-wire").options(**asked).load()

    def run(self, format: str = "parquet", **options: str) -> Any:
        """Run a query with AvailableNow; returns it, ended. Its rows are (partition, offset, value)."""
        query = (
            self.stream(**options)
            .select("topic", "partition", "offset", "value")
            .writeStream.format(format)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.table))
        )
        assert query.awaitTermination(120), "the query did not end"
        return query

    def logged_offsets(self) -> dict[str, Any]:
        """The offset that the checkpoint logged last: the end of a batch that may not be done."""
        return self._logged("offsets")

    def committed_offsets(self) -> dict[str, dict[str, int]]:
        """``{topic: {partition: offset}}`` up to which batches are done."""
        return self._logged("commits").get("offsets", {})  # type: ignore[no-any-return]

    def _logged(self, log: str) -> dict[str, Any]:
        folder = self.checkpoint / log
        batches = [int(file.name) for file in folder.iterdir() if file.name.isdigit()] if folder.exists() else []
        if not batches:
            return {}
        lines = (self.checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
        return json.loads(lines[-1])  # type: ignore[no-any-return]

    def rows(self, format: str = "parquet") -> list[tuple[int, int, bytes]]:
        """What was written so far: (partition, offset, value), sorted."""
        table = self.spark.read.format(format).load(str(self.table))
        return sorted((row.partition, row.offset, bytes(row.value)) for row in table.collect())


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    """Waits for a condition, with a deadline: ``until(lambda: …, what="…")``."""
    return _until


@pytest.fixture
def queries_of(spark: Any, tmp_path: Path) -> Callable[[str], Queries]:
    """Makes streaming queries on other brokers: ``queries_of(bootstrap_servers)``."""
    return lambda servers: Queries(spark, servers, tmp_path)


@pytest.fixture
def queries(spark: Any, kafka: Any, tmp_path: Path) -> Queries:
    """Streaming queries with one checkpoint and one table, of this test's own."""
    return Queries(spark, kafka.bootstrap_servers, tmp_path)


@pytest.fixture
def guarded_kafka(java: None, request: pytest.FixtureRequest) -> LocalCluster:
    """A broker with ACLs: whoever comes by a plaintext listener may do everything, alice and bob by SASL nothing."""
    users = " ".join(f'user_{name}="{name}-secret"' for name in ("alice", "bob"))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{login} {users};",
    }
    listeners = {"SASL": "SASL_PLAINTEXT"}
    brokers = LocalCluster(properties=properties, listeners=listeners, jvm_options=JVM_OPTIONS)
    return shared(request, lambda: brokers)


@pytest.fixture
def unreachable_kafka(java: None, request: pytest.FixtureRequest) -> LocalCluster:
    """A broker that tells its clients to come to an address where nobody listens."""
    properties = {"advertised.listeners": "INTERNAL://127.0.0.1:1,EXTERNAL://127.0.0.1:1"}
    brokers = LocalCluster(properties=properties, jvm_options=JVM_OPTIONS)
    return shared(request, lambda: brokers)
