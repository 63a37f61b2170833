"""Planning is pure: ranges in, shares out, each offset exactly once."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.source.planning.plan import (
    TASK_BYTES,
    TASK_OFFSETS,
    pack_ranges,
    share_bytes,
    share_offsets,
    split_ranges,
    spread_leaders,
)
from pykafka_wire.wire.topics import OffsetRange, TopicPartition


@st.composite
def ranges(draw: st.DrawFn, largest: int = 10**7) -> list[OffsetRange]:
    """One range for each of some topic-partitions, empty and backward ones among them."""
    places = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), unique=True, max_size=12))
    return [
        OffsetRange(topic=topic, partition=partition, start_offset=start, end_offset=start + width, leader_epoch=7)
        for topic, partition in places
        for start, width in [draw(st.tuples(st.integers(0, 2**40), st.integers(-1, largest)))]
    ]


def covered(found: Sequence[OffsetRange]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Each topic-partition's ranges in order, with adjacent ones joined; overlaps and repeats stay visible."""
    joined: dict[TopicPartition, list[tuple[int, int]]] = {}
    for r in sorted(found, key=lambda r: (r.topic, r.partition, r.start_offset)):
        spans = joined.setdefault(r.topic_partition, [])
        if spans and spans[-1][1] == r.start_offset:
            spans[-1] = (spans[-1][0], r.end_offset)
        else:
            spans.append((r.start_offset, r.end_offset))
    return joined


limits = st.none() | st.integers(1, 50)


@given(ranges(), st.none() | st.integers(10**5, 10**8), limits)
def test_splitting_covers_every_offset_exactly_once(
    given_ranges: list[OffsetRange], max_records: int | None, min_partitions: int | None
) -> None:
    pieces = split_ranges(given_ranges, max_records=max_records, min_partitions=min_partitions)
    assert covered(pieces) == covered([r for r in given_ranges if r.n_offsets > 0])
    assert all(piece.n_offsets > 0 and piece.leader_epoch == 7 for piece in pieces)


@given(ranges(largest=1000), st.integers(1, 400), limits)
def test_no_piece_holds_more_than_max_records(
    given_ranges: list[OffsetRange], max_records: int, min_partitions: int | None
) -> None:
    pieces = split_ranges(given_ranges, max_records=max_records, min_partitions=min_partitions)
    assert all(piece.n_offsets <= max_records for piece in pieces)


@given(ranges(largest=1000), st.integers(1, 100))
def test_at_least_min_partitions_as_far_as_there_are_offsets(
    given_ranges: list[OffsetRange], min_partitions: int
) -> None:
    n_offsets = sum(r.n_offsets for r in given_ranges)
    assert len(split_ranges(given_ranges, min_partitions=min_partitions)) >= min(min_partitions, n_offsets)


@given(ranges(), st.integers(1, 100))
def test_ranges_are_not_split_where_there_are_enough(given_ranges: list[OffsetRange], min_partitions: int) -> None:
    full = [r for r in given_ranges if r.n_offsets > 0]
    if len(full) >= min_partitions:
        assert split_ranges(given_ranges, min_partitions=min_partitions) == full


def test_without_limits_ranges_stay_as_they_are_and_empty_ones_go() -> None:
    full = OffsetRange(topic="t", partition=0, start_offset=5, end_offset=9)
    empty = OffsetRange(topic="t", partition=1, start_offset=5, end_offset=5)
    assert split_ranges([full, empty]) == [full]


def test_splits_go_where_the_offsets_are() -> None:
    # As KafkaOffsetRangeCalculatorSuite has it: 1, 1 and 10 offsets with four partitions cut the last one only.
    three = [OffsetRange(topic="t", partition=p, start_offset=1, end_offset=1 + n) for p, n in enumerate([1, 1, 10])]
    sizes = Counter(piece.partition for piece in split_ranges(three, min_partitions=4))
    assert sizes == {0: 1, 1: 1, 2: 2} or sizes == {0: 1, 1: 1, 2: 3}


def test_max_records_goes_before_min_partitions() -> None:
    one = [OffsetRange(topic="t", partition=0, start_offset=0, end_offset=100)]
    assert len(split_ranges(one, max_records=10, min_partitions=4)) == 10
    assert len(split_ranges(one, max_records=50, min_partitions=4)) == 4


@given(ranges(), st.floats(0, 1e7), st.none() | st.integers(10**4, 10**8), limits)
def test_packing_keeps_each_range_exactly_once(
    given_ranges: list[OffsetRange], bytes_per_offset: float, max_records: int | None, min_partitions: int | None
) -> None:
    groups = pack_ranges(
        given_ranges,
        bytes_per_offset=lambda _: bytes_per_offset,
        max_records=max_records,
        min_partitions=min_partitions,
    )
    full = [r for r in given_ranges if r.n_offsets > 0]
    assert Counter(r for group in groups for r in group) == Counter(full)
    assert all(groups)
    assert len(groups) >= min(len(full), min_partitions or 1)
    if max_records is not None:
        assert all(len(group) == 1 or sum(r.n_offsets for r in group) <= max_records for group in groups)


@given(ranges(largest=1000), st.integers(1, 300), st.integers(1, 60))
def test_splitting_and_packing_together_keep_both_limits(
    given_ranges: list[OffsetRange], max_records: int, min_partitions: int
) -> None:
    pieces = split_ranges(given_ranges, max_records=max_records, min_partitions=min_partitions)
    groups = pack_ranges(
        pieces, bytes_per_offset=lambda _: 100.0, max_records=max_records, min_partitions=min_partitions
    )
    assert covered([r for group in groups for r in group]) == covered([r for r in given_ranges if r.n_offsets > 0])
    assert all(sum(r.n_offsets for r in group) <= max_records for group in groups)
    assert len(groups) >= min(min_partitions, sum(r.n_offsets for r in given_ranges))


def test_many_small_ranges_share_one_task() -> None:
    small = [OffsetRange(topic="t", partition=p, start_offset=0, end_offset=100) for p in range(64)]
    assert len(pack_ranges(small, bytes_per_offset=lambda _: 100.0)) == 1


def test_large_ranges_get_tasks_of_their_own() -> None:
    large = [OffsetRange(topic="t", partition=p, start_offset=0, end_offset=2 * TASK_OFFSETS) for p in range(4)]
    assert [len(group) for group in pack_ranges(large, bytes_per_offset=lambda _: 100.0)] == [1, 1, 1, 1]


def test_few_offsets_of_many_bytes_get_tasks_of_their_own() -> None:
    wide = [OffsetRange(topic="t", partition=p, start_offset=0, end_offset=100) for p in range(4)]
    assert len(pack_ranges(wide, bytes_per_offset=lambda _: TASK_BYTES / 50)) == 4


def test_input_partitions_are_about_equal() -> None:
    sizes = [9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1]
    uneven = [
        OffsetRange(topic="t", partition=p, start_offset=0, end_offset=n * TASK_OFFSETS) for p, n in enumerate(sizes)
    ]
    groups = pack_ranges(uneven, bytes_per_offset=lambda _: 0.0, min_partitions=4)
    loads = [sum(r.n_offsets for r in group) for group in groups]
    assert max(loads) <= max(max(sizes) * TASK_OFFSETS, 4 / 3 * sum(loads) / len(loads))


@given(st.lists(st.integers(0, 3), max_size=30))
def test_tasks_side_by_side_read_from_different_leaders(leaders: list[int]) -> None:
    groups = [[OffsetRange(topic="t", partition=p, start_offset=0, end_offset=1)] for p in range(len(leaders))]
    spread = spread_leaders(groups, lambda tp: leaders[tp.partition])
    assert sorted(group[0].partition for group in spread) == list(range(len(leaders)))
    first = [leaders[group[0].partition] for group in spread][: len(set(leaders))]
    assert len(set(first)) == len(first)


def test_ten_thousand_topic_partitions_are_planned_in_no_time() -> None:
    many = [
        OffsetRange(topic=f"t{p % 50}", partition=p // 50, start_offset=0, end_offset=1 + p * 37 % 5000)
        for p in range(10_000)
    ]
    started = time.perf_counter()
    pieces = split_ranges(many, max_records=100_000, min_partitions=16)
    pack_ranges(pieces, bytes_per_offset=lambda _: 500.0, max_records=100_000, min_partitions=16)
    assert time.perf_counter() - started < 1.0


def test_nothing_to_read_is_no_input_partition() -> None:
    assert pack_ranges([], bytes_per_offset=lambda _: 1.0, max_records=1, min_partitions=5) == []
    assert split_ranges([], min_partitions=5) == []


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
    shared = share_bytes(starts, ends, max_bytes, lambda _: float(size))
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
    shared = share_bytes({small: 0, large: 0}, {small: 1000, large: 1000}, 1_010_000, sizes.__getitem__)
    assert shared == {small: 100, large: 100}
