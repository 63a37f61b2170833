"""cooperative-sticky: what must always hold, on generated groups over generations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.wire.groups.classic.strategies import Subscriber, assign_cooperative_sticky, assign_sticky
from pykafka_wire.wire.topic_partitions import TopicPartition

TOPICS = ["a", "b", "c"]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
subscriptions = st.dictionaries(st.sampled_from("mnopq"), st.sets(st.sampled_from(TOPICS)), min_size=1)
Assigned = dict[str, list[TopicPartition]]


def group(wanted: dict[str, set[str]], owned: Assigned | None = None, generation: int = 1) -> list[Subscriber]:
    return [
        Subscriber(
            member_id=name, topics=frozenset(topics), owned=tuple((owned or {}).get(name, ())), generation=generation
        )
        for name, topics in wanted.items()
    ]


def moved(before: Assigned, after: Assigned) -> int:
    return sum(len(set(partitions) - set(before.get(name, ()))) for name, partitions in after.items())


@given(first=subscriptions, then=subscriptions, n_partitions=counts, later=counts)
def test_partitions_are_balanced_and_those_that_stay_balanced_stay(
    first: dict[str, set[str]], then: dict[str, set[str]], n_partitions: dict[str, int], later: dict[str, int]
) -> None:
    before = assign_sticky(group(first), n_partitions)
    assert assign_sticky(group(first, before), n_partitions) == before
    after = assign_sticky(group(then, before, 2), later)
    for name, partitions in after.items():
        for tp in partitions:
            assert tp.topic in then[name]
            assert all(len(partitions) - len(after[other]) < 2 for other in then if tp.topic in then[other])


@given(
    names=st.sets(st.sampled_from("mnopq"), min_size=1),
    joined=st.sets(st.sampled_from("vwxyz"), max_size=2),
    n=st.integers(0, 40),
)
def test_with_one_subscription_no_partition_moves_that_need_not(names: set[str], joined: set[str], n: int) -> None:
    before = assign_sticky(group({key: {"a"} for key in names}), {"a": n})
    assert {len(partitions) for partitions in before.values()} <= {n // len(names), -(-n // len(names))}
    everybody = names | joined
    after = assign_sticky(group({key: {"a"} for key in everybody}, before), {"a": n})
    sizes = sorted(len(partitions) for partitions in after.values())
    assert sizes[-1] - sizes[0] < 2
    assert moved(before, after) == sum(len(after[name]) for name in joined)
    remaining = group({key: {"a"} for key in names}, {name: after[name] for name in names})
    assert moved(after, assign_sticky(remaining, {"a": n})) == sum(len(after[name]) for name in joined)


@given(first=subscriptions, then=subscriptions, n_partitions=counts, later=counts)
def test_a_partition_changes_hands_in_two_rebalances(
    first: dict[str, set[str]], then: dict[str, set[str]], n_partitions: dict[str, int], later: dict[str, int]
) -> None:
    before = assign_sticky(group(first), n_partitions)
    owned = {name: before.get(name, []) for name in then}
    once = assign_cooperative_sticky(group(then, owned, 2), later)
    for name, partitions in once.items():
        others = {tp for other, theirs in owned.items() if other != name for tp in theirs}
        assert others.isdisjoint(partitions)
    twice = assign_cooperative_sticky(group(then, once, 3), later)
    wanted = {TopicPartition(topic, p) for topic, n in later.items() for p in range(n)}
    given_out = sorted(tp for partitions in twice.values() for tp in partitions)
    assert given_out == sorted(tp for tp in wanted if any(tp.topic in topics for topics in then.values()))
    assert all(set(once[name]) <= set(twice[name]) for name in then)


def test_a_claim_from_an_older_generation_does_not_count_and_is_waited_for() -> None:
    tp = TopicPartition("a", 0)
    old, new = group({"m": {"a"}, "n": {"a"}}, {"m": [tp], "n": [tp]})
    members = [replace(old, generation=3), replace(new, generation=4)]
    assert assign_sticky(members, {"a": 1}) == {"m": [], "n": [tp]}
    # Until the one that is behind has given it up, it is nobody's.
    assert assign_cooperative_sticky(members, {"a": 1}) == {"m": [], "n": []}
    assert assign_cooperative_sticky([replace(members[0], owned=()), members[1]], {"a": 1}) == {"m": [], "n": [tp]}
