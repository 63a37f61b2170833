"""Trigger limits: a minimum waits, but neither for ever nor before the first batch."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from pykafka_wire.options.option import TopicMinimum
from pykafka_wire.source.planning.trigger_limits import (
    Limits,
    MinimumOffsets,
    MinimumsOfTopics,
    apply_limits,
    waiting_topics,
)
from pykafka_wire.source.stream_reader import stream_reader
from pykafka_wire.wire.topic_partitions import TopicPartition


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_without_a_minimum_every_batch_goes() -> None:
    minimum = MinimumOffsets(min_offsets=None, max_delay_ms=60_000, clock=Clock())
    minimum.restart()
    assert minimum.required() == 0


def test_the_first_batch_never_waits_and_later_ones_do() -> None:
    minimum = MinimumOffsets(min_offsets=10, max_delay_ms=60_000, clock=Clock())
    assert minimum.required() == 0
    minimum.restart()
    assert minimum.required() == 10


def test_a_batch_waits_no_longer_than_the_delay() -> None:
    clock = Clock()
    minimum = MinimumOffsets(min_offsets=10, max_delay_ms=60_000, clock=clock)
    minimum.restart()
    clock.now += 59.9
    assert minimum.required() == 10
    clock.now += 0.2
    assert minimum.required() == 0
    minimum.restart()
    assert minimum.required() == 10  # the delay starts anew


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"maxOffsetsPerTrigger": "1"}, ReadMaxRows(1)),
        ({"maxOffsetsPerTrigger": "1000000000000"}, ReadMaxRows(10**12)),
        ({"maxBytesPerTrigger": "5"}, ReadMaxBytes(5)),
        ({"maxOffsetsPerTrigger": "3", "maxBytesPerTrigger": "5"}, ReadMaxRows(3)),
        ({}, ReadAllAvailable()),
    ],
)
def test_a_maximum_is_sparks_read_limit(limits: dict[str, str], expected: object) -> None:
    options = {"kafka.bootstrap.servers": "none:1", "subscribe": "orders", **limits}
    assert stream_reader(options, StructType(), None).getDefaultReadLimit() == expected


def test_a_topic_waits_for_its_minimum_or_its_delay_and_no_other_topic_does() -> None:
    clock = Clock()
    minimums = MinimumsOfTopics([TopicMinimum("quiet", 1, 1000), TopicMinimum("slow|quiet.*", 10, 60_000)], clock=clock)
    topics = ["quiet", "slow", "quieter", "other"]
    required = minimums.required({TopicPartition(topic, 0): 5 for topic in topics})
    assert required == {"quiet": 1, "slow": 10, "quieter": 10}
    starts = {TopicPartition(topic, p): 5 for topic in topics for p in (0, 1)}
    ends = {tp: 6 if tp.topic != "quieter" else 10 for tp in starts}
    limits = Limits(min_by_topic=required)
    assert waiting_topics(starts, ends, limits) == {"slow"}
    taken = apply_limits(starts, ends, limits)
    assert {tp.topic for tp, end in taken.items() if end == starts[tp]} == {"slow"}
    minimums.remember({"slow"})
    clock.now += 59.9
    minimums.remember({"slow"})  # the delay began with the first new offset
    slow = {TopicPartition("slow", 0): 6}
    assert minimums.required(slow) == {"slow": 10}
    clock.now += 0.1
    assert minimums.required(slow) == {"slow": 0}
    minimums.remember(set())
    assert minimums.required(slow) == {"slow": 10}


@pytest.mark.parametrize(
    ("minimum", "per_minute", "offsets", "wait_s"),
    [
        ((None, None), 60, 600, 600.0),  # what comes within the longest wait
        ((None, None), 6_000, 10_000, 100.0),
        ((None, None), 0, 0, 0.0),  # nothing else would come
        ((1_000, None), 0, 1_000, 600.0),
        ((None, 60_000), 60, 60, 60.0),
        ((None, 3_600_000), 60, 3_600, 3_600.0),
        ((1_000, None), 600, 1_000, 100.0),
        ((1_000, None), 6, 1_000, 600.0),
    ],
)
def test_a_rate_says_for_how_many_offsets_a_topic_waits_and_how_long(
    minimum: tuple[int | None, int | None], per_minute: int, offsets: int, wait_s: float
) -> None:
    clock, end = Clock(), 0
    minimums = MinimumsOfTopics([TopicMinimum("t", *minimum)], clock=clock)
    log = TopicPartition("t", 0)
    assert minimums.required({log: end}) == {"t": 0}, "the rate is not known yet"
    for _ in range(20):
        clock.now += 60
        end += per_minute
        required = minimums.required({log: end})
    assert required == {"t": offsets}
    minimums.remember({"t"})
    for waited_s, is_over in ((max(0.0, wait_s - 2), wait_s == 0), (wait_s, True)):
        clock.now += waited_s
        assert (minimums.required({log: end + int(per_minute * waited_s / 60)}) == {"t": 0}) is is_over
        clock.now -= waited_s
    assert minimums.required({log: 0}) == {"t": 0}, "made anew"
