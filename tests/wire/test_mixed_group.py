"""One group of three clients: ours, kafka-python and Java's. Partitions are handed over, none lost, none owned twice."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import kafka as kafka_python
import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from pykafka_wire.local.jars import KAFKA_VERSION, classpath, kafka_jars
from pykafka_wire.local.java import ensure_java
from pykafka_wire.wire import Consumer

pytestmark = pytest.mark.broker

MEMBER = Path(__file__).parent.parent / "conformance" / "Member.java"
N_PARTITIONS = 6
TIMEOUT_S = 90.0
THEIRS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
JAVAS = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}


class Event(NamedTuple):
    """What a member said: assigned or revoked partitions, at a time of the clock that all processes share."""

    at: float
    what: str
    partitions: tuple[int, ...]


class Member(threading.Thread):
    """A member in a thread of its own: what it owned and when, and the records it read, as (partition, offset)."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.events: list[Event] = []
        self.records: list[tuple[int, int]] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def tell(self, what: str, partitions: Any) -> None:
        self.events.append(Event(time.monotonic(), what, tuple(tp.partition for tp in partitions)))

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for event in list(self.events):
            owned = owned | set(event.partitions) if event.what == "assigned" else owned - set(event.partitions)
        return owned

    def run(self) -> None:
        try:
            self.consume()
        except BaseException as error:
            self.error = error

    def consume(self) -> None:
        raise NotImplementedError

    def await_record(self) -> None:
        """It has read: whoever owns a partition for an instant only, on a busy machine, has not."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self.records:
            assert self.error is None, self.error
            assert time.monotonic() < deadline, f"{self.name} read nothing"
            time.sleep(0.02)

    def end(self) -> None:
        self.stop.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        assert self.error is None, self.error


class Ours(Member):
    def __init__(self, settings: dict[str, str], topic: str) -> None:
        super().__init__("ours")
        self.settings, self.topic = settings, topic

    def consume(self) -> None:
        with Consumer(self.settings) as consumer:
            consumer.subscribe(
                [self.topic],
                on_assigned=lambda partitions: self.tell("assigned", partitions),
                on_revoked=lambda partitions: self.tell("revoked", partitions),
            )
            while not self.stop.is_set():
                self.records += [(record.partition, record.offset) for record in consumer.poll(100)]
            self.tell("revoked", consumer.assignment)


class Pythons(Member):
    def __init__(self, settings: dict[str, str], topic: str, strategy: str) -> None:
        super().__init__("kafka-python")
        self.topic = topic
        self.consumer = kafka_python.KafkaConsumer(
            bootstrap_servers=settings["bootstrap.servers"],
            group_id=settings["group.id"],
            auto_offset_reset="earliest",
            session_timeout_ms=30_000,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[THEIRS[strategy]],
        )

    def consume(self) -> None:
        member = self

        class Listener(kafka_python.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.tell("assigned", assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.tell("revoked", revoked)

        self.consumer.subscribe([self.topic], listener=Listener())
        while not self.stop.is_set():
            for records in self.consumer.poll(100).values():
                self.records += [(record.partition, record.offset) for record in records]
        self.tell("revoked", self.consumer.assignment())
        self.consumer.close()


class Process(Member):
    """A member in a process of its own, which says what happens a line each, and leaves when its standard input ends."""

    def __init__(self, name: str, command: list[str]) -> None:
        super().__init__(name)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def consume(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # it was killed
            what, nanos, *numbers = line.split()
            if what == "record":
                self.records.append((int(numbers[0]), int(numbers[1])))
            else:
                self.events.append(Event(int(nanos) / 1e9, what, tuple(map(int, numbers))))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        super().end()
        assert self.process.wait(TIMEOUT_S) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        super().end()
        self.events.append(Event(time.monotonic(), "revoked", tuple(self.owned)))


class Javas(Process):
    def __init__(self, settings: dict[str, str], topic: str) -> None:
        java = [str(ensure_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        jars = ["-cp", classpath(kafka_jars(KAFKA_VERSION)), str(MEMBER)]
        super().__init__("Java", [*java, *jars, topic, *(f"{name}={value}" for name, value in settings.items())])


@pytest.fixture
def writing(kafka: Any, topic: Any) -> Iterator[tuple[str, Callable[[], int]]]:
    """A topic that is written to all the time, and what ends that and says how many records there are."""
    name = topic(partitions=N_PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    stop = threading.Event()
    written = itertools.count()

    def write() -> None:
        while not stop.wait(0.01):
            producer.produce(name, b"x", partition=next(written) % N_PARTITIONS)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()

    def end() -> int:
        stop.set()
        thread.join()
        assert producer.flush(30) == 0
        return next(written)

    yield name, end
    stop.set()
    thread.join()


def await_shares(members: list[Member]) -> None:
    """Every partition has one owner among `members`, and each of them has its part."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        shares = [member.owned for member in members]
        if all(shares) and sorted(partition for share in shares for partition in share) == list(range(N_PARTITIONS)):
            return
        assert all(member.error is None for member in members), [member.error for member in members]
        assert time.monotonic() < deadline, shares
        time.sleep(0.02)


def held(member: Member) -> Iterator[tuple[int, float, float]]:
    """(partition, from, until) of all that a member owned."""
    since: dict[int, float] = {}
    for event in member.events:
        for partition in event.partitions:
            if event.what == "assigned":
                since[partition] = event.at
            elif partition in since:
                yield partition, since.pop(partition), event.at
    for partition, at in since.items():
        yield partition, at, float("inf")


def assert_one_owner(members: list[Member]) -> None:
    """No partition was owned by two members at a time."""
    spans = sorted(span for member in members for span in held(member))
    for (partition, _, until), (other, since, _) in itertools.pairwise(spans):
        assert partition != other or until <= since, f"partition {partition} had two owners"


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_ours_kafka_pythons_and_javas_share_one_group(
    kafka: Any, java: None, writing: tuple[str, Callable[[], int]], strategy: str
) -> None:
    name, end_writing = writing
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"group-{uuid.uuid4().hex[:12]}",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": "30000",
        "heartbeat.interval.ms": "100",
    }
    named = {"partition.assignment.strategy": strategy}
    javas_name = {"partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{JAVAS[strategy]}"}
    ours, pythons = Ours(settings | named, name), Pythons(settings, name, strategy)
    ours.start()
    await_shares([ours])
    pythons.start()
    await_shares([ours, pythons])
    javas = Javas(settings | javas_name, name)
    javas.start()
    await_shares([ours, pythons, javas])
    ours.await_record()
    ours.end()  # the leader until now; one of the others takes over
    await_shares([pythons, javas])
    again = Ours(settings | named, name)
    again.start()
    await_shares([again, pythons, javas])
    pythons.await_record()
    pythons.end()
    await_shares([again, javas])
    javas.await_record()
    javas.end()
    await_shares([again])
    again.await_record()
    count = end_writing()
    members: list[Member] = [ours, pythons, javas, again]
    deadline = time.monotonic() + TIMEOUT_S
    while len({record for member in members for record in member.records}) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    again.end()
    read = [record for member in members for record in member.records]
    assert len(read) == len(set(read)) == count
    assert_one_owner(members)
