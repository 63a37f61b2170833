"""Whole Spark drivers that copy a topic exactly once, each struck by one row of the crash table and started again.

An independent read_committed reader judges the copy. The long ones run on two executors and two brokers with
min.insync.replicas=2; `make crash` runs them.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import describe_transaction
from pykafka_wire.wire.settings import ClientSettings
from tests.connector.sink.driver_process import AFTER_RESPONSE, AFTER_SEND, BEFORE_SEND, Strike
from tests.connector.sink.drivers import TIMEOUT_S, Driver, Drivers, fill, on_two_hosts, task_ends
from tests.connector.sink.query_process import Job

pytestmark = [pytest.mark.broker, pytest.mark.spark]

#: A topic for every partition of the source, out of a column.
COLUMN = "concat('{prefix}-', partition) AS topic"


def copied(outside: Any, job: Job, targets: list[str], n_partitions: int) -> list[list[bytes]]:
    """What is in the copy, by partition of the source; with a topic column each has a topic of its own.

    Tasks that write themselves fill a topic-partition side by side: their records are put in order here.
    """
    if len(targets) > 1:
        found = [[r.value for r in outside.consume(t, isolation_level="read_committed")] for t in targets]
    else:
        found = [[] for _ in range(n_partitions)]
        for record in outside.consume(targets[0], isolation_level="read_committed"):
            found[record.partition].append(record.value)
    return [sorted(each, key=int) for each in found] if job.options.get("transactions") == "tasks" else found


def original(n_records: int, n_partitions: int) -> list[list[bytes]]:
    return [[b"%d" % n for n in range(first, n_records, n_partitions)] for first in range(n_partitions)]


def kill_at(api: str, moment: str, batch_id: int = 1) -> dict[str, Any]:
    return asdict(Strike(api=api, moment=moment, batch_id=batch_id))


@pytest.mark.long
@pytest.mark.timeout(900)  # two Spark processes, one after the other
@pytest.mark.parametrize("way", ["tasks", "driver"])
def test_killed_after_its_transaction_was_committed(
    kafka: Any, topic: Any, drivers: Drivers, outside: Any, tmp_path: Path, way: str
) -> None:
    """The shortest of them, in one JVM, with tasks that fail on their first attempt."""
    source, target = topic(2), topic(2)
    fill(kafka.bootstrap_servers, source, 2000, 2)
    job = Job(
        master="local[2,4]",
        servers=kafka.bootstrap_servers,
        source=source,
        columns=["value", "partition"],
        options={
            "topic": target,
            "deliveryGuarantee": "exactly-once",
            "kafka.transactional.id": f"copy-{uuid.uuid4().hex[:8]}",
            "transactions": way,
        },
        folder=str(tmp_path),
        max_offsets=1000,
        trouble=True,
    )
    struck = drivers.start(replace(job, strike=kill_at("EndTxn", AFTER_RESPONSE, 0)))
    assert struck.wait() == -signal.SIGKILL, struck.output
    drivers.finish(job)
    assert copied(outside, job, [target], 2) == original(2000, 2)
    assert (tmp_path / "failed-0").exists() and (tmp_path / "failed-1").exists()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("n_records", "stopped_by"),
    [
        (300, "is bigger than spark.driver.maxResultSize"),  # by Spark, while the results come
        (240, "all of it passes through the driver, which accepts"),  # by the commit, before it writes
    ],
)
def test_tasks_that_send_more_than_the_driver_takes_do_not_kill_it(
    n_records: int, stopped_by: str, kafka: Any, topic: Any, drivers: Drivers, outside: Any, tmp_path: Path
) -> None:
    """Four tasks, each below the cap of 128 MiB, on the default heap, with the setting that the sink asks for."""
    source, target = topic(4), topic(4)
    fill(kafka.bootstrap_servers, source, n_records, 4)
    job = Job(
        master="local[2]",
        servers=kafka.bootstrap_servers,
        source=source,
        columns=["repeat('x', 1000000) AS value", "partition"],
        options={
            "topic": target,
            "deliveryGuarantee": "exactly-once",
            "kafka.transactional.id": f"large-{uuid.uuid4().hex[:8]}",
        },
        folder=str(tmp_path),
        max_offsets=n_records,
        conf={"spark.driver.memory": "1g", "spark.driver.maxResultSize": "256m"},
    )
    driver = drivers.start(job)
    assert driver.wait() == 1
    assert stopped_by in driver.output and "OutOfMemoryError" not in driver.output, driver.output
    assert outside.consume(target) == []


@pytest.fixture(scope="module")
def pair() -> Iterator[Any]:
    from pykafka_wire.local import LocalCluster

    properties = {
        "min.insync.replicas": "2",
        "transaction.state.log.min.isr": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    with LocalCluster(2, properties) as cluster:
        yield cluster


N_RECORDS, N_PARTITIONS = 20_000, 4


@pytest.fixture(params=["driver", "tasks"])
def job(request: pytest.FixtureRequest, pair: Any, topic: Any, tmp_path: Path) -> Job:
    """Five micro-batches on two executors, by either way."""
    source, target = topic(N_PARTITIONS, cluster=pair), topic(N_PARTITIONS, cluster=pair)
    fill(pair.bootstrap_servers, source, N_RECORDS, N_PARTITIONS)
    return Job(
        master="local-cluster[2,1,1024]",
        servers=pair.bootstrap_servers,
        source=source,
        columns=["value", "partition"],
        options={
            "topic": target,
            "deliveryGuarantee": "exactly-once",
            "kafka.transactional.id": f"copy-{uuid.uuid4().hex[:8]}",
            "kafka.compression.type": "lz4",
            "transactions": request.param,
        },
        folder=str(tmp_path),
        max_offsets=N_RECORDS // 5,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tasks_that_fail_are_slow_or_lose_their_executor(
    job: Job, drivers: Drivers, outside_of: Any, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    with on_two_hosts(tmp_path) as master:
        drivers.finish(replace(job, master=master, trouble=True, conf=logged))
    assert copied(outside_of(job.servers), job, [job.options["topic"]], N_PARTITIONS) == original(
        N_RECORDS, N_PARTITIONS
    )
    happened = {path.name for path in Path(job.folder).iterdir()}
    assert {"failed-0", "slow", "executor-killed"} <= happened
    copies = {
        (end["Stage ID"], end["Task Info"]["Index"])
        for end in task_ends(events)
        if end["Task Info"]["Speculative"] and end["Task End Reason"]["Reason"] == "Success"
    }
    killed = {
        (end["Stage ID"], end["Task Info"]["Index"])
        for end in task_ends(events)
        if not end["Task Info"]["Speculative"] and end["Task End Reason"]["Reason"] == "TaskKilled"
    }
    assert copies & killed, "no speculative copy ran and came before what it copies"


@pytest.mark.long
@pytest.mark.timeout(1800)  # five Spark processes, one after the other
def test_a_driver_killed_in_each_row_of_the_crash_table(job: Job, drivers: Drivers, outside_of: Any) -> None:
    api = "Produce" if job.options["transactions"] == "driver" else "TxnOffsetCommit"
    strikes = [(api, AFTER_RESPONSE), ("EndTxn", BEFORE_SEND), ("EndTxn", AFTER_SEND), ("EndTxn", AFTER_RESPONSE)]
    for batch_id, (api, moment) in enumerate(strikes):
        struck = drivers.start(replace(job, strike=kill_at(api, moment, batch_id)))
        assert struck.wait() == -signal.SIGKILL, struck.output
        assert (Path(job.folder) / f"struck-{batch_id}").exists(), struck.output
    drivers.finish(job)
    assert copied(outside_of(job.servers), job, [job.options["topic"]], N_PARTITIONS) == original(
        N_RECORDS, N_PARTITIONS
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_with_topics_out_of_a_column(job: Job, pair: Any, topic: Any, drivers: Drivers, outside_of: Any) -> None:
    prefix = f"t-{uuid.uuid4().hex[:8]}"
    targets = [topic(1, cluster=pair, name=f"{prefix}-{p}") for p in range(N_PARTITIONS)]
    options = {name: value for name, value in job.options.items() if name != "topic"}
    job = replace(
        job,
        columns=["value", COLUMN.format(prefix=prefix)],
        options={**options, "markerTopic": job.options["topic"]},
    )
    struck = drivers.start(replace(job, strike=kill_at("EndTxn", AFTER_RESPONSE)))
    assert struck.wait() == -signal.SIGKILL, struck.output
    drivers.finish(job)
    assert copied(outside_of(job.servers), job, targets, N_PARTITIONS) == original(N_RECORDS, N_PARTITIONS)


def until_stopped(job: Job, driver: Driver) -> int:
    """The process whose commit has stopped."""
    flag = Path(job.folder) / "struck-1"
    deadline = time.monotonic() + TIMEOUT_S
    while not (flag.exists() and flag.read_text() and psutil.Process(int(flag.read_text())).status() == "stopped"):
        assert time.monotonic() < deadline and driver.process.poll() is None, driver.output
        time.sleep(0.1)
    return int(flag.read_text())


#: A driver that is paused for as long as another one takes must not find its request out of time.
PATIENT = {"kafka.default.api.timeout.ms": "900000"}


def stop_at(api: str) -> dict[str, Any]:
    return asdict(Strike(api=api, moment=BEFORE_SEND, batch_id=1, signal=int(signal.SIGSTOP)))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_driver_that_comes_back_after_its_successor(job: Job, drivers: Drivers, outside_of: Any) -> None:
    zombie = drivers.start(replace(job, strike=stop_at("EndTxn"), options=job.options | PATIENT))
    stopped = until_stopped(job, zombie)
    drivers.finish(job)
    os.kill(stopped, signal.SIGCONT)
    assert zombie.wait() == 1
    assert "PYKAFKA_WIRE_EXACTLY_ONCE" in zombie.output and "has taken over the transactional id" in zombie.output
    assert copied(outside_of(job.servers), job, [job.options["topic"]], N_PARTITIONS) == original(
        N_RECORDS, N_PARTITIONS
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_transaction_that_times_out(job: Job, drivers: Drivers, outside_of: Any) -> None:
    # Longer than a micro-batch takes on a busy machine, from its tasks' first record to the decision.
    short = job.options | PATIENT | {"kafka.transaction.timeout.ms": "20000"}
    late = drivers.start(replace(job, strike=stop_at("EndTxn"), options=short))
    stopped = until_stopped(job, late)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": job.servers})) as cluster:
        deadline = time.monotonic() + TIMEOUT_S
        while (found := describe_transaction(cluster, job.options["kafka.transactional.id"])) is None or found.is_open:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    os.kill(stopped, signal.SIGCONT)
    assert late.wait() == 1
    assert "longer than kafka.transaction.timeout.ms (20000)" in late.output
    drivers.finish(job)
    assert copied(outside_of(job.servers), job, [job.options["topic"]], N_PARTITIONS) == original(
        N_RECORDS, N_PARTITIONS
    )
