"""Groups by the command line, beside Kafka's own tool on the same brokers."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from pykafka_wire.local.process import LocalClusterError
from pykafka_wire.sink.exactly_once.marker import DecidedTask, Marker, encode_marker, marker_group
from pykafka_wire.source.stream_reader import KafkaStreamReader
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import commit_offsets
from pykafka_wire.wire.records.producer_identity import ProducerIdentity
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.coordinator import TransactionHandle, TransactionVersion
from tests.connector.source.conftest import Process

Command = Callable[..., Any]

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

pytestmark = pytest.mark.broker


@pytest.fixture
def at(kafka: Any) -> list[str]:
    return ["--bootstrap", kafka.bootstrap_servers]


@pytest.fixture
def query(kafka: Any) -> Iterator[Callable[..., Process]]:
    """Starts the readers of streaming queries."""
    started: list[Process] = []

    def start(**options: str) -> Process:
        started.append(Process(kafka.bootstrap_servers, KafkaStreamReader, **options))
        return started[-1]

    yield start
    for each in started:
        each.reader.stop()


def test_groups_and_lag_are_those_of_kafkas_own_tool(
    command: Command, at: list[str], kafka: Any, topic: Any, outside: Any, query: Callable[..., Process]
) -> None:
    name, prefix = topic(2), f"orders-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [5, 3])
    # A query, whose group is generated; another one of the same prefix comes below.
    one = query(subscribe=name, startingOffsets="earliest", groupIdPrefix=prefix)
    end = one.latest(one.initial())
    one.latest(end)  # commits
    group = json.loads(end)["group"]
    outside.fill(name, [2, 0])

    listed = {row["group"]: row for row in json.loads(command("groups", *at, prefix, "--lag", "--json").stdout)}
    assert listed == {
        group: {"group": group, "state": "Empty", "type": "Classic", "protocol": None, "prefix": prefix, "lag": 2}
    }
    theirs = kafka.tool(TOOL, "--describe", "--group", group, "--offsets")
    by_tool = sorted(
        (fields[1], int(fields[2]), int(fields[3]), int(fields[4]), int(fields[5]))
        for line in theirs.splitlines()
        if (fields := line.split()) and fields[0] == group
    )
    shown = command("lag", *at, prefix, "--json")
    rows = json.loads(shown.stdout)
    assert f"The group of this prefix is {group}." in shown.stderr
    keys = ("topic", "partition", "committed", "latest", "lag")
    assert [tuple(row[key] for key in keys) for row in rows] == by_tool == [(name, 0, 5, 7, 2), (name, 1, 3, 3, 0)]
    assert json.loads(command("lag", *at, group, "--json").stdout) == rows

    for arguments in (["reset", prefix, "--topic", name, "--to", "latest"], ["commit", prefix, f"{name}:0=1"]):
        said = command(arguments[0], *at, *arguments[1:], code=1).stderr
        assert f"There is no group {prefix}, but it is the prefix of {group}. Give the full name of the group" in said
    assert outside.committed(prefix) == {}

    other = query(subscribe=name, startingOffsets="earliest", groupIdPrefix=prefix)
    other.latest(other.latest(other.initial()))
    several = command("lag", *at, prefix, code=2).stderr
    assert f"2 groups were generated with the prefix {prefix}, one for each checkpoint: " in several
    near = command("lag", *at, group[:-1], code=1).stderr
    assert f"There is no group {group[:-1]}. Did you mean {group}" in near
    for form in ([], ["--json"]):
        missing = command("lag", *at, "nothing-such", *form, code=1).stderr
        assert "There is no group nothing-such." in (json.loads(missing)["error"] if form else missing)
    assert "There is no group with 'nothing-such' in its name" in command("groups", *at, "nothing-such").stdout


@pytest.mark.parametrize(
    "protocol", ["classic", pytest.param("consumer", marks=pytest.mark.needs("consumer protocol of KIP-848"))]
)
def test_a_group_with_members_is_refused_as_by_kafkas_own_tool(
    protocol: str, command: Command, at: list[str], kafka: Any, topic: Any, outside: Any, until: Any
) -> None:
    name, group = topic(), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [3])
    settings = {"bootstrap.servers": outside.servers, "group.id": group, "client.id": "at-work", "log_level": 0}
    consumer = Consumer(settings | {"group.protocol": protocol, "enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment(), what="the assignment")
        (row,) = json.loads(command("groups", *at, group, "--json").stdout)
        assert (row["state"], row["type"].lower(), row["protocol"]) == ("Stable", protocol, "consumer")
        for arguments in (["reset", group, "--topic", name, "--to", "latest"], ["commit", group, f"{name}:0=1"]):
            said = command(arguments[0], *at, *arguments[1:], code=1).stderr
            assert f"Group {group} is in use: its state is Stable, with the members at-work at " in said
        theirs = ["--reset-offsets", "--group", group, "--topic", name, "--to-latest", "--execute"]
        try:
            told = kafka.tool(TOOL, *theirs)
        except LocalClusterError as error:
            told = str(error)
        assert "current state is Stable" in told
    finally:
        consumer.close()
    assert outside.committed(group) == {}
    until(lambda: json.loads(command("groups", *at, group, "--json").stdout)[0]["state"] == "Empty", what="the end")
    command("reset", *at, "--yes", group, "--topic", name, "--to", "latest")
    assert outside.committed(group) == {(name, 0): 3}


def test_offsets_are_moved_only_after_a_confirmation(
    command: Command, kafka: Any, topic: Any, outside: Any, at: list[str]
) -> None:
    name, group = topic(1), f"asked-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [3])
    for arguments in (["reset", group, "--topic", name, "--to", "latest"], ["commit", group, f"{name}:0=3"]):
        asked = command(arguments[0], *at, *arguments[1:], code=130, stdin="n\n")
        assert re.search(rf"{name}\s+0\s+-\s+3", asked.stdout)
        question = (
            f"Commit 1 offset to group {group}? A Spark query does not read them: it continues from its checkpoint."
        )
        assert question in asked.stderr
        assert outside.committed(group) == {}
    said = command("reset", *at, group, "--topic", name, "--to", "latest", stdin="y\n").stdout
    assert f"Committed to group {group}. A Spark query does not read it" in said
    assert outside.committed(group) == {(name, 0): 3}


@pytest.mark.parametrize("part", [0, 1])
def test_a_marker_of_an_exactly_once_query_is_not_changed(
    command: Command, kafka: Any, topic: Any, outside: Any, at: list[str], part: int
) -> None:
    name, query = topic(1), f"query-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [3])
    handle = TransactionHandle(
        transactional_id=f"{query}.task.0", identity=ProducerIdentity(1, 0), version=TransactionVersion.TV2
    )
    listed = tuple(DecidedTask(task=i, transaction=handle, n_records=1, digest="0" * 16) for i in range(300))
    marker = Marker(query_id="q", batch_id=0, n_records=300, digest="0" * 16, pending=listed)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        for number, offset in enumerate(encode_marker(marker, query)):
            commit_offsets(cluster, marker_group(query, number), {TopicPartition(name, 0): offset})
    group = marker_group(query, part)
    for arguments in (["reset", group, "--topic", name, "--to", "latest"], ["commit", group, f"{name}:0=3"]):
        for more in (["--yes"], ["--dry-run"]):
            said = command(arguments[0], *at, *arguments[1:], *more, code=1).stderr
            assert f"Group {group} holds the marker of an exactly-once query ({name}-0)" in said
    assert outside.committed(group) == {(name, 0): 1}
