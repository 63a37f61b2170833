"""Each example on a real broker, by the arguments of its docstring: as a program, or its main() in the session that tests share."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.connector.debezium import Database, first_changes, json_bytes, more_changes
from tests.quick_start import quick_spark_variables

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# Run by `make demo`, with a check of its own at its end; by tests/wire/test_walkthrough.py.
# What the tests run in the session that they share is run as programs by `make examples`.
RUN_ELSEWHERE = {"demo.py", "protocol_walkthrough.py"}


@pytest.fixture
def environment(java: None) -> dict[str, str]:
    """As after activating the virtual environment: Spark's workers take python3 from the PATH."""
    folder = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "PATH": os.pathsep.join([folder, os.environ["PATH"]]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # For a few seconds of work Java's optimising compiler costs more than it gives, and so do Delta's 50 tasks a look.
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.databricks.delta.snapshotPartitions=2 "
        "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell",
    }


def run(name: str, *arguments: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,  # some seconds, on a machine that is not busy
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def in_session(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs an example's main() on the session that tests share, and returns what it prints: a Spark of its own for each
    takes 15 s of processor time."""

    def run_in_session(name: str, *arguments: str) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", [name, *arguments])
            patched.setattr(type(spark), "stop", lambda self: None)
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run_in_session


def test_every_example_is_run_and_says_how() -> None:
    examples = {path.name for path in EXAMPLES.glob("*.py")} - RUN_ELSEWHERE
    assert examples == {
        "batch_read.py",
        "cdc_to_delta.py",
        "duckdb_and_polars.py",
        "exactly_once.py",
        "lag_listener.py",
        "schema_registry.py",
        "secured_cluster.py",
        "spark_connect.py",  # tests/connector/test_lookup.py
        "sql_over_topics.py",
        "stream_to_delta.py",
        "upsert_to_delta.py",
        "wire_client.py",
        "write_topic.py",
    }
    for name in examples:
        assert f"python examples/{name} --bootstrap" in (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.timeout(900)
def test_written_queried_and_streamed_into_delta(
    kafka: Any, topic: Any, tmp_path: Path, spark: Any, in_session: Callable[..., str]
) -> None:
    name, table = topic(3), tmp_path / "orders"
    common = ["--bootstrap", kafka.bootstrap_servers, "--topic", name]

    assert in_session("write_topic.py", *common, "--rows", "1000") == f"1000 records written to {name}\n"
    records = consume(kafka.bootstrap_servers, name, partitions=3, count=1000)
    assert all(record.headers() == [("source", b"write_topic")] for record in records)
    assert min(record.value() for record in records) == b'{"order":0,"pieces":1}'
    partitions_of: dict[bytes, set[int]] = {}
    for record in records:
        partitions_of.setdefault(record.key(), set()).add(record.partition())
    assert len(partitions_of) == 100
    assert all(len(partitions) == 1 for partitions in partitions_of.values())

    shown = cells(in_session("sql_over_topics.py", *common))
    spark.catalog.dropTempView("topic")
    assert [int(row[0]) for row in shown] == [0, 1, 2]
    assert sum(int(row[1]) for row in shown) == 1000
    query = "SELECT count(DISTINCT key) AS customers FROM topic"
    assert cells(in_session("sql_over_topics.py", *common, "--query", query)) == [["100"]]
    spark.catalog.dropTempView("topic")

    streamed = in_session("stream_to_delta.py", *common, "--table", str(table))
    assert streamed == f"1000 records written by this run, 1000 in {table}\n"


def test_the_client_works_without_spark(kafka: Any, topic: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    common = ["--bootstrap", kafka.bootstrap_servers, "--topic", topic(2), "--group", f"g-{tmp_path.name}"]
    for _ in range(2):  # the second run reads on from what the first has committed
        lines = run("wire_client.py", *common, environment=environment, folder=tmp_path).splitlines()
        assert lines[-1].startswith("10 records read by group")
        assert sum("b'order " in line for line in lines) == 10


def test_a_topic_in_duckdb_and_polars(kafka: Any, topic: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for amount in range(10):
        producer.produce(name, b'{"country": "%s", "amount": %d}' % (b"NO" if amount % 2 else b"SE", amount))
    assert producer.flush(60) == 0
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", name]
    printed = run("duckdb_and_polars.py", *arguments, environment=environment, folder=tmp_path)
    assert printed == "NO: 25.0\nSE: 20.0\n10 orders within an hour, the largest from NO: 9.0\n"


@pytest.mark.long
def test_the_lag_is_reported_through_spark_connect(
    kafka: Any, topic: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    name = topic(1)
    produce(kafka.bootstrap_servers, name, 10)
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", name, "--offsets-per-batch", "4"]
    connect = environment | quick_spark_variables() | {"SPARK_REMOTE": "local[1]"}
    told = run("lag_listener.py", *arguments, environment=connect, folder=tmp_path)
    behind = [int(line.split()[2]) for line in told.splitlines() if line.startswith("batch ")]
    assert behind[:3] == [6, 2, 0]
    assert "was not told" not in told


def test_a_topic_copied_exactly_once(kafka: Any, topic: Any, tmp_path: Path, in_session: Callable[..., str]) -> None:
    source, target = topic(3), topic(3)
    produce(kafka.bootstrap_servers, source, 500)
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--source", source, "--target", target]
    printed = in_session("exactly_once.py", *arguments, "--checkpoint", str(tmp_path / "checkpoint"))
    assert printed == f"500 records copied to {target} by this run\n"

    def places(name: str) -> list[tuple[int, bytes, tuple[int, int]]]:
        found = consume(kafka.bootstrap_servers, name, partitions=3, count=500)
        found.sort(key=lambda record: (record.partition(), record.offset()))
        return [(record.partition(), record.value(), record.timestamp()) for record in found]

    assert places(target) == places(source)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_those_that_other_tests_run_in_a_shared_session_run_as_programs(
    kafka: Any,
    topic: Any,
    secured_kafka: Any,
    registry_url: str,
    tmp_path: Path,
    environment: dict[str, str],
    spark: Any,
) -> None:
    name = topic(1)
    where: dict[str, Any] = {"environment": environment, "folder": tmp_path}
    run("write_topic.py", "--bootstrap", kafka.bootstrap_servers, "--topic", name, "--rows", "1", **where)
    common = ["--bootstrap", kafka.bootstrap_servers, "--topic", name]
    assert cells(run("batch_read.py", *common, "--since=-1h", **where))[0][:2] == ["1", "1"]
    assert [row[:2] for row in cells(run("sql_over_topics.py", *common, **where))] == [["0", "1"]]
    streamed = str(tmp_path / "streamed")
    printed = run("stream_to_delta.py", *common, "--table", streamed, **where)
    assert printed == f"1 records written by this run, 1 in {streamed}\n"
    source, followed = topic(1), tmp_path / "followed"
    produce(kafka.bootstrap_servers, source, 1)
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", source, "--table", str(followed)]
    printed = follow(arguments, lambda: rows(spark, followed) >= 1, **where)
    assert printed == f"1 records written by this run, 1 in {followed}\n"
    copy = ["--source", name, "--target", topic(1), "--checkpoint", str(tmp_path / "checkpoint")]
    printed = run("exactly_once.py", "--bootstrap", kafka.bootstrap_servers, *copy, **where)
    assert printed == f"1 records copied to {copy[3]} by this run\n"
    table = str(tmp_path / "table")
    assert run("upsert_to_delta.py", *common, "--table", table, **where) == f"1 keys in {table}\n"
    topics = ["--clean", topic(1), "--broken", topic(1)]
    run("schema_registry.py", *common, "--registry", registry_url, *topics, **where)
    (broken,) = consume(kafka.bootstrap_servers, topics[3], partitions=1, count=1)
    assert broken.value() == b'{"order":0,"pieces":1}'

    password = tmp_path / "password"
    password.write_text("alice-secret\n")
    guarded = topic(1, cluster=secured_kafka.cluster)
    login = [
        "--user",
        "alice",
        "--password-file",
        str(password),
        "--ca",
        str(secured_kafka.certificates.authority_path),
    ]
    at = ["--bootstrap", secured_kafka.cluster.bootstrap("SASLTLS"), "--topic", guarded]
    assert run("secured_cluster.py", *at, *login, **where) == f"0 records in {guarded}\n"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_changes_of_a_database_over_a_kill(
    kafka: Any, topic: Any, tmp_path: Path, environment: dict[str, str], spark: Any
) -> None:
    name, table, database = topic(1), tmp_path / "customers", Database()
    first_changes(database)
    more_changes(database)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for event in database.events:
        producer.produce(name, json_bytes(event.value), json_bytes(event.key))
    assert producer.flush(60) == 0
    columns = ["--key", "id BIGINT", "--columns", "id BIGINT, name STRING, email STRING, updated_at BIGINT"]
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", name, "--table", str(table), *columns]
    log = (tmp_path / "log").open("wb")
    killed = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "cdc_to_delta.py"), *arguments],
        env=environment,
        cwd=tmp_path,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 600
        while not (table / "_delta_log" / f"{0:020}.json").exists():
            assert killed.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.005)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        log.close()
    printed = run("cdc_to_delta.py", *arguments, environment=environment, folder=tmp_path)
    assert printed == f"{len(database.rows)} rows in {table}\n"
    found = [
        row.asDict()
        for row in spark.read.format("delta").load(str(table)).select("id", "name", "email", "updated_at").collect()
    ]
    assert {row["id"]: row for row in found} == database.rows


def follow(arguments: list[str], done: Callable[[], bool], *, environment: dict[str, str], folder: Path) -> str:
    """What stream_to_delta.py --follow prints when Ctrl-C ends it after `done` has come true."""
    with (folder / "log").open("wb") as log, (folder / "out").open("wb") as out:
        following = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "stream_to_delta.py"), *arguments, "--follow"],
            env=environment,
            cwd=folder,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 600
        while not done():
            assert following.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.5)
        os.killpg(following.pid, signal.SIGINT)
        assert following.wait(120) == 0, (folder / "log").read_text()
    finally:
        if following.poll() is None:
            os.killpg(following.pid, signal.SIGKILL)
            following.wait()
    return (folder / "out").read_text()


def cells(table: str) -> list[list[str]]:
    """The rows of what DataFrame.show prints."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    return rows[1:]


def rows(spark: Any, table: Path) -> int:
    return int(spark.read.format("delta").load(str(table)).count()) if (table / "_delta_log").is_dir() else 0


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    failed: list[Any] = []
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap: str, topic: str, *, partitions: int, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    got: list[Message] = []
    deadline = time.monotonic() + 60
    try:
        # Looks on for a while after the last that is expected: one too many would be a fault.
        while (more := consumer.consume(count, timeout=2)) or len(got) < count:
            got += more
            assert time.monotonic() < deadline, f"{len(got)} of {count} records of {topic} within 60 s"
    finally:
        consumer.close()
    assert [record.error() for record in got if record.error()] == []
    assert len(got) == count
    return got


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_agrees_on_a_topic_that_others_write_to(
    kafka: Any, topic: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    name = topic(2)
    produce(kafka.bootstrap_servers, name, 100)
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.2):
            produce(kafka.bootstrap_servers, name, 5)

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", name]
        said = run("demo.py", *arguments, environment=environment, folder=tmp_path)
    finally:
        over.set()
        writer.join()
    assert "Kafka and Delta agree." in said
