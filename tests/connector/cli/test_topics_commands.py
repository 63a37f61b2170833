"""Topics created, described, altered and deleted by the command line; judged by an independent client."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

Command = Callable[..., Any]

pytestmark = pytest.mark.broker


@pytest.fixture
def at(kafka: Any) -> list[str]:
    return ["--bootstrap", kafka.bootstrap_servers]


@pytest.fixture
def name(outside: Any) -> Iterator[str]:
    """A name that no topic has yet."""
    name = f"payments-{uuid.uuid4().hex[:8]}"
    yield name
    if name in outside.admin.list_topics(timeout=30).topics:
        outside.delete(name)


def own_configs(outside: Any, name: str) -> dict[str, str]:
    """What is set for a topic, as others see it."""
    asked = ConfigResource(ResourceType.TOPIC, name)
    found = outside.admin.describe_configs([asked])[asked].result(30)
    return {each.name: each.value for each in found.values() if each.source == 1}


def test_a_topic_is_created_described_altered_and_deleted(
    command: Command, at: list[str], name: str, outside: Any, until: Any
) -> None:
    made = command("topics", "create", *at, name, "-p", "3", "-r", "1", "--set", "retention.ms=-1").stdout
    assert made == f"{name} has 3 partitions.\n"
    assert len(outside.admin.list_topics(name, timeout=30).topics[name].partitions) == 3
    assert own_configs(outside, name)["retention.ms"] == "-1"
    assert "TOPIC_ALREADY_EXISTS" in command("topics", "create", *at, name, code=1).stderr
    command("topics", "create", *at, name, "-p", "9", "--if-not-exists")

    outside.fill(name, [4, 0, 2])
    described = json.loads(command("topics", "describe", *at, name, "--json").stdout)
    assert (described["partitions"], described["replicas"]) == (3, 1)
    assert described["configs"]["retention.ms"] == "-1"
    assert [(row["partition"], row["earliest"], row["latest"]) for row in described["by_partition"]] == [
        (0, 0, 4), (1, 0, 0), (2, 0, 2),
    ]  # fmt: skip
    text = command("topics", "describe", *at, name).stdout
    assert f"topic {name}, id " in text and "retention.ms" in text and "max.message.bytes" not in text
    assert "max.message.bytes" in command("topics", "describe", *at, name, "--all-configs").stdout

    command("topics", "alter", *at, name, "-p", "4", "--set", "max.message.bytes=2000", "--unset", "retention.ms")
    until(lambda: len(outside.admin.list_topics(name, timeout=30).topics[name].partitions) == 4, what="partition 3")
    until(lambda: "retention.ms" not in own_configs(outside, name), what="the default of retention.ms")
    assert own_configs(outside, name)["max.message.bytes"] == "2000"
    assert "partitions cannot be removed" in command("topics", "alter", *at, name, "-p", "2", code=2).stderr
    assert "4 partitions already" in command("topics", "alter", *at, name, "-p", "4").stdout
    assert "Nothing to change" in command("topics", "alter", *at, name, code=2).stderr

    asked = command("topics", "delete", *at, name, code=130, stdin="n\n")
    assert f"Delete 1 topic with all records: {name}?" in asked.stderr
    assert name in outside.admin.list_topics(timeout=30).topics
    assert command("topics", "delete", *at, name, "--yes").stdout == f"Deleted {name}.\n"
    until(lambda: name not in outside.admin.list_topics(timeout=30).topics, what="the end of the topic")


def test_topics_are_created_and_deleted_though_one_is_refused(
    command: Command, at: list[str], name: str, outside: Any, until: Any
) -> None:
    command("topics", "create", *at, name)
    other = f"{name}-other"
    done = command("topics", "create", *at, "wrong name", name, f"{other}:2", "-p", "5", code=1)
    assert done.stdout == f"{other} has 2 partitions.\n"
    assert "INVALID_TOPIC_EXCEPTION" in done.stderr and "TOPIC_ALREADY_EXISTS" in done.stderr
    unknown_config = ["--set", "retention.m=5", "--if-not-exists", "--json"]
    done = command("topics", "create", *at, "wrong name", name, f"{name}-a", f"{name}-b", *unknown_config, code=2)
    assert [row["topic"] for row in json.loads(done.stdout)] == [name]
    assert "INVALID_TOPIC_EXCEPTION" in done.stderr and done.stderr.count("Topics have no config retention.m.") == 1
    assert command("topics", "delete", *at, name, other, "--yes").stdout == f"Deleted {name}.\nDeleted {other}.\n"
    until(lambda: not {name, other} & outside.admin.list_topics(timeout=30).topics.keys(), what="the end of both")


def test_brokers_choose_what_is_left_out(command: Command, at: list[str], name: str, outside: Any) -> None:
    (row,) = json.loads(command("topics", "create", *at, name, "--json").stdout)
    assert (row["topic"], row["partitions"]) == (
        name,
        len(outside.admin.list_topics(name, timeout=30).topics[name].partitions),
    )


def test_a_typing_error_gets_at_once_the_nearest_names(
    command: Command, at: list[str], name: str, outside: Any
) -> None:
    command("topics", "create", *at, name)
    wrong = name.replace("payments", "paymnts")
    for arguments in (["delete", wrong, "--yes"], ["describe", wrong], ["alter", wrong, "-p", "2"]):
        said = command("topics", arguments[0], *at, *arguments[1:], code=1).stderr
        assert f"There is no topic {wrong} that you may describe. Did you mean {name}?" in said
    for arguments in (
        ["alter", name, "--set", "retention.m=5"],
        ["alter", name, "--unset", "retention.m"],
        ["create", f"{name}-2", "--set", "retention.m=5"],
    ):
        said = command("topics", arguments[0], *at, *arguments[1:], code=2).stderr
        assert "Topics have no config retention.m. Did you mean retention.ms" in said
    assert f"{name}-2" not in outside.admin.list_topics(timeout=30).topics
    assert "INVALID_CONFIG" in command("topics", "alter", *at, name, "--set", "retention.ms=soon", code=1).stderr
    assert "write --set NAME=VALUE" in command("topics", "alter", *at, name, "--set", "retention.ms", code=2).stderr
