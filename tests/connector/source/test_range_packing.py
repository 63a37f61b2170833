"""Input partitions: ranges in, shares out, each offset exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.source.planning.batch_tasks import (
    TASK_BYTES,
    TASK_OFFSETS,
    alternate_leaders,
    pack_ranges,
    split_ranges,
)
from pykafka_wire.wire.topic_partitions import OffsetRange, TopicPartition


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
    alternating = alternate_leaders(groups, lambda tp: leaders[tp.partition])
    assert sorted(group[0].partition for group in alternating) == list(range(len(leaders)))
    first = [leaders[group[0].partition] for group in alternating][: len(set(leaders))]
    assert len(set(first)) == len(first)


def test_ten_thousand_topic_partitions_are_planned_in_no_time() -> None:
    many = [
        OffsetRange(topic=f"t{p % 50}", partition=p // 50, start_offset=0, end_offset=1 + p * 37 % 5000)
        for p in range(10_000)
    ]
    started = time.process_time()
    pieces = split_ranges(many, max_records=100_000, min_partitions=16)
    pack_ranges(pieces, bytes_per_offset=lambda _: 500.0, max_records=100_000, min_partitions=16)
    assert time.process_time() - started < 1.0


def test_nothing_to_read_is_no_input_partition() -> None:
    assert pack_ranges([], bytes_per_offset=lambda _: 1.0, max_records=1, min_partitions=5) == []
    assert split_ranges([], min_partitions=5) == []
