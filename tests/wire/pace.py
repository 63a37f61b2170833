"""How fast records of each partition come while brokers are paused (SIGSTOP): loads that run side by side, and their measure.

A paused broker keeps its connections and its port and responds to nothing, which no client learns of but by time.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import confluent_kafka
import pyarrow as pa

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.consumer import Consumer
from pykafka_wire.wire.errors import DeadlineExceededError
from pykafka_wire.wire.fetch.range_read import fetch_ranges
from pykafka_wire.wire.record_producer import RecordProducer
from pykafka_wire.wire.records.decode import Columns
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition


class Pace:
    """When how many records of each partition came."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._arrived: list[tuple[float, int, int]] = []

    def add(self, partition: int, n_records: int) -> None:
        self._arrived.append((time.monotonic(), partition, n_records))

    def n_records(self, partitions: Collection[int], since: float = 0.0, until: float = float("inf")) -> int:
        return sum(n for at, partition, n in list(self._arrived) if partition in partitions and since <= at < until)

    def rate(self, partitions: Collection[int], since: float, until: float) -> float:
        """Records a second."""
        return self.n_records(partitions, since, until) / (until - since)

    def longest_gap_s(self, partition: int, since: float, until: float) -> float:
        """The longest time without a record of a partition."""
        times = [since, *(at for at, of, _ in list(self._arrived) if of == partition and since <= at < until), until]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


class Loads:
    """Threads that read and write until they are stopped; the first error of any is raised then."""

    def __init__(self, brokers: LocalCluster, n_partitions: int) -> None:
        self.brokers = brokers
        self.partitions = range(n_partitions)
        self.stopping = threading.Event()
        self.paces: list[Pace] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    @property
    def settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self.brokers.bootstrap_servers}

    def start(self, name: str, work: Callable[[Pace], None], *, measured: bool = True) -> Pace:
        pace = Pace(name)

        def run() -> None:
            try:
                work(pace)
            except BaseException as error:
                error.add_note(f"in the load {name!r}") if hasattr(error, "add_note") else None
                self._errors.append(error)

        if measured:
            self.paces.append(pace)
        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()
        return pace

    def __enter__(self) -> Loads:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()

    def wait_until(self, done: Callable[[], Any], timeout_s: float = 60.0) -> None:
        """Raises what a load has failed with meanwhile."""
        deadline = time.monotonic() + timeout_s
        while not done():
            if self._errors:
                raise self._errors[0]
            came = {pace.name: [pace.n_records([p]) for p in self.partitions] for pace in self.paces}
            assert time.monotonic() < deadline, came
            time.sleep(0.05)

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), f"{thread.name} hangs"
        if self._errors:
            raise self._errors[0]

    # --- loads ----------------------------------------------------------------------------------------------------------

    def feed(self, topic: str, a_second: int = 100) -> Pace:
        """librdkafka writes that many small records a second to each partition."""

        def work(pace: Pace) -> None:
            producer = confluent_kafka.Producer({**self.settings, "linger.ms": 20, "enable.idempotence": True})
            while not self.stopping.wait(0.05):
                for partition in self.partitions:
                    for _ in range(max(1, a_second // 20)):
                        producer.produce(topic, b"fed", partition=partition)
                    pace.add(partition, max(1, a_second // 20))
                producer.poll(0)
            assert producer.flush(60) == 0

        return self.start("feed", work, measured=False)

    def consume(self, topic: str, group: str | None = None) -> Pace:
        """Our consumer, of assigned partitions or in a group."""

        def work(pace: Pace) -> None:
            more = {} if group is None else {"group.id": group, "auto.offset.reset": "earliest"}
            with Consumer({**self.settings, **more}, columns=Columns(key=False)) as consumer:
                if group is None:
                    consumer.assign({TopicPartition(topic, partition): 0 for partition in self.partitions})
                else:
                    consumer.subscribe([topic])
                while not self.stopping.is_set():
                    for record in consumer.poll(500):
                        pace.add(record.partition, 1)

        return self.start("consumer" if group is None else "group member", work)

    def read_ranges(self, topic: str, end_offset: int) -> Pace:
        """A bounded read with a client of its own, whose caller takes its time; again from the start when it ends."""

        def work(pace: Pace) -> None:
            while not self.stopping.is_set():
                with Cluster(ClientSettings.from_options(self.settings)) as cluster:
                    ranges = [
                        OffsetRange(topic=topic, partition=partition, start_offset=0, end_offset=end_offset)
                        for partition in self.partitions
                    ]
                    for chunk in fetch_ranges(cluster, ranges, columns=Columns(key=False), max_bytes=64 * 1024):
                        for index in set(chunk.records.slice_index.tolist()):
                            pace.add(ranges[index].partition, int((chunk.records.slice_index == index).sum()))
                        if self.stopping.wait(0.5):  # so slow that no range ends while a broker is paused
                            return

        return self.start("bounded read", work)

    def produce(self, topic: str, a_second: int = 100) -> Pace:
        """Our producer; what arrives is seen by librdkafka."""
        table = pa.table(
            {
                "value": [b"produced"] * len(self.partitions) * (a_second // 10),
                "partition": pa.array(list(self.partitions) * (a_second // 10), pa.int32()),
            }
        )

        def write(pace: Pace) -> None:
            with RecordProducer(self.settings) as producer:
                while not self.stopping.wait(0.1):
                    producer.send_arrow(topic, table)
                    with contextlib.suppress(DeadlineExceededError):  # what is left goes on with the next flush
                        producer.flush(timeout_ms=40)
                    for partition in self.partitions:
                        pace.add(partition, a_second // 10)

        def observe(pace: Pace) -> None:
            observer = confluent_kafka.Consumer({**self.settings, "group.id": "observer", "enable.auto.commit": False})
            observer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in self.partitions])
            while not self.stopping.is_set():
                message = observer.poll(0.2)
                if message is not None and message.error() is None:
                    pace.add(message.partition() or 0, 1)
            observer.close()

        self.start("producer", write, measured=False)
        return self.start("produced", observe)


@contextlib.contextmanager
def paused(brokers: LocalCluster, node_id: int) -> Iterator[None]:
    """While one broker is stopped (SIGSTOP)."""
    (node,) = (node for node in brokers.nodes if node.node_id == node_id)
    node.pause()
    try:
        yield
    finally:
        node.resume()


def compare(
    paces: Collection[Pace], healthy: Collection[int], before: tuple[float, float], during: tuple[float, float]
) -> list[tuple[str, float, float]]:
    """Of each load: its name, the rate of the healthy partitions during the pause over that before, their longest gap."""
    return [
        (
            pace.name,
            pace.rate(healthy, *during) / max(pace.rate(healthy, *before), 1e-9),
            max(pace.longest_gap_s(partition, *during) for partition in healthy),
        )
        for pace in paces
    ]
