"""The cost of an idle streaming query: requests, as the broker logs them, and CPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer
from connectors import CONNECTORS, Connector
from datasets import QUIET, Dataset
from processes import CpuTime
from rig import Rig
from runs import Contender, Run
from streams import await_batches, noop_query

from pykafka_wire.local import LocalCluster

#: What follows a query's last batch (its commit, the JVM connector's closing polls) is over by then.
_SETTLED_S = 3.0
_LOGGER = "kafka.request.logger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Requests per second of a query over `partitions` without new records; beside them CPU of all of Spark's processes."""

    partitions: int
    seconds: float = 5.0

    def datasets(self) -> tuple[Dataset, ...]:
        return ()

    @contextlib.contextmanager
    def contenders(self, rig: Rig) -> Iterator[Sequence[Contender]]:
        if rig.local is None:
            raise RuntimeError("requests are counted in the log of a broker that the bench has started itself")
        local = rig.local
        topic = rig.create_topic("bench-idle", self.partitions)
        producer = Producer({"bootstrap.servers": rig.bootstrap_servers, **QUIET})
        for partition in range(self.partitions):
            producer.produce(topic, value=b"the only one", partition=partition)
        producer.flush()
        options = {"kafka.bootstrap.servers": rig.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}

        def contender(connector: Connector) -> Contender:
            def run() -> Run:
                with noop_query(rig, connector, options) as query:
                    await_batches(query, 1)
                    time.sleep(_SETTLED_S)
                    with _logging_requests(local), CpuTime(rig.jvm_pid) as cpu:
                        before, started = _n_requests(local), time.perf_counter()
                        time.sleep(self.seconds)
                        n_requests, took_s = _n_requests(local) - before, time.perf_counter() - started
                return Run(value=n_requests / took_s, beside={"cpu_ms_per_s": cpu.seconds * 1e3 / took_s})

            return Contender(name=connector.name, run=run)

        try:
            yield [contender(connector) for connector in CONNECTORS]
        finally:
            rig.drop_topic(topic)


@contextlib.contextmanager
def _logging_requests(cluster: LocalCluster) -> Iterator[None]:
    """The broker logs every request for as long as the context is open."""
    logger = ("--alter", "--entity-type", "broker-loggers", "--entity-name", str(cluster.nodes[0].node_id))
    cluster.tool("kafka.admin.ConfigCommand", *logger, "--add-config", f"{_LOGGER}=DEBUG")
    try:
        yield
    finally:
        cluster.tool("kafka.admin.ConfigCommand", *logger, "--delete-config", _LOGGER)


def _n_requests(cluster: LocalCluster) -> int:
    log = cluster.nodes[0].folder / "server.log"
    return log.read_bytes().count(b"Completed request:")
