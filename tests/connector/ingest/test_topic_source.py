"""A read without a plan returns the same records, and reports the same losses, as a planned read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.records.topic_source import TopicSource, open_source
from pykafka_wire.ingest.settings.model import ReadSettings, Settings, Table
from pykafka_wire.source.batch_reader import KafkaBatchReader
from pykafka_wire.wire.topic_partitions import topic_id_text

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

N_PARTITIONS, N_RECORDS = 3, 40
Offsets = st.integers(0, N_RECORDS)


@pytest.fixture(scope="module")
def topic(outside: Any) -> str:
    name = f"few-{uuid.uuid4().hex[:8]}"
    outside.create(name, N_PARTITIONS)
    outside.fill(name, [N_RECORDS] * N_PARTITIONS)
    return name


def source_of(kafka: Any, topic: str, fail_on_data_loss: str = "true") -> TopicSource:
    asked = Settings(checkpoint="/c", kafka={"bootstrap.servers": kafka.bootstrap_servers}, topics=topic, into="/lake")
    reading: ReadSettings = Table(topic=topic, format="binary", options={"failOnDataLoss": fail_on_data_loss}).reading
    return TopicSource(asked, reading)


def id_of(outside: Any, topic: str) -> str:
    described = outside.admin.describe_topics(_topics(topic))[topic].result(30)
    return topic_id_text(
        uuid.UUID(
            int=(described.topic_id.get_most_significant_bits() % 2**64 << 64)
            + described.topic_id.get_least_significant_bits() % 2**64
        )
    )


def _topics(topic: str) -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection([topic])


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, int, bytes | None]]:
    return sorted((row["partition"], row["offset"], row["value"]) for batch in batches for row in batch.to_pylist())


def read(source: TopicSource, topic_range: TopicRange, *, planned: bool = False) -> list[tuple[int, int, bytes | None]]:
    options = {**source.options(topic_range), "columns": "partition,offset,value"}
    if not planned:
        return source.read_here(topic_range, options, rows)
    _, reader = open_source(options)
    return rows(batch for partition in reader.partitions() for batch in reader.read(partition))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bounds=st.lists(st.tuples(Offsets, Offsets).map(sorted), min_size=N_PARTITIONS, max_size=N_PARTITIONS))
def test_a_read_without_a_plan_has_the_records_of_a_planned_one(
    kafka: Any, outside: Any, topic: str, bounds: list[list[int]]
) -> None:
    start, end = ({p: bound[i] for p, bound in enumerate(bounds)} for i in (0, 1))
    topic_range = TopicRange(topic=topic, topic_id=id_of(outside, topic), start=start, end=end)
    source = source_of(kafka, topic)
    assert read(source, topic_range) == read(source, topic_range, planned=True)
    assert len(read(source, topic_range)) == topic_range.n_offsets


@pytest.mark.parametrize("loss", ["aged out", "deleted", "created again"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_lost_records_are_reported_as_by_a_planned_read(kafka: Any, outside: Any, loss: str, fails: str) -> None:
    name = f"lost-{uuid.uuid4().hex[:8]}"
    outside.create(name)
    outside.fill(name, [10])
    topic_range = TopicRange(topic=name, topic_id=id_of(outside, name), start={0: 2}, end={0: 8})
    source = source_of(kafka, name, fails)
    assert len(read(source, topic_range)) == 6
    if loss == "aged out":
        outside.age_out(name, 0, 5)
    else:
        outside.delete(name)
        if loss == "created again":
            outside.create(name)
            outside.fill(name, [10])
    found = []
    for planned in (False, True):
        try:
            found.append(repr(read(source, topic_range, planned=planned)))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    assert found[0] == found[1]
    assert ("Error" in found[0]) is (fails == "true" or loss == "deleted"), found[0]


def test_a_read_without_a_plan_asks_brokers_for_records_alone(
    kafka: Any, outside: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaBatchReader, "partitions", lambda _: pytest.fail("the read was planned"))
    start, end = dict.fromkeys(range(N_PARTITIONS), 0), dict.fromkeys(range(N_PARTITIONS), N_RECORDS)
    topic_range = TopicRange(topic=topic, topic_id=id_of(outside, topic), start=start, end=end)
    assert len(read(source_of(kafka, topic), topic_range)) == topic_range.n_offsets


@pytest.mark.parametrize("asked", [{}, {"maxRecordsPerPartition": "7"}, {"minPartitions": "5"}])
def test_a_read_without_a_plan_has_the_input_partitions_of_a_planned_one(
    kafka: Any, outside: Any, topic: str, asked: dict[str, str]
) -> None:
    start, end = dict.fromkeys(range(N_PARTITIONS), 3), dict.fromkeys(range(N_PARTITIONS), N_RECORDS)
    topic_range = TopicRange(topic=topic, topic_id=id_of(outside, topic), start=start, end=end)
    source = source_of(kafka, topic)
    options = {**source.options(topic_range), "columns": "partition,offset,value", **asked}
    unplanned = source.opened(options).reader.partitions_of(topic_range.of_partitions)
    planned = open_source(options).reader.partitions()
    assert sorted(str(each) for each in unplanned) == sorted(str(each) for each in planned)
    assert (len(unplanned) > 1) is bool(asked)
