"""The plan of a micro-batch is a pure function: a checkpoint, a snapshot of the logs and limits in, the next offset out."""

from __future__ import annotations

import math
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.checkpoints.query_offsets import DroppedTopic, QueryOffsets
from pykafka_wire.errors import Loss
from pykafka_wire.source.planning import micro_batch
from pykafka_wire.source.planning.micro_batch import LogSnapshot, MicroBatchPlan, compare_logs, known_offsets
from pykafka_wire.source.planning.trigger_limits import Limits, share_bytes, share_offsets
from pykafka_wire.wire.cluster.admin import ListedOffset
from pykafka_wire.wire.topic_partitions import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
IDS = {"a": uuid.UUID(int=10), "b": uuid.UUID(int=11)}
CHECKPOINT = QueryOffsets(offsets={A: 5, B: 7}, epochs={A: 1, B: 1}, topic_ids=IDS, query="q", group="g")


def ends(*offsets: int, epoch: int = 1) -> dict[TopicPartition, ListedOffset]:
    """The ends of the logs of topics a, b, …"""
    return {TopicPartition("ab"[i], 0): ListedOffset(offset, -1, epoch) for i, offset in enumerate(offsets)}


def snapshot(*offsets: int, **fields: Any) -> LogSnapshot:
    return LogSnapshot(latest=ends(*offsets), **({"topic_ids": dict(list(IDS.items())[: len(offsets)])} | fields))


def plan_micro_batch(
    checkpoint: QueryOffsets, snapshot: LogSnapshot, limits: Limits, group: str | None = None
) -> MicroBatchPlan:
    logs = compare_logs(known_offsets(checkpoint, snapshot.topic_ids), snapshot)
    return micro_batch.plan_micro_batch(checkpoint, logs, limits, group=group)


def losses(plan: MicroBatchPlan) -> list[tuple[Loss, list[Any]]]:
    return [(each.loss, each.ranges) for each in plan.losses]


def test_nothing_new_is_no_micro_batch() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(5, 7), Limits())
    assert (plan.end, plan.losses, plan.is_waiting) == (None, [], True)


def test_the_end_carries_the_query_and_what_brokers_know() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(9, 7), Limits())
    assert plan.end == QueryOffsets(offsets={A: 9, B: 7}, epochs={A: 1, B: 1}, topic_ids=IDS, query="q", group="g")
    assert plan_micro_batch(CHECKPOINT, snapshot(9, 7), Limits(), group="mine").end == replace(plan.end, group="mine")


def test_the_first_end_carries_its_own_start() -> None:
    plan = plan_micro_batch(replace(CHECKPOINT, initial=True), snapshot(9, 7), Limits())
    assert plan.end is not None and not plan.end.initial
    assert plan.end.starts == {A: 5, B: 7}


def test_a_first_micro_batch_over_nothing_ends_with_its_start_and_the_leader_epochs() -> None:
    new = replace(CHECKPOINT, epochs={}, initial=True)
    end = plan_micro_batch(new, snapshot(5, 7), Limits()).end
    assert end == replace(new, epochs={A: 1, B: 1}, starts={A: 5, B: 7}, initial=False)
    assert plan_micro_batch(end, snapshot(5, 7), Limits()).end is None


def test_a_new_log_is_in_the_offset_from_its_first_records_on() -> None:
    start = replace(CHECKPOINT, offsets={A: 5}, topic_ids={"a": IDS["a"]})
    assert plan_micro_batch(start, snapshot(5, 3, earliest={B: 3}), Limits()).end is None
    plan = plan_micro_batch(start, snapshot(5, 8, earliest={B: 3}), Limits())
    assert plan.end is not None
    assert (plan.end.offsets, plan.end.starts) == ({A: 5, B: 8}, {B: 3})
    assert losses(plan) == [(Loss.ADDED_PARTITION_DOES_NOT_START_FROM_ZERO, [(B, 0, 3)])]


def test_limits_hold_together() -> None:
    new = snapshot(105, 107)
    for limits, expected in (
        (Limits(max_offsets=20), {A: 15, B: 17}),
        (Limits(last_offsets={A: 6}), {A: 6, B: 7}),
        (Limits(last_offsets={A: 25, B: 27}, max_offsets=20), {A: 15, B: 17}),
        (Limits(max_bytes=2_000, bytes_per_offset={"a": 10.0, "b": 190.0}), {A: 15, B: 17}),
        (Limits(max_offsets=20, max_bytes=1_000, bytes_per_offset={"a": 10.0, "b": 190.0}), {A: 10, B: 12}),
    ):
        plan = plan_micro_batch(CHECKPOINT, new, limits)
        assert plan.end is not None and plan.end.offsets == expected
        assert not plan.is_waiting
    refused = plan_micro_batch(CHECKPOINT, new, Limits(min_offsets=201))
    assert refused.end is None and not refused.is_waiting
    assert plan_micro_batch(CHECKPOINT, new, Limits(min_offsets=200)).end is not None
    ended = plan_micro_batch(CHECKPOINT, new, Limits(last_offsets={A: 5, B: 7}))
    assert ended.end is None and ended.is_waiting


def test_a_truncated_log_continues_where_it_was_cut_and_that_is_remembered_at_once() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(9, 7, epoch_ends={A: 3}), Limits())
    assert losses(plan) == [(Loss.LOG_TRUNCATED, [(A, 3, 5)])]
    assert plan.end is not None and (plan.end.offsets[A], plan.end.starts) == (9, {A: 3})
    plan = plan_micro_batch(CHECKPOINT, snapshot(3, 7), Limits())
    assert losses(plan) == [(Loss.OFFSETS_CHANGED, [(A, 3, 5)])]
    assert plan.end is not None and (plan.end.offsets[A], plan.end.starts) == (3, {A: 3})
    intact = plan_micro_batch(CHECKPOINT, snapshot(9, 7, epoch_ends={A: 5}), Limits())
    assert not intact.losses


def test_an_open_transaction_that_holds_a_log_back_is_no_loss() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(3, 7, high_watermarks={A: 6}), Limits())
    assert (plan.end, plan.losses) == (None, [])


def test_a_topic_that_is_gone_is_dropped_and_remembered_by_its_id() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(6), Limits())
    assert losses(plan) == [(Loss.PARTITIONS_DELETED, [(B, 7, -1)])]
    end = plan.end
    assert end is not None and end.offsets == {A: 6}
    assert end.dropped == (DroppedTopic(topic="b", topic_id=IDS["b"], offsets={0: 7}, epochs={0: 1}),)
    back = plan_micro_batch(end, snapshot(6, 9), Limits())
    assert (back.resumed, back.losses) == ({"b"}, [])
    assert back.end is not None
    assert (back.end.offsets, back.end.starts, back.end.dropped) == ({A: 6, B: 9}, {B: 7}, ())
    # Nothing new in it: nothing changes, and it stays remembered.
    assert plan_micro_batch(end, snapshot(6, 7), Limits()).end is None


def test_a_topic_made_again_is_read_from_its_beginning_and_the_one_before_is_remembered() -> None:
    again = IDS | {"b": uuid.UUID(int=99)}
    plan = plan_micro_batch(CHECKPOINT, snapshot(5, 4, topic_ids=again, earliest={B: 0}), Limits())
    assert losses(plan) == [(Loss.TOPIC_RECREATED, [(B, 7, -1)])]
    end = plan.end
    assert end is not None and (end.offsets, end.starts, end.topic_ids) == ({A: 5, B: 4}, {B: 0}, again)
    assert end.dropped == (DroppedTopic(topic="b", topic_id=IDS["b"], offsets={0: 7}, epochs={0: 1}),)
    # The new one was another broker's old one: the topic goes on under its first id.
    back = plan_micro_batch(end, snapshot(5, 9), Limits())
    assert back.end is not None and (back.end.offsets[B], back.end.starts) == (9, {B: 7})
    assert back.end.dropped == (DroppedTopic(topic="b", topic_id=again["b"], offsets={0: 4}, epochs={0: 1}),)


def test_a_hidden_topic_keeps_its_offsets_and_is_not_lost() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(6, hidden=frozenset({"b"})), Limits())
    assert not plan.losses
    assert plan.end == replace(CHECKPOINT, offsets={A: 6, B: 7})


def test_only_so_many_dropped_offsets_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "_MAX_DROPPED", 2)
    old = [DroppedTopic(topic=f"old-{i}", topic_id=uuid.UUID(int=i + 1), offsets={0: i}) for i in range(3)]
    plan = plan_micro_batch(replace(CHECKPOINT, dropped=tuple(old)), snapshot(6), Limits())
    assert plan.end is not None
    assert [each.topic for each in plan.end.dropped] == ["old-2", "b"]
    large = replace(CHECKPOINT, offsets={A: 5} | {TopicPartition("b", p): 7 for p in range(3)}, dropped=tuple(old))
    plan = plan_micro_batch(large, snapshot(6), Limits())
    assert plan.end is not None
    assert plan.end.dropped == (DroppedTopic(topic="b", topic_id=IDS["b"], offsets={0: 7, 1: 7, 2: 7}, epochs={0: 1}),)


def test_new_topic_partitions_that_vanished_are_lost() -> None:
    plan = plan_micro_batch(CHECKPOINT, snapshot(5, 7, vanished=(TopicPartition("c", 0),)), Limits())
    assert losses(plan) == [(Loss.INITIAL_OFFSET_NOT_FOUND, [(TopicPartition("c", 0), 0, -1)])]
    assert plan.end is None


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    start, latest = {}, {}
    for partition in range(draw(st.integers(1, 10))):
        tp = TopicPartition("t", partition)
        start[tp] = draw(st.integers(0, 2**50))
        latest[tp] = start[tp] + draw(st.integers(0, 10) | st.integers(0, 2**40))
    return start, latest


@given(logs(), st.integers(1, 2**45))
def test_shares_stay_within_the_logs_and_the_limit(
    log: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], max_offsets: int
) -> None:
    start, latest = log
    ends = share_offsets(start, latest, max_offsets)
    assert ends.keys() == latest.keys()
    assert all(start[tp] <= end <= latest[tp] for tp, end in ends.items())
    taken = sum(ends[tp] - start[tp] for tp in ends)
    lag = sum(latest[tp] - start[tp] for tp in latest)
    # Floating point may be off by one in 2**52; each share below one is rounded up.
    assert taken <= max_offsets + len(latest) + math.ceil(max_offsets * 2**-50)
    if lag <= max_offsets:
        assert ends == latest


@given(logs(), st.integers(1, 100))
def test_no_topic_partition_starves_beside_a_large_one(  # SPARK-26718
    log: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], max_offsets: int
) -> None:
    start, latest = log
    ends = share_offsets(start, latest, max_offsets)
    assert all(ends[tp] > start[tp] for tp in latest if latest[tp] > start[tp])


def test_the_largest_limit_there_is_reads_everything() -> None:  # SPARK-26718: Long.MaxValue overflowed there
    start = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 3}
    latest = {TopicPartition("t", 0): 21, TopicPartition("t", 1): 4}
    assert share_offsets(start, latest, 2**63 - 1) == latest


@pytest.mark.parametrize(
    ("lags", "limit", "shares"),
    [
        # KafkaMicroBatchSourceSuite, "maxOffsetsPerTrigger": lags of 100, 10 and 1 with a limit of 10.
        ([100, 10, 1], 10, [9, 1, 1]),
        ([91, 9, 0], 10, [9, 1, 0]),
        ([5, 5], 4, [2, 2]),
        ([5, 5], 5, [2, 2]),
        ([1, 1, 1], 1, [1, 1, 1]),
    ],
)
def test_shares_are_rounded_as_in_sparks_own_connector(lags: list[int], limit: int, shares: list[int]) -> None:
    start = {TopicPartition("t", p): 1000 for p in range(len(lags))}
    ends = share_offsets(start, {tp: 1000 + lags[tp.partition] for tp in start}, limit)
    assert [ends[tp] - 1000 for tp in sorted(ends)] == shares


# --- maxBytesPerTrigger


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)),
        st.tuples(st.integers(0, 50), st.integers(0, 1000)),
    ),
    st.integers(1, 200_000),
    st.integers(1, 3000),
)
def test_a_share_of_bytes_stays_within_the_logs_and_near_the_limit(
    lags: dict[TopicPartition, tuple[int, int]], max_bytes: int, size: int
) -> None:
    starts = {tp: first for tp, (first, _) in lags.items()}
    ends = {tp: first + n for tp, (first, n) in lags.items()}
    shared = share_bytes(starts, ends, max_bytes, {"a": float(size), "b": float(size)})
    assert all(starts[tp] <= end <= ends[tp] for tp, end in shared.items())
    # Each topic-partition that has something gives at least one offset; beyond that the limit holds.
    assert all(shared[tp] > starts[tp] for tp in ends if ends[tp] > starts[tp])
    n_bytes = sum(end - starts[tp] for tp, end in shared.items()) * size
    assert n_bytes <= max_bytes + len(lags) * size
    if sum(n for _, n in lags.values()) * size <= max_bytes:
        assert shared == ends


def test_large_records_take_their_share_of_bytes() -> None:
    small, large = TopicPartition("small", 0), TopicPartition("large", 0)
    sizes = {"small": 100.0, "large": 10_000.0}
    shared = share_bytes({small: 0, large: 0}, {small: 1000, large: 1000}, 1_010_000, sizes)
    assert shared == {small: 100, large: 100}
