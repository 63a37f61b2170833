"""Brokers divide a range of a topic in time as its records say."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykafka_wire.ingest.records.ranges import TopicRange, middle_in_time
from pykafka_wire.ingest.records.topic_log import middle_of_log
from tests.connector.conftest import Outside, Record

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

FIRST_MS = 1_700_000_000_000


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), min_size=1, max_size=60),
    start=st.integers(0, 3),
)
def test_a_range_is_divided_at_a_moment(outside: Outside, records: list[tuple[int, int]], start: int) -> None:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    outside.create(topic, 3)
    outside.produce(topic, [Record(value=b"1", partition=p, timestamp_ms=FIRST_MS + at) for p, at in records])
    times = {p: [FIRST_MS + at for of, at in records if of == p] for p in range(3)}
    topic_range = TopicRange(
        topic=topic, topic_id="", start={p: min(start, len(each)) for p, each in times.items()},
        end={p: len(each) for p, each in times.items()},
    )  # fmt: skip

    def offsets_at(moment: int) -> dict[int, int]:
        later = {p: [offset for offset, at in enumerate(each) if at >= moment] for p, each in times.items()}
        return {p: offsets[0] for p, offsets in later.items() if offsets}

    middle = middle_of_log({"kafka.bootstrap.servers": outside.servers}, topic_range)
    assert middle == middle_in_time(topic_range, offsets_at)
    if middle is not None:
        assert all(half.n_offsets for half in topic_range.halves(middle))
    outside.delete(topic)
