"""A streaming query as a static member of its consumer group, on a real broker, judged by librdkafka's admin client."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructType

from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.stream_reader import KafkaStreamReader

SCHEMA = StructType().add("offset", LongType())
COORDINATOR_TO_COME = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
SESSION_S = 6.0  # the least that brokers take by default
TIMEOUT_S = 60.0


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def reader(kafka: Any, group: str) -> Iterator[Callable[..., KafkaStreamReader]]:
    """Readers of one group with short times, each as if in a process of its own; stopped when the test ends."""
    started: list[KafkaStreamReader] = []

    def start(topic: str = "", **more: str) -> KafkaStreamReader:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.group.id": group,
            # Part of what distinguishes processes: clusters are shared within one.
            "kafka.client.id": f"reader-{len(started)}",
            "kafka.session.timeout.ms": str(int(SESSION_S * 1000)),
            "kafka.heartbeat.interval.ms": "200",
            "startingOffsets": "earliest",
            "groupMembership": "static",
        } | ({"subscribe": topic} if topic else {})
        started.append(KafkaStreamReader(parse_source_options(options | more, "stream"), SCHEMA))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def first_batch(reader: KafkaStreamReader) -> dict[str, Any]:
    return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def members(outside: Any, group: str) -> list[Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            found = outside.admin.describe_consumer_groups([group], request_timeout=30)[group].result(30)
            return list(found.members)
        except KafkaException as error:  # the first group of a new broker: its coordinator is still to come
            if error.args[0].name() not in COORDINATOR_TO_COME or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def counts(reader: KafkaStreamReader) -> tuple[int, int]:
    report = reader.reportLatestOffset()
    assert report is not None
    return report["commitSuccesses"], report["commitFailures"]


def test_a_query_is_a_member_through_a_long_batch_until_it_stops(
    reader: Any, topic: Any, outside: Any, group: str, caplog: Any
) -> None:
    name = topic(2)
    outside.fill(name, [4, 2])
    query = reader(name)
    end = first_batch(query)
    eventually(lambda: len(members(outside, group)) == 1)  # before anything is committed: the batch may be long
    batch_ends = time.monotonic() + SESSION_S + 1
    while time.monotonic() < batch_ends:
        time.sleep(0.1)
    (member,) = members(outside, group)
    assert member.group_instance_id == f"pykafka-wire-{end['query']}"
    assert sorted(tp.partition for tp in member.assignment.topic_partitions) == [0, 1]
    assert query.latestOffset(end, ReadAllAvailable()) == end
    assert outside.committed(group) == {(name, 0): 4, (name, 1): 2}
    assert counts(query)[0] == 1
    query.stop()
    assert members(outside, group) == []
    assert "other members" not in caplog.text


def test_a_restarted_query_takes_its_place_and_the_one_before_commits_no_more(
    reader: Any, topic: Any, outside: Any, group: str, caplog: Any
) -> None:
    name = topic(1)
    outside.fill(name, [4])
    zombie = reader(name)
    end = first_batch(zombie)
    assert zombie.latestOffset(end, ReadAllAvailable()) == end
    again = reader(name)  # from the checkpoint, while the first one still runs
    outside.fill(name, [3])
    onward = again.latestOffset(end, ReadAllAvailable())
    assert again.latestOffset(onward, ReadAllAvailable()) == onward
    assert outside.committed(group) == {(name, 0): 7}
    assert len(members(outside, group)) == 1
    outside.fill(name, [1])
    late = zombie.latestOffset(end, ReadAllAvailable())
    for _ in range(3):
        late = zombie.latestOffset(late, ReadAllAvailable())  # reads on, and commits nothing
    assert outside.committed(group) == {(name, 0): 7}
    assert counts(zombie) == (1, 1)
    said = [r.getMessage() for r in caplog.records if "the query continues without commits" in r.getMessage()]
    assert len(said) == 1 and "FENCED_INSTANCE_ID" in said[0] and group in said[0]
    zombie.stop()
    assert len(members(outside, group)) == 1  # which was not its place to give up


def test_a_second_query_in_the_group_is_noticed_and_said(
    reader: Any, topic: Any, outside: Any, group: str, caplog: Any
) -> None:
    name = topic(2)
    outside.fill(name, [4, 4])
    one = reader(name)
    end = first_batch(one)
    assert one.latestOffset(end, ReadAllAvailable()) == end
    other = reader(name)
    theirs = first_batch(other)
    assert theirs["query"] != end["query"]
    eventually(lambda: len(members(outside, group)) == 2)
    assert other.latestOffset(theirs, ReadAllAvailable()) == theirs
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("has other members than this query" in text and group in text for text in said), said
    assert any("holds offsets of another query" in text and end["query"] in text for text in said), said


def test_new_topics_of_a_pattern_are_joined_for(reader: Any, topic: Any, outside: Any, group: str) -> None:
    prefix = f"p-{uuid.uuid4().hex[:8]}"
    first = topic(1, name=f"{prefix}-a")
    outside.fill(first, [1])
    query = reader(subscribePattern=f"{prefix}-.*")
    end = first_batch(query)
    query.latestOffset(end, ReadAllAvailable())
    second = topic(1, name=f"{prefix}-b")
    outside.fill(second, [2])

    def joined() -> bool:
        nonlocal end
        end = query.latestOffset(end, ReadAllAvailable())
        found = members(outside, group)
        return {tp.topic for member in found for tp in member.assignment.topic_partitions} == {first, second}

    eventually(joined)
    eventually(lambda: query.latestOffset(end, ReadAllAvailable()) == end and len(outside.committed(group)) == 2)


def test_leaving_is_not_cut_short_by_the_second_signal_that_spark_sends() -> None:
    reader_process = """
import time
from pykafka_wire.source.progress import static_member
static_member._exit_on_sigterm()
try:
    print("up", flush=True)
    time.sleep(60)
finally:
    print("leaving", flush=True)
    input()
    print("left", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", reader_process], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "leaving\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate("\n", timeout=60)[0] == "left\n"
    assert process.returncode == 128 + signal.SIGTERM
