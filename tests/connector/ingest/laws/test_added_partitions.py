"""A position is never derived from what a log has forgotten: where a table begins the partitions that its topic gets.

A table is stopped for some micro-batches, in which its topic gets partitions and records. Spark's log keeps the newest
micro-batches only. The oracle: no record of an added partition is skipped, so the table begins each at offset 0.
"""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykafka_wire.checkpoints.files import StoredFiles
from pykafka_wire.checkpoints.positions import beginning_of
from pykafka_wire.checkpoints.query_log import QueryLog
from pykafka_wire.checkpoints.query_offsets import QueryOffsets, ranges_read
from pykafka_wire.ingest.landing.opening import added_partitions
from pykafka_wire.ingest.landing.table_writer import commits_of
from pykafka_wire.ingest.records.ranges import TopicRange
from pykafka_wire.ingest.tables.position import Landed
from pykafka_wire.source.planning.micro_batch import (
    Limits,
    LogSnapshot,
    compare_logs,
    known_offsets,
    plan_micro_batch,
)
from pykafka_wire.wire.cluster.admin import ListedOffset
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.ingest.laws.generated import examples
from tests.connector.written_checkpoint import ours, write_checkpoint

pytestmark = pytest.mark.unit

#: A micro-batch: how many partitions the topic gets, and how many records each partition gets, the first ones first.
MicroBatches = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1, max_size=4)), min_size=1, max_size=8
)


@examples(100)
@given(first=st.integers(1, 2), later=MicroBatches, n_kept=st.integers(1, 9))
def test_a_table_begins_each_added_partition_at_its_first_record(
    first: int, later: list[tuple[int, list[int]]], n_kept: int
) -> None:
    ends, logged = dict.fromkeys(range(first), 1), dict[int, list[Any]]()
    position = dict(ends)  # of the table, which stops after the first micro-batch
    logged[0] = [ours({"t": {str(p): end for p, end in ends.items()}}, starts={"t": dict.fromkeys(map(str, ends), 0)})]
    for number, (n_added, counts) in enumerate(later, start=1):
        added = dict.fromkeys(range(len(ends), len(ends) + n_added), 0)
        before = dict(ends)
        ends |= added
        ends |= {p: end + counts[p % len(counts)] for p, end in ends.items()}
        starts = {"t": {str(p): 0 for p in added}} if added else {}
        logged[number] = [ours({"t": {str(p): end for p, end in ends.items()}}, starts=starts)]
    newest = len(later)
    topic_range = TopicRange(topic="t", topic_id="", start={p: before.get(p, 0) for p in ends}, end=ends)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), logged, committed=newest)
        for number in range(newest - n_kept + 1):
            (Path(folder) / "offsets" / str(number)).unlink()
        log = QueryLog(StoredFiles(folder, "checkpoint"))
        found = added_partitions(topic_range, beginning_of(log, newest, "t"))
    assert {p: offset for p, offset in found.items() if p not in position} == dict.fromkeys(ends.keys() - position, 0)


@examples(100)
@given(subscribed=st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=6))
def test_a_table_begins_where_the_query_began_its_topic_and_not_where_the_query_resumed_it(
    subscribed: list[set[str]],
) -> None:
    """Each micro-batch has other topics, and each topic it has gets ten records."""
    topic_ids = {topic: uuid.uuid4() for topic in "abc"}
    checkpoint = QueryOffsets(offsets={}, topic_ids={}, query="q", group="g", initial=True)
    logged = {}
    for number, topics in enumerate(subscribed):
        latest = {TopicPartition(topic, 0): ListedOffset(10 * (number + 1), -1, 0) for topic in topics}
        snapshot = LogSnapshot(
            latest=latest,
            topic_ids={topic: topic_ids[topic] for topic in topics},
            earliest=dict.fromkeys(latest, 0),
        )
        logs = compare_logs(known_offsets(checkpoint, snapshot.topic_ids), snapshot)
        checkpoint = plan_micro_batch(checkpoint, logs, Limits()).end
        logged[number] = [checkpoint.to_json()]
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), logged, committed=len(logged) - 1)
        log = QueryLog(StoredFiles(folder, "checkpoint"))
        for number, topics in enumerate(subscribed):
            for topic in topics:
                assert beginning_of(log, number, topic).known == {0: 0}


#: A micro-batch: whether the query reads the topic, and how many records each of its partitions gets before.
LeftOut = st.lists(
    st.tuples(st.booleans(), st.lists(st.sampled_from((0, 0, 1)), min_size=2, max_size=2)), min_size=3, max_size=6
)


@examples(100)
@given(micro_batches=LeftOut, max_rows=st.integers(1, 5))
def test_a_table_has_each_record_of_a_topic_that_the_query_leaves_out_for_a_while(
    micro_batches: list[tuple[bool, list[int]]], max_rows: int
) -> None:
    """A partition without new records is not in the range with which the query resumes its topic."""
    topic_ids = {"t": uuid.uuid4(), "other": uuid.uuid4()}
    checkpoint = QueryOffsets(offsets={}, topic_ids={}, query="q", group="g", initial=True)
    ends, others, position = dict.fromkeys(range(2), 1), 0, dict[int, int]()
    held: Landed | None = None
    for number, (is_read, counts) in enumerate(micro_batches):
        ends, others = {p: end + counts[p] for p, end in ends.items()}, others + 1
        logs_ends = {("other", 0): others} | ({("t", p): end for p, end in ends.items()} if is_read else {})
        latest = {TopicPartition(*place): ListedOffset(end, -1, 0) for place, end in logs_ends.items()}
        read_ids = {name: topic_ids[name] for name, _ in logs_ends}
        snapshot = LogSnapshot(latest=latest, topic_ids=read_ids, earliest=dict.fromkeys(latest, 0))
        end = plan_micro_batch(checkpoint, compare_logs(known_offsets(checkpoint, read_ids), snapshot), Limits()).end
        assert end is not None, "the other topic has a record"
        ranges = [each for each in ranges_read(checkpoint, end) if each.topic == "t"]
        checkpoint = end
        topic_range = TopicRange(
            topic="t", topic_id="", start={r.partition: r.start_offset for r in ranges},
            end={r.partition: r.end_offset for r in ranges},
        )  # fmt: skip
        position = {**topic_range.start, **position}
        for commit in commits_of(topic_range, position, max_rows):
            landed = Landed(query="q", micro_batch=number, topic="t", topic_id="", start=commit.start, end=commit.end)
            assert held is None or landed.follows(held)
            held, position = landed, {**position, **landed.end}
        if is_read:
            assert {p: position.get(p, 0) for p in ends} == ends
            assert held is None or {p: held.end.get(p, 0) for p in ends} == ends
