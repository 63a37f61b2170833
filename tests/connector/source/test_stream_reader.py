"""The stream reader as Spark calls it, without a session: what a process knows, forgets, and finds again.

Each ``Process`` (conftest.py) is a new Python process to the reader: it shares nothing with the one before but the offsets'
JSON, which is what Spark's checkpoint keeps.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructType

from pykafka_wire.errors import DataLossError, Loss, OffsetsError, OptionError
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.planning import offset_lookups
from pykafka_wire.source.progress import group_commits
from pykafka_wire.source.stream_reader import _RUNNER, KafkaStreamReader
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.record_producer import RecordProducer

pytestmark = pytest.mark.broker


def test_nothing_is_asked_of_brokers_before_the_first_call(process: Any) -> None:
    reader = KafkaStreamReader(
        parse_source_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, "stream"),
        StructType().add("offset", LongType()),
    )
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    pickle.loads(pickle.dumps(reader))
    reader.stop()


@pytest.mark.parametrize(("argument", "code", "printed"), [(_RUNNER, 0, ""), ("", 1, "EOFError")])
def test_sparks_process_for_a_query_ends_without_a_traceback(argument: str, code: int, printed: str) -> None:
    """As pyspark's runner calls it: Spark closes the socket when the query has ended."""
    program = """
import importlib.machinery
import sys
__spec__ = importlib.machinery.ModuleSpec(sys.argv[1], None)  # as `python -m` sets it
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.stream_reader import _RUNNER, KafkaStreamReader
from pyspark.sql.types import LongType, StructType
options = parse_source_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, "stream")
reader = KafkaStreamReader(options, StructType().add("offset", LongType()))
try:
    raise EOFError
finally:
    reader.stop()
"""
    done = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.strip().endswith(printed) and bool(done.stderr) == bool(printed)


def test_the_initial_offset_stays_the_same_in_a_process(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    one = process(subscribe=name)
    first = one.initial()
    outside.fill(name, [5])
    assert one.initial() == first
    assert json.loads(first)["initial"] is True


def test_nothing_new_gives_the_start_back_byte_for_byte(process: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    one = process(subscribe=name, startingOffsets="earliest")
    start = one.latest(one.initial())
    assert one.latest(start) == start
    outside.fill(name, [1, 1])
    end = one.latest(start)
    assert end != start
    assert one.latest(end) == end
    # Another process gets the text from the checkpoint, maybe with other leader epochs in it.
    old = json.loads(end)
    old["epochs"] = {name: {"0": 0}}
    assert process(subscribe=name).latest(json.dumps(old)) == json.dumps(old)


def test_batch_0_is_replayed_over_the_same_range_by_another_process(process: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    outside.fill(name, [3, 3])
    one = process(subscribe=name)
    start = one.initial()
    outside.fill(name, [2, 0])
    end = one.latest(start)
    assert one.rows(start, end) == [(0, 3), (0, 4)]
    outside.fill(name, [10, 10])
    other = process(subscribe=name)
    # Spark asks the new process for the initial offset again, which has moved on.
    assert other.rows(other.initial(), end) == [(0, 3), (0, 4)]
    onward = other.latest(end)
    assert other.rows(end, onward) == [*((0, o) for o in range(5, 15)), *((1, o) for o in range(3, 13))]
    assert json.loads(onward)["query"] == json.loads(end)["query"]
    assert json.loads(onward)["group"] == json.loads(end)["group"]


@pytest.mark.parametrize("before", [1, 2])
def test_a_record_of_the_moment_between_two_look_ups_is_read(
    before: int, process: Any, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record comes before one of the two look-ups, of the end and of the timestamp, and is as late as the timestamp."""
    name = topic(1)
    outside.produce(name, [outside.Record(value=b"old", timestamp_ms=1_600_000_000_000)])
    look_up, n_calls = offset_lookups.list_offsets, 0

    def append_first(cluster: Cluster, asked: Any, **options: Any) -> Any:
        nonlocal n_calls
        n_calls += bool(asked)
        if asked and n_calls == before:
            outside.produce(name, [outside.Record(value=b"new", timestamp_ms=1_700_000_000_000)])
        return look_up(cluster, asked, **options)

    monkeypatch.setattr(offset_lookups, "list_offsets", append_first)
    starting = {"startingTimestamp": "1650000000000", "startingOffsetsByTimestampStrategy": "latest"}
    one = process(subscribe=name, **starting)
    start = one.initial()
    assert n_calls == 2
    assert one.rows(start, one.latest(start)) == [(0, 1)]


def test_a_micro_batch_soon_after_another_one_takes_two_requests(
    process: Any, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    outside.fill(name, [20, 20])
    one = process(subscribe=name, startingOffsets="earliest")
    sent: list[str] = []
    send = Cluster.send

    def note(self: Cluster, node_id: int, request: Any, **options: Any) -> Any:
        sent.append(request.name)
        return send(self, node_id, request, **options)

    monkeypatch.setattr(Cluster, "send", note)
    end = one.initial()
    for _ in range(3):
        sent.clear()
        start, end = end, one.latest(end, ReadMaxRows(4))
        one.reader.commit(json.loads(start))
        one.reader.partitions(json.loads(start), json.loads(end))
    assert sent == ["ListOffsets", "OffsetCommit"], "where the logs end, and the progress"


def test_an_empty_batch_0_is_replayed_too(process: Any, topic: Any, outside: Any) -> None:
    # Spark runs batch 0 even if nothing is new, and logs its end.
    name = topic(1)
    outside.fill(name, [3])
    one = process(subscribe=name)
    start = one.initial()
    end = one.latest(start)
    assert one.rows(start, end) == []
    outside.fill(name, [4])
    other = process(subscribe=name)
    assert other.rows(other.initial(), end) == []
    onward = other.latest(end)
    assert other.rows(end, onward) == [(0, o) for o in range(3, 7)]
    assert "starts" not in json.loads(onward)


def test_a_replay_divides_a_micro_batch_into_the_same_tasks_though_its_records_have_another_size(
    kafka: Any, process: Any, topic: Any
) -> None:
    name = topic(5)

    def fill(sizes: dict[int, int], n_records: int) -> None:
        with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
            for partition in range(5):
                for _ in range(n_records + (partition == 0)):
                    producer.send(name, b"x" * sizes.get(partition, 100), partition=partition)

    def tasks(reader: KafkaStreamReader, start: str, end: str) -> list[tuple[str, ...]]:
        planned = reader.partitions(json.loads(start), json.loads(end))
        return sorted(tuple(sorted(map(str, each.ranges))) for each in planned)

    fill({}, 20)
    one = process(subscribe=name, startingOffsets="earliest")
    start = one.latest(one.initial())  # what it has seen of the records is small
    fill({0: 20_000}, 500)
    end = one.latest(start)
    assert json.loads(end)["record_sizes"].keys() == {name}
    first = tasks(one.reader, start, end)
    # A process that has not seen them samples a large one.
    two = process(subscribe=name, startingOffsets="earliest")
    assert tasks(two.reader, start, end) == first
    # An end that an earlier version has logged still works.
    old = json.loads(end)
    del old["record_sizes"]
    assert len(tasks(process(subscribe=name).reader, start, json.dumps(old))) > len(first)


def test_a_limited_batch_0_is_replayed_too(process: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    outside.fill(name, [30, 10])
    one = process(subscribe=name, startingOffsets="earliest")
    start = one.initial()
    end = one.latest(start, ReadMaxRows(8))
    assert json.loads(end)["offsets"] == {name: {"0": 6, "1": 2}}
    expected = [*((0, o) for o in range(6)), (1, 0), (1, 1)]
    assert one.rows(start, end) == expected
    other = process(subscribe=name, startingOffsets="latest")
    assert other.rows(other.initial(), end) == expected


def test_a_new_query_starts_from_its_groups_offsets_and_a_restarted_one_from_its_checkpoint(
    process: Any, topic: Any, outside: Any
) -> None:
    name, group = topic(2), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [5, 5])

    def move(offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": outside.servers, "group.id": group, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(name, 0, offset)], asynchronous=False)
        consumer.close()

    move(3)
    options = {"subscribe": name, "startingOffsets": "group", "kafka.group.id": group, "commitOffsets": "false"}
    strict = process(**options)
    with pytest.raises(OffsetsError, match=f"has committed no offset for {name}-1"):
        strict.latest(strict.initial())
    one = process(**options, startingOffsetsByGroupStrategy="latest")
    start = one.initial()
    end = one.latest(start)
    assert one.rows(start, end) == [(0, 3), (0, 4)]
    move(0)
    outside.fill(name, [1, 1])
    another = process(**options)
    assert another.rows(end, another.latest(end)) == [(0, 5), (1, 5)]


def test_only_durable_offsets_are_committed(process: Any, topic: Any, outside: Any) -> None:
    name, group = topic(1), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [4])
    one = process(subscribe=name, startingOffsets="earliest", **{"kafka.group.id": group})
    start = one.initial()
    end = one.latest(start)
    one.rows(start, end)
    assert outside.committed(group) == {}  # batch 0 is not done, and its start is not progress
    assert one.latest(end) == end
    assert outside.committed(group) == {(name, 0): 4}


def test_a_slow_coordinator_does_not_hold_up_the_plan_of_a_micro_batch(
    process: Any, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, group, planned = topic(1), f"g-{uuid.uuid4().hex[:8]}", threading.Event()
    outside.fill(name, [4])
    one = process(subscribe=name, startingOffsets="earliest", **{"kafka.group.id": group})
    first = one.latest(one.initial(), ReadMaxRows(2))
    commit = group_commits.commit_offsets

    def commit_once_planned(*arguments: Any, **options: Any) -> None:
        assert planned.wait(4)
        commit(*arguments, **options)

    monkeypatch.setattr(group_commits, "commit_offsets", commit_once_planned)
    one.latest(first, ReadMaxRows(2))
    planned.set()
    one.reader.commit(json.loads(first))
    assert outside.committed(group) == {(name, 0): 2}


def test_an_initial_offset_never_rewinds_the_group(process: Any, topic: Any, outside: Any) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    name, group = topic(1), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [4])
    ask = [ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 3)])]
    outside.admin.alter_consumer_group_offsets(ask)[group].result(30)
    one = process(subscribe=name, startingOffsets="earliest", **{"kafka.group.id": group})
    one.latest(one.initial())
    assert outside.committed(group) == {(name, 0): 3}


def test_a_group_with_members_refuses_commits_and_the_query_continues(process: Any, topic: Any, outside: Any) -> None:
    from confluent_kafka import Consumer

    name, group = topic(1), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [4])
    settings = {"bootstrap.servers": outside.servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        for _ in range(60):
            if consumer.poll(1.0) is not None:
                break
        else:
            pytest.fail("the consumer did not join")
        one = process(subscribe=name, startingOffsets="earliest", **{"kafka.group.id": group})
        end = one.latest(one.initial())
        assert one.latest(end) == end
        report = one.reader.reportLatestOffset()
        assert (report["commitSuccesses"], report["commitFailures"]) == (0, 1)
    finally:
        consumer.close()
    assert outside.committed(group) == {}


def test_the_last_commit_of_an_available_now_run_is_tried_within_a_retry_pause(
    process: Any, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykafka_wire.source.progress.group_commits._FIRST_PAUSE_S", 3600.0)
    name, group = topic(1), f"g-{uuid.uuid4().hex[:8]}"
    outside.fill(name, [4])
    settings = {"bootstrap.servers": outside.servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        for _ in range(60):
            if consumer.poll(1.0) is not None:
                break
        else:
            pytest.fail("the consumer did not join")
        one = process(subscribe=name, startingOffsets="earliest", **{"kafka.group.id": group})
        one.reader.prepareForTriggerAvailableNow()
        first = one.latest(one.initial(), ReadMaxRows(3))
        last = one.latest(first, ReadMaxRows(3))  # the group has a member, which refuses the commit of `first`
        one.reader.commit(json.loads(first))  # as Spark does then
        assert one.reader.reportLatestOffset()["commitFailures"] == 1
    finally:
        consumer.close()
    assert outside.committed(group) == {}
    assert one.latest(last, ReadMaxRows(3)) == last
    assert outside.committed(group) == {(name, 0): 4}


def test_the_report_counts_how_far_behind_a_limited_query_is(process: Any, topic: Any, outside: Any) -> None:
    name = topic(2)
    outside.fill(name, [30, 10])
    one = process(subscribe=name, startingOffsets="earliest")
    assert one.reader.reportLatestOffset() is None
    start = one.initial()
    one.latest(start, ReadMaxRows(8))
    report = one.reader.reportLatestOffset()
    assert report["offsets"] == {name: {"0": 30, "1": 10}}
    behind = [report[f"{kind}OffsetsBehindLatest"] for kind in ("min", "max", "avg", "total")]
    assert behind == [8, 24, 16.0, 32]


def test_max_bytes_follows_the_size_of_the_records(kafka: Any, process: Any, topic: Any) -> None:
    name = topic(1)
    with RecordProducer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for n_batches, n_records, size in ((40, 50, 100), (50, 1, 20_000)):
            for _ in range(n_batches):
                for _ in range(n_records):
                    producer.send(name, b"x" * size)
                producer.flush()  # each one batch: what is seen of them must not depend on a producer's haste
    one = process(subscribe=name, startingOffsets="earliest", maxBytesPerTrigger="100000", maxOffsetsPerTrigger="1500")
    limit = one.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(1500)
    start, widths = one.initial(), []
    for _ in range(60):
        end = one.latest(start, limit)
        offsets = [json.loads(each)["offsets"][name]["0"] for each in (start, end)]
        if start == end:
            break
        widths.append((offsets[0], offsets[1] - offsets[0]))
        start = end
    assert offsets[1] == 2050, widths
    n_bytes = [
        106 * max(0, min(2000, first + n) - first) + 20_006 * max(0, first + n - max(2000, first))
        for first, n in widths
    ]
    assert all(each <= 200_000 for each in n_bytes), widths  # about 106 bytes each at first, then about 20,006
    assert len([each for each in n_bytes if each > 70_000]) >= 8, widths
    # Trigger.Once asks for everything: it goes before every limit.
    assert json.loads(process(subscribe=name, maxBytesPerTrigger="1").latest(one.initial()))["offsets"] == {
        name: {"0": 2050}
    }


def test_a_record_larger_than_max_bytes_is_read(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.produce(name, [outside.Record(value=b"x" * 50_000) for _ in range(3)])
    one = process(subscribe=name, startingOffsets="earliest", maxBytesPerTrigger="10")
    start = one.initial()
    assert json.loads(one.latest(start, one.reader.getDefaultReadLimit()))["offsets"] == {name: {"0": 1}}
    report = one.reader.reportLatestOffset()
    assert report["totalOffsetsBehindLatest"] == 2
    assert 100_000 <= report["estimatedTotalBytesBehindLatest"] < 101_000


def test_min_offsets_waits_but_not_for_the_first_batch(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [1])
    one = process(subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    start = one.initial()
    end = one.latest(start)
    assert json.loads(end)["offsets"] == {name: {"0": 1}}
    outside.fill(name, [4])
    assert one.latest(end) == end
    outside.fill(name, [1])
    assert json.loads(one.latest(end))["offsets"] == {name: {"0": 6}}


def test_a_topic_below_its_minimum_is_left_out_and_the_others_go(process: Any, topic: Any, outside: Any) -> None:
    few, many = topic(1), topic(2)
    outside.fill(few, [2])
    outside.fill(many, [2, 2])
    minimum = json.dumps({few: {"offsets": 3, "delay": "1h"}})
    one = process(subscribe=f"{few},{many}", startingOffsets="earliest", minOffsetsPerTopic=minimum)
    end = one.latest(one.initial())
    assert json.loads(end)["offsets"] == {few: {"0": 0}, many: {"0": 2, "1": 2}}
    assert one.latest(end) == end
    outside.fill(few, [1])
    assert json.loads(one.latest(end))["offsets"][few] == {"0": 3}


def test_topics_wait_by_their_own_rates(
    process: Any, topic: Any, outside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One gets 10,000 records in five minutes, and one 100 in ten."""
    busy, slow = topic(2), topic(1)
    names = {busy: "busy", slow: "slow"}
    minimum = json.dumps({".*": {"offsets": "auto", "delay": "auto"}})
    one = process(subscribe=f"{busy},{slow}", startingOffsets="earliest", minOffsetsPerTopic=minimum)
    end, clock = one.latest(one.initial()), time.monotonic()
    monkeypatch.setattr(one.reader._stream._minimums_of_topics, "_clock", lambda: clock)
    read: dict[str, list[int]] = {"busy": [], "slow": []}
    for minute in range(1, 31):
        clock += 60
        outside.fill(busy, [1000, 1000])
        outside.fill(slow, [10])
        before, end = json.loads(end)["offsets"], one.latest(end)
        for name, offsets in json.loads(end)["offsets"].items():
            if offsets != before[name]:
                read[names[name]].append(minute)
    assert (read["busy"], read["slow"]) == ([5, 10, 15, 20, 25, 30], [10, 20, 30])


def test_a_minimum_and_a_maximum_together(process: Any, topic: Any, outside: Any) -> None:
    name = topic(3)
    outside.fill(name, [21, 11, 1])
    one = process(subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger="15", maxTriggerDelay="1h")
    ends = [one.latest(one.initial(), ReadMaxRows(20))]
    assert json.loads(ends[0])["offsets"] == {name: {"0": 12, "1": 6, "2": 1}}  # the first batch never waits
    assert one.latest(ends[0], ReadMaxRows(20)) == ends[0]  # 14 are left
    outside.fill(name, [8, 10, 1])
    ends.append(one.latest(ends[0], ReadMaxRows(20)))
    assert json.loads(ends[1])["offsets"] == {name: {"0": 22, "1": 15, "2": 2}}
    assert one.latest(ends[1], ReadMaxRows(20)) == ends[1]  # 13 are left


def test_one_of_two_topics_deleted(process: Any, topic: Any, outside: Any) -> None:
    kept, gone = topic(1), f"gone-{uuid.uuid4().hex[:8]}"
    outside.create(gone, 1)
    outside.fill(kept, [1])
    outside.fill(gone, [2])
    options = {"subscribe": f"{kept},{gone}", "startingOffsets": "earliest"}
    one = process(**options)
    end = one.latest(one.initial())
    outside.delete(gone)
    outside.fill(kept, [3])
    with pytest.raises(DataLossError) as raised:
        process(**options).latest(end)
    assert raised.value.loss is Loss.PARTITIONS_DELETED
    assert [(tp.topic, start) for tp, start, _ in raised.value.lost] == [(gone, 2)]
    brave = process(**options, failOnDataLoss="false")
    onward = brave.latest(end)
    assert brave.rows(end, onward) == [(0, 1), (0, 2), (0, 3)]
    assert brave.latest(onward) == onward


def test_a_log_that_ends_before_the_checkpoint_is_data_loss(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [5])
    one = process(subscribe=name, startingOffsets="earliest")
    end = json.loads(one.latest(one.initial()))
    end["offsets"][name]["0"] = 9  # as after an unclean election that cost the last records
    with pytest.raises(DataLossError) as raised:
        process(subscribe=name).latest(json.dumps(end))
    assert raised.value.loss is Loss.OFFSETS_CHANGED
    brave = process(subscribe=name, failOnDataLoss="false")
    cut = brave.latest(json.dumps(end))
    assert json.loads(cut)["offsets"] == {name: {"0": 5}}
    assert brave.rows(json.dumps(end), cut) == []
    assert brave.latest(cut) == cut
    outside.fill(name, [6])  # past the offset that was lost
    assert brave.rows(cut, brave.latest(cut)) == [(0, o) for o in range(5, 11)]


def test_a_new_partition_whose_records_aged_out_is_not_behind(process: Any, topic: Any, outside: Any) -> None:
    name = topic(1)
    outside.fill(name, [2])
    one = process(subscribe=name, startingOffsets="earliest", failOnDataLoss="false")
    start = one.latest(one.initial())
    outside.grow(name, 2)
    outside.fill(name, [0, 5])
    outside.age_out(name, 1, 5)
    onward = process(subscribe=name, failOnDataLoss="false")
    assert onward.latest(start) == start
    report = onward.reader.reportLatestOffset()
    assert report["offsets"] == {name: {"0": 2, "1": 5}}
    assert (report["totalOffsetsBehindLatest"], report["maxOffsetsBehindLatest"]) == (0, 0)
    assert report["estimatedTotalBytesBehindLatest"] == 0


def test_batch_0_is_replayed_although_its_starts_no_longer_fit_the_topic(
    process: Any, topic: Any, outside: Any
) -> None:
    name = topic(1)
    outside.fill(name, [4])
    options = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 1}})}
    one = process(**options)
    end = one.latest(one.initial())
    outside.grow(name, 2)
    other = process(**options)
    assert other.rows(other.initial(), end) == [(0, 1), (0, 2), (0, 3)]
    assert other.latest(end) == end
    new = process(**options)
    with pytest.raises(OptionError, match="leaves out"):
        new.latest(new.initial())
