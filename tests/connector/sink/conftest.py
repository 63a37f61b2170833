"""Drivers of exactly-once queries as processes, for the crash tests."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.settings import ClientSettings
from tests.connector.sink import driver_process, tasks_process
from tests.connector.sink.crash_checks import N_PARTITIONS, TIMEOUT_S, Reader
from tests.connector.sink.driver_process import Drive
from tests.connector.sink.drivers import Drivers
from tests.connector.sink.tasks_query import Query


@pytest.fixture(scope="session")
def processes() -> Any:
    """Starts processes by forking one that has everything imported."""
    context = multiprocessing.get_context("forkserver")
    # pyarrow imports pandas for the first array made of Python objects, which takes most of such a process's time.
    context.set_forkserver_preload([tasks_process.__name__, "pandas"])
    return context


@pytest.fixture
def start(processes: Any) -> Iterator[Callable[..., Any]]:
    """Starts a driver; it is killed when the test ends."""
    started: list[Any] = []

    def begin(drive: Drive, *more: Any, run: Callable[..., None] = driver_process.run) -> Any:
        process = processes.Process(target=run, args=(drive, *more))
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.join(TIMEOUT_S)


@pytest.fixture
def drive_of(topic: Any, tmp_path: Path) -> Callable[..., Drive]:
    """What a driver of a query of this test's own is to do on some brokers."""

    def make(brokers: Any, n_batches: int, **more: Any) -> Drive:
        return Drive(
            servers=brokers.bootstrap_servers,
            topic=topic(N_PARTITIONS, cluster=brokers),
            n_partitions=N_PARTITIONS,
            transactional_id=f"query-{uuid.uuid4().hex[:8]}",
            log=tmp_path / "log",
            report=tmp_path / "report",
            n_batches=n_batches,
            **more,
        )

    return make


@pytest.fixture
def read() -> Iterator[Callable[[Drive], Reader]]:
    """Begins to read a driver's topic."""
    readers: list[Reader] = []

    def begin(drive: Drive) -> Reader:
        readers.append(Reader(drive.servers, drive.topic))
        readers[-1].start()
        return readers[-1]

    yield begin
    for reader in readers:
        reader.end()


@pytest.fixture
def drivers(tmp_path: Path, java: None) -> Iterator[Drivers]:
    """Whole Spark drivers; they are killed when the test ends."""
    running = Drivers(tmp_path)
    yield running
    running.close()


@pytest.fixture
def query(transaction_version_brokers: tuple[str, Any], topic: Any) -> Iterator[Query]:
    """On brokers with each version of the transaction protocol."""
    brokers = transaction_version_brokers[1]
    settings = {"bootstrap.servers": brokers.bootstrap_servers, "retry.backoff.ms": "20"}
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        yield Query(cluster, brokers.bootstrap_servers, topic(1, cluster=brokers))


@pytest.fixture
def visible(outside_of: Any) -> Callable[[Query], list[bytes]]:
    """What a read_committed reader sees, in order of values."""

    def read(query: Query) -> list[bytes]:
        return sorted(r.value for r in outside_of(query.servers).consume(query.topic, isolation_level="read_committed"))

    return read
