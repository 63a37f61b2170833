"""Whole Spark drivers whose requests to end the tasks' transactions are lost on their way, and which are killed then.

What was decided waits at the brokers until it times out, or until an administrator aborts it in a partition. The restart must have
each record once. A proxy between the clients and a real broker drops the requests.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pykafka_wire.local.cluster import free_ports
from pykafka_wire.sink.exactly_once.marker import Marker, read_markers
from pykafka_wire.sink.exactly_once.task_ids import task_prefix
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import OpenProducer, open_producers
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.bulk import list_open
from tests.connector.sink.drivers import TIMEOUT_S, Drivers
from tests.connector.sink.query_process import Job

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

END_TXN = 26
N_PARTITIONS, N_RECORDS = 5, 500


class LossyProxy:
    """Forwards to a broker that advertises it. It drops commits of tasks' transactions, except of the first that it sees.

    Attributes:
        dropped: set when a request was dropped.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self.dropped = threading.Event()
        self._broker_port = broker_port
        self._first: bytes | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                return
            threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._responses, args=(broker, client), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), client, broker, client.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                request = stream.read(struct.unpack(">i", size)[0])
                if not self._is_lost(request):
                    broker.sendall(size + request)

    def _responses(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(65_536):
                client.sendall(data)

    def _is_lost(self, request: bytes) -> bool:
        (api,) = struct.unpack_from(">h", request)
        # The last two bytes are whether to commit, and no tagged fields: an attempt that fails aborts its own transaction.
        if api != END_TXN or b".task." not in request or request[-2:] != b"\x01\x00":
            return False
        transaction = request[request.index(b".task.") :]  # its id, producer id and epoch
        with self._lock:
            if self._first is None:
                self._first = transaction
            if transaction == self._first:
                return False
        self.dropped.set()
        return True


@dataclass(frozen=True)
class Brokers:
    """A broker by its own address, and by the proxy's."""

    bootstrap_servers: str
    proxied: str
    proxy: LossyProxy
    cluster: Any


@pytest.fixture(params=["TV1", "TV2"])
def brokers(request: pytest.FixtureRequest, kafka_cluster: Any) -> Iterator[Brokers]:
    internal, external, advertised = free_ports(3)
    properties = {
        "listeners": f"INTERNAL://127.0.0.1:{internal},EXTERNAL://127.0.0.1:{external}",
        "advertised.listeners": f"INTERNAL://127.0.0.1:{internal},EXTERNAL://127.0.0.1:{advertised}",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    feature = ["--feature", "transaction.version=1"] if request.param == "TV1" else []
    cluster = kafka_cluster(1, properties, format_arguments=feature)
    proxy = LossyProxy(advertised, external)
    yield Brokers(f"127.0.0.1:{internal}", f"127.0.0.1:{advertised}", proxy, cluster)
    proxy.close()


def value(number: int, size: int) -> bytes:
    return (b"%d:" % number).ljust(size, b"x")


def fill(servers: str, topic: str) -> None:
    """In each partition small records, then as many that are large in the first one."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0})
    for turn in range(2):
        for partition in range(N_PARTITIONS):
            size = 20_000 if turn and not partition else 100
            for i in range(N_RECORDS):
                number = (turn * N_PARTITIONS + partition) * N_RECORDS + i
                producer.produce(topic, value(number, size), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0


def numbers(outside: Any, topic: str) -> list[int]:
    """What a read_committed reader sees, in order."""
    found = outside.consume(topic, isolation_level="read_committed")
    return sorted(int(record.value.partition(b":")[0]) for record in found)


def abort_first_partition(brokers: Brokers, open_in: list[OpenProducer]) -> None:
    """What an administrator does who wants readers to go on."""
    place = open_in[0]
    tp = place.topic_partition
    where = ["--topic", tp.topic, "--partition", str(tp.partition), "--start-offset", str(place.start_offset)]
    brokers.cluster.tool(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", brokers.bootstrap_servers, "abort", *where
    )


@pytest.mark.parametrize("fault", ["times out", "is aborted in a partition"])
def test_a_decided_transaction_whose_end_was_lost(
    fault: str, brokers: Brokers, topic: Any, drivers: Drivers, outside_of: Any, until: Any, tmp_path: Path
) -> None:
    source, target = topic(N_PARTITIONS, cluster=brokers), topic(3, cluster=brokers)
    fill(brokers.bootstrap_servers, source)
    name = f"copy-{uuid.uuid4().hex[:8]}"
    job = Job(
        master="local[2]",
        servers=brokers.proxied,
        source=source,
        columns=["value"],
        options={
            "topic": target,
            "deliveryGuarantee": "exactly-once",
            "kafka.transactional.id": name,
            "transactions": "tasks",
            "kafka.transaction.timeout.ms": "30000" if fault == "times out" else "300000",
        },
        folder=str(tmp_path),
        max_offsets=N_PARTITIONS * N_RECORDS,
        source_options={"maxRecordsPerPartition": "1000000"},
    )
    driver = drivers.start(job)
    until(
        lambda: brokers.proxy.dropped.is_set() or driver.process.poll() is not None, timeout_s=TIMEOUT_S, what="a loss"
    )
    assert brokers.proxy.dropped.is_set(), driver.output
    driver.kill()
    with Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})) as cluster:
        marker = read_markers(cluster, name)[target]
        assert isinstance(marker, Marker) and marker.batch_id == 1 and marker.pending
        if fault == "times out":
            until(lambda: not list_open(cluster, task_prefix(name)), timeout_s=TIMEOUT_S, what="the time-out")
        else:
            found = open_producers(cluster, [TopicPartition(target, partition) for partition in range(3)])
            assert len(found) == 3 * len(marker.pending)
            abort_first_partition(brokers, found)
    drivers.finish(replace(job, servers=brokers.bootstrap_servers))
    assert numbers(outside_of(brokers.bootstrap_servers), target) == list(range(2 * N_PARTITIONS * N_RECORDS))
