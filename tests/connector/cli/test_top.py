"""Queries and groups on one screen, on real brokers and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.cli.top import _Watched
from pykafka_wire.source.stream_reader import KafkaStreamReader
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets
from pykafka_wire.wire.protocol.messages.group import ListGroupsRequest, ListGroupsResponse
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.cli.conftest import SCRIPT, plain, terminal_output
from tests.connector.source.conftest import Process
from tests.wire.fake_broker import FakeBroker

#: Ends the wait for a screen that does not come.
DEADLINE_S = 60
CLUSTER_AUTHORIZATION_FAILED = 31


@pytest.fixture
def two_groups(kafka: Any, topic: Any, outside: Any, command: Callable[..., Any]) -> Iterator[tuple[str, str, Any]]:
    """The prefix of two groups' names, their topic, and the query whose group is the first: 3 of 8 offsets behind. The other
    one is a consumer's, 8 behind."""
    name, prefix = topic(2), f"top-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [3, 2])
    query = Process(
        kafka.bootstrap_servers, KafkaStreamReader, **{
            "subscribe": name, "startingOffsets": "earliest", "kafka.group.id": f"{prefix}-a"
        }
    )  # fmt: skip
    query.latest(query.latest(query.initial()))  # commits
    outside.fill(name, [3, 0])
    command("commit", "--yes", "-b", kafka.bootstrap_servers, f"{prefix}-b", f"{name}:0=0", f"{name}:1=0")
    yield prefix, name, query
    query.reader.stop()


def test_queries_and_groups_for_scripts(
    kafka: Any, command: Callable[..., Any], two_groups: tuple[str, str, Any]
) -> None:
    prefix, name, _ = two_groups
    at = ["-b", kafka.bootstrap_servers, prefix, "--every", "0.1"]
    looked = json.loads(command("top", *at, "--once", "--json").stdout)
    ours, theirs = sorted(looked["groups"], key=lambda group: group["kind"], reverse=True)
    assert ours == {
        "group": f"{prefix}-a", "name": None, "fresh_s": None, "kind": "query", "state": "Empty", "topics": [name], "lag": 3,
        "read_per_s": 0.0, "written_per_s": 0.0, "caught_up_s": None,
    }  # fmt: skip
    assert (theirs["group"], theirs["kind"], theirs["lag"]) == (f"{prefix}-b", "classic", 8)
    lines = command("top", *at, "--json", "--count", "2").stdout.splitlines()
    assert [json.loads(line)["groups"][0]["read_per_s"] for line in lines] == [None, 0.0]
    table = command("top", *at, "--once").stdout
    assert "2 groups" in table and table.index(f"{prefix}-b") < table.index(f"{prefix}-a")  # by lag
    assert "does not fall" in table
    assert (
        "No group has committed offsets." in command("top", *at[:2], "nothing-such", "--once", "--every", "0.1").stdout
    )
    assert "leave out --count" in command("top", *at, "--once", "--count", "2", code=2).stderr


def test_rates_and_the_end_of_a_lag(kafka: Any, outside: Any, two_groups: tuple[str, str, Any]) -> None:
    prefix, name, query = two_groups
    settings = ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})
    with Cluster(settings) as cluster:
        watched = _Watched(cluster, f"{prefix}-a")
        (before,) = watched.sample().groups
        assert (before.lag, before.rates.read_per_s) == (3, None)
        outside.fill(name, [1, 0])
        query.latest(query.latest(query.latest(query.initial())))
        (after,) = watched.sample().groups
    assert after.lag == 0 and after.rates.caught_up_s == 0.0
    assert after.rates.read_per_s is not None and after.rates.written_per_s is not None
    assert 0 < after.rates.written_per_s < after.rates.read_per_s


def test_a_partition_without_a_leader_leaves_the_lag_unknown(leaderless: FakeBroker) -> None:
    with Cluster(ClientSettings.from_options({"bootstrap.servers": leaderless.address})) as cluster:
        found = {group.group: (group.lag, group.topics) for group in _Watched(cluster, None).sample().groups}
    assert found == {"a": (None, ["orders"]), "b": (7, ["others"])}


def test_a_sample_that_fails_does_not_end_the_others(leaderless: FakeBroker, command: Callable[..., Any]) -> None:
    listed, refused = leaderless.on[ListGroupsRequest], ListGroupsResponse(error_code=CLUSTER_AUTHORIZATION_FAILED)

    def second_fails(request: ListGroupsRequest, version: int) -> Any:
        return refused if leaderless.count(ListGroupsRequest) == 2 else listed(request, version)

    leaderless.on[ListGroupsRequest] = second_fails
    done = command("top", "-b", leaderless.address, "--json", "--every", "0.1", "--count", "3")
    assert [len(json.loads(line)["groups"]) for line in done.stdout.splitlines()] == [2, 2]
    assert done.stderr.startswith("The update at ") and "CLUSTER_AUTHORIZATION_FAILED" in done.stderr


def test_a_narrow_terminal_cuts_names_and_no_figure(
    kafka: Any, topic: Any, outside: Any, command: Callable[..., Any]
) -> None:
    name, group = topic(1), f"a-group-with-a-rather-long-name-{uuid.uuid4().hex}-{uuid.uuid4().hex}"
    outside.fill(name, [12_345])
    command("commit", "--yes", "-b", kafka.bootstrap_servers, group, f"{name}:0=0")
    arguments = ["top", "-b", kafka.bootstrap_servers, group, "--once", "--every", "0.1"]
    head, row = plain(terminal_output(arguments, columns=80)).splitlines()[1:3]
    assert len(row.rstrip()) <= 80
    assert head.split() == ["group", "kind", "lag", "fresh", "read/s", "written/s", "outlook"]
    assert row.startswith("a-group-with-") and row.split(maxsplit=6)[1:] == [
        "classic", "12,345", "-", "0", "0", "does not fall"
    ]  # fmt: skip


def test_a_marker_s_group_has_no_lag(kafka: Any, topic: Any, outside: Any, command: Callable[..., Any]) -> None:
    """An exactly-once query keeps its marker in the metadata of offsets that never move."""
    name, prefix = topic(1), f"top-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [5])
    at = TopicPartition(name, 0)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        marker = CommittedOffset(0, metadata='{"query":"q","batch":3,"digest":"00"}')
        commit_offsets(cluster, f"{prefix}.marker", {at: marker})
        commit_offsets(cluster, f"{prefix}-other", {at: CommittedOffset(4)})
    once = ["top", "-b", kafka.bootstrap_servers, prefix, "--once", "--every", "0.1", "--json"]
    shown = {each["group"]: (each["kind"], each["lag"]) for each in json.loads(command(*once).stdout)["groups"]}
    assert shown == {f"{prefix}-other": ("classic", 1), f"{prefix}.marker": ("marker", None)}


def test_keys_on_a_terminal(kafka: Any, two_groups: tuple[str, str, Any]) -> None:
    prefix, _, _ = two_groups
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))
    before = termios.tcgetattr(follower)
    environment = {**os.environ, "TERM": "xterm-256color"}
    for variable in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(variable, None)
    arguments = [str(SCRIPT), "top", "-b", kafka.bootstrap_servers, prefix, "--every", "30"]
    seen = b""

    def screen(wanted: Callable[[str], bool], what: str) -> None:
        """Read until the last screen is as wanted."""
        nonlocal seen
        until = time.monotonic() + DEADLINE_S
        while not wanted(plain(seen.decode(errors="replace")).rpartition("brokers, ")[2].rpartition("broker, ")[2]):
            assert time.monotonic() < until, f"no {what}: {seen.decode(errors='replace')}"
            if select.select([leader], [], [], 0.2)[0]:
                seen += os.read(leader, 65536)

    with subprocess.Popen(arguments, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        try:
            query, batch = f"{prefix}-a", f"{prefix}-b"
            screen(lambda text: -1 < text.find(batch) < text.find(query) and "q quit" in text, "screen by lag")
            os.write(leader, b"n")
            screen(lambda text: -1 < text.find(query) < text.find(batch), "screen by name")
            os.write(leader, b"q")  # long before the next sample
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
        assert termios.tcgetattr(follower) == before
    os.close(follower)
    os.close(leader)
