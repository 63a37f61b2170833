"""Range and round-robin: what must always hold, and the same results as Java's assignors on generated groups."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.local.jars import KAFKA_VERSION, classpath, kafka_jars
from pykafka_wire.local.java import ensure_java
from pykafka_wire.wire.groups.classic.strategies import (
    ASSIGNORS,
    Assignor,
    Subscriber,
    assign_range,
    assign_round_robin,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

JAVA = Path(__file__).parent.parent / "conformance" / "Assign.java"
N_GROUPS = 1_000

topics = st.sets(st.sampled_from(["a", "b", "c", "d"]))
members = st.dictionaries(
    st.text("mno1", min_size=1, max_size=3), st.tuples(st.none() | st.text("ixy", min_size=1, max_size=3), topics),
    min_size=1, max_size=6,
)  # fmt: skip
counts = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 9))


def subscribers(group: dict[str, tuple[str | None, set[str]]]) -> list[Subscriber]:
    return [
        Subscriber(member_id=name, instance_id=instance, topics=frozenset(wanted))
        for name, (instance, wanted) in group.items()
    ]


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=members, n_partitions=counts)
def test_every_subscribed_partition_goes_to_one_subscriber(
    assign: Assignor, group: dict[str, tuple[str | None, set[str]]], n_partitions: dict[str, int]
) -> None:
    assigned = assign(subscribers(group), n_partitions)
    assert set(assigned) == set(group)
    for name, partitions in assigned.items():
        assert {tp.topic for tp in partitions} <= group[name][1]
    given_out = sorted(tp for partitions in assigned.values() for tp in partitions)
    wanted = set().union(*(topics for _, topics in group.values()))
    assert given_out == sorted(TopicPartition(t, p) for t, n in n_partitions.items() if t in wanted for p in range(n))


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=members, n_partitions=counts, seed=st.integers(0, 100))
def test_the_order_in_which_members_are_listed_changes_nothing(
    assign: Assignor, group: dict[str, tuple[str | None, set[str]]], n_partitions: dict[str, int], seed: int
) -> None:
    told = subscribers({name: (f"{instance}{name}" if instance else None, t) for name, (instance, t) in group.items()})
    shuffled = told.copy()
    random.Random(seed).shuffle(shuffled)
    assert assign(told, n_partitions) == assign(shuffled, n_partitions)


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    group = [Subscriber(member_id=name, topics=frozenset({"t"})) for name in ("b", "a")]
    assert assign_range(group, {"t": 3}) == {"a": tps("t", 0, 1), "b": tps("t", 2)}


def test_round_robin_continues_in_turn_from_topic_to_topic() -> None:
    group = [Subscriber(member_id=name, topics=frozenset({"s", "t"})) for name in ("a", "b")]
    assert assign_round_robin(group, {"t": 3, "s": 1}) == {"a": tps("s", 0) + tps("t", 1), "b": tps("t", 0, 2)}


def test_static_members_come_first() -> None:
    group = [
        Subscriber(member_id="a", topics=frozenset({"t"})),
        Subscriber(member_id="z", instance_id="i", topics=frozenset({"t"})),
    ]
    assert assign_range(group, {"t": 1}) == {"a": [], "z": tps("t", 0)}


@pytest.mark.broker
def test_javas_assignors_come_to_the_same(java: None) -> None:
    source = random.Random(20)
    lines, expected = [], []
    for _ in range(N_GROUPS):
        strategy = source.choice(["range", "roundrobin"])
        n_partitions = {topic: source.randrange(8) for topic in source.sample("abcd", source.randrange(1, 5))}
        ids = source.sample([f"{word}{n}" for word in ("m", "M", "ü", "\U0001f600", "\uff5e") for n in range(3)], 6)
        group = {
            name: (
                f"i{source.choice('xyz')}{name}" if source.random() < 0.3 else None,
                set(source.sample("abcd", source.randrange(5))),
            )
            for name in ids[: source.randrange(1, 6)]
        }
        lines.append(
            f"{strategy}|{','.join(f'{t}:{n}' for t, n in n_partitions.items())}|"
            + ",".join(f"{name}:{instance or ''}:{'+'.join(sorted(t))}" for name, (instance, t) in group.items())
        )
        assigned = ASSIGNORS[strategy](subscribers(group), n_partitions)
        expected.append({name: sorted(map(str, partitions)) for name, partitions in assigned.items()})
    done = subprocess.run(
        [str(ensure_java().executable), "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8",
         "-cp", classpath(kafka_jars(KAFKA_VERSION)), str(JAVA)],
        input="\n".join(lines), capture_output=True, encoding="utf-8", timeout=120, check=True,
    )  # fmt: skip
    responses = [
        {name: partitions.split() for name, partitions in (part.split("=") for part in line.split(";")[:-1])}
        for line in done.stdout.splitlines()
    ]
    assert responses == expected
    assert any(len(response) > 3 and all(response.values()) for response in responses)


def tps(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]
