"""The stream reader as Spark 4.0 and 4.1 call it: latestOffset() gets no start, but a query that is not new begins with
partitions(end, end)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from pykafka_wire.errors import DataLossError, Loss, OptionError
from pykafka_wire.source.stream_reader import KafkaStreamReaderSpark40

pytestmark = pytest.mark.broker


def without_limits(process: Any, name: str, starting: str, *, seen: str | None = None, **options: str) -> Any:
    """A process of a query that is new, or that goes on from a checkpoint whose last logged offset is ``seen``."""
    one = process(KafkaStreamReaderSpark40, subscribe=name, startingOffsets=starting, **options)
    if seen is not None:
        assert one.rows(seen, seen) == []
    return one


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_before_42_batch_0_is_replayed_over_the_same_range(
    starting: str, process: Any, topic: Any, outside: Any
) -> None:
    name = topic(1)
    outside.fill(name, [3])
    one = without_limits(process, name, starting)
    end = one.latest_without_start()
    start = one.initial()
    first = one.rows(start, end)
    assert first == ([] if starting == "latest" else [(0, 0), (0, 1), (0, 2)])
    outside.fill(name, [4])
    other = without_limits(process, name, starting, seen=end)
    assert other.rows(other.initial(), end) == first
    onward = other.latest_without_start()
    assert other.rows(end, onward) == [(0, o) for o in range(3, 7)]


@pytest.mark.parametrize("starting", ["latest", "earliest", '{"NAME": {"0": 0}}'])
def test_before_42_a_restart_loses_and_doubles_nothing(starting: str, process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    starting = starting.replace("NAME", name)
    outside.fill(name, [3])
    one = without_limits(process, name, starting)
    end = one.latest_without_start()
    one.rows(one.initial(), end)
    outside.fill(name, [4])
    outside.grow(name, 2)
    outside.fill(name, [0, 2])
    other = without_limits(process, name, starting, seen=end)
    onward = other.latest_without_start()
    other.reader.commit(json.loads(end))
    assert other.rows(end, onward) == [*((0, o) for o in range(3, 7)), (1, 0), (1, 1)]
    outside.fill(name, [1, 0])
    later = other.latest_without_start()
    assert other.rows(onward, later) == [(0, 7)]
    assert other.latest_without_start() == later
    assert outside.committed(json.loads(end)["group"]) == {(name, 0): 8, (name, 1): 2}


def test_before_42_an_end_that_was_asked_for_before_the_checkpoint_was_shown_is_refused(
    process: Any, topic: Any, outside: Any
) -> None:
    """As with spark.sql.streaming.triggerAvailableNowWrapper.enabled."""
    name = topic(1)
    outside.fill(name, [3])
    one = without_limits(process, name, "latest")
    end = one.latest_without_start()
    one.rows(one.initial(), end)
    outside.fill(name, [4])
    other = without_limits(process, name, "latest")
    other.latest_without_start()
    with pytest.raises(OptionError, match="triggerAvailableNowWrapper"):
        other.rows(end, end)


def test_before_42_short_runs_keep_their_query_and_its_group(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [1])
    one = without_limits(process, name, "earliest")
    ends = [one.latest_without_start()]
    for _ in range(2):
        assert without_limits(process, name, "earliest", seen=ends[-1]).latest_without_start() == ends[-1]
        outside.fill(name, [1])
        other = without_limits(process, name, "earliest", seen=ends[-1])
        ends.append(other.latest_without_start())
        assert other.rows(ends[-2], ends[-1]) == [(0, len(ends) - 1)]
    assert len({(json.loads(end)["query"], json.loads(end)["group"]) for end in ends}) == 1


def test_before_42_a_finished_batch_0_that_aged_out_since_keeps_no_query_from_going_on(
    process: Any, topic: Any, outside: Any
) -> None:
    name = topic(1)
    outside.fill(name, [3])
    end = without_limits(process, name, "earliest").latest_without_start()
    outside.age_out(name, 0, 3)
    assert without_limits(process, name, "earliest", seen=end).latest_without_start() == end


def test_before_42_a_recreated_topic_is_detected(process: Any, outside: Any) -> None:
    name = f"again-{uuid.uuid4().hex[:8]}"
    outside.create(name, 1)
    outside.fill(name, [3])
    end = without_limits(process, name, "earliest").latest_without_start()
    outside.delete(name)
    outside.create(name, 1)
    outside.fill(name, [5])
    with pytest.raises(DataLossError) as raised:
        without_limits(process, name, "earliest", seen=end).latest_without_start()
    assert raised.value.loss is Loss.TOPIC_RECREATED
    brave = without_limits(process, name, "earliest", seen=end, failOnDataLoss="false")
    assert brave.rows(end, brave.latest_without_start()) == [(0, o) for o in range(5)]
    outside.delete(name)


def test_before_42_a_log_that_was_cut_is_detected(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [5])
    end = json.loads(without_limits(process, name, "earliest").latest_without_start())
    end["offsets"][name]["0"] = 9
    with pytest.raises(DataLossError) as raised:
        without_limits(process, name, "earliest", seen=json.dumps(end)).latest_without_start()
    assert raised.value.loss is Loss.OFFSETS_CHANGED
