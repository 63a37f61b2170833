"""Every way in which records are lost before they are read, on real brokers: what is said, and how a query goes on.

Most tests end a process of the query, damage the log, and start another one (``process`` in conftest.py); in some the same
process goes on, whose metadata are out of date then.
"""

from __future__ import annotations

import itertools
import json
import pickle
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from pykafka_wire.errors import DataLossError, Loss
from pykafka_wire.options.source import parse_source_options
from pykafka_wire.source.batch_reader import KafkaBatchReader
from pykafka_wire.source.planning import subscribed_logs
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import UnknownTopicError
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.connector.source.conftest import SCHEMA
from tests.connector.written_checkpoint import ours, write_checkpoint

pytestmark = pytest.mark.broker

BRAVE = {"failOnDataLoss": "false"}


@pytest.fixture
def old_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata that a query has once had are not asked for again by themselves: what happens in the second for which they are
    kept happens surely."""
    monkeypatch.setattr(subscribed_logs, "_METADATA_AGE_MS", 600_000)


@pytest.fixture
def two_topics(outside: Any) -> Iterator[tuple[str, str, str]]:
    """A prefix and the two topics under it; the second one is the test's to delete."""
    prefix = f"under-{uuid.uuid4().hex[:8]}"
    names = f"{prefix}-stays", f"{prefix}-goes"
    for name in names:
        outside.create(name, 1)
        outside.fill(name, [2])
    yield prefix, *names
    outside.delete(names[0])


def read_all(process: Any, **options: str) -> str:
    """The offset after one batch over all that is there."""
    one = process(startingOffsets="earliest", **options)
    start = one.initial()
    end = one.latest(start)
    one.rows(start, end)
    return str(end)


def loss_of(process: Any, start: str, **options: str) -> tuple[Loss, list[tuple[int, int, int]]]:
    """The loss that a new process fails with, ``(partition, first lost offset, end)`` of each range."""
    return loss_of_rows(process(**options), start)


def loss_of_rows(one: Any, start: str, end: str | None = None) -> tuple[Loss, list[tuple[int, int, int]]]:
    """The same of a process that reads a micro-batch, the next one unless its end is given."""
    with pytest.raises(DataLossError) as raised:
        one.rows(start, one.latest(start) if end is None else end)
    return raised.value.loss, [(tp.partition, first, end) for tp, first, end in raised.value.lost]


def ledger(folder: Path) -> list[tuple[str, int, int | None, int | None]]:
    rows = [row for file in folder.iterdir() for row in pyarrow.parquet.read_table(file).to_pylist()]
    return sorted((row["cause"], row["partition"], row["start_offset"], row["end_offset"]) for row in rows)


def test_retention_that_passes_the_reader(process: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    name = topic(2)
    outside.fill(name, [2, 2])
    start = read_all(process, subscribe=name)
    outside.fill(name, [10, 10])
    outside.age_out(name, 0, 6)
    assert loss_of(process, start, subscribe=name) == (Loss.START_OFFSET_OUT_OF_RANGE, [(0, 2, 6)])
    brave = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    end = brave.latest(start)
    assert brave.rows(start, end) == [*((0, o) for o in range(6, 12)), *((1, o) for o in range(2, 12))]
    report = brave.reader.reportLatestOffset()
    assert (report["lostRanges"], report["lostOffsets"]) == (1, 4)
    assert ledger(tmp_path) == [("START_OFFSET_OUT_OF_RANGE", 0, 2, 6)]
    # Replayed by another process when more is gone, to the end of the batch and beyond.
    outside.age_out(name, 0, 12)
    other = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    assert other.rows(start, end) == [(1, o) for o in range(2, 12)]
    assert ledger(tmp_path) == [("START_OFFSET_OUT_OF_RANGE", 0, 2, 12)]


def test_retention_that_passes_a_task(process: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    name = topic(1)
    outside.fill(name, [2])
    start = read_all(process, subscribe=name)
    outside.fill(name, [10])
    brave = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    (planned,) = brave.reader.partitions(json.loads(start), json.loads(brave.latest(start)))
    outside.age_out(name, 0, 6)
    for _ in range(2):  # Spark runs a task again as it likes
        task = pickle.loads(pickle.dumps(brave.reader))
        rows = [row for batch in task.read(pickle.loads(pickle.dumps(planned))) for row in batch.to_pylist()]
        assert [row["offset"] for row in rows] == list(range(6, 12))
    assert ledger(tmp_path) == [("START_OFFSET_OUT_OF_RANGE", 0, 2, 6)]
    task = pickle.loads(pickle.dumps(process(subscribe=name).reader))
    with pytest.raises(DataLossError) as raised:
        list(task.read(planned))
    assert (raised.value.loss, raised.value.lost) == (
        Loss.START_OFFSET_OUT_OF_RANGE,
        [(TopicPartition(name, 0), 2, 6)],
    )


@pytest.mark.long
def test_a_replayed_batch_that_ends_beyond_the_log(process: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    name = topic(1)
    outside.fill(name, [5])
    one = process(subscribe=name, startingOffsets="earliest")
    start = one.initial()
    logged = json.loads(one.latest(start))
    logged["offsets"][name]["0"] = 9  # as after an unclean election that cost the last records
    with pytest.raises(DataLossError) as raised:
        process(subscribe=name).rows(start, json.dumps(logged))
    assert (raised.value.loss, raised.value.lost) == (Loss.RANGE_UNREADABLE, [(TopicPartition(name, 0), 5, 9)])
    brave = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    assert brave.rows(start, json.dumps(logged)) == [(0, o) for o in range(5)]
    assert ledger(tmp_path) == [("RANGE_UNREADABLE", 0, 5, 9)]


def test_a_recreated_topic_is_distinguished_from_one_that_aged_out(
    process: Any, topic: Any, outside: Any, tmp_path: Path
) -> None:
    name = topic(1)
    outside.fill(name, [5])
    start = read_all(process, subscribe=name)
    outside.delete(name)
    outside.create(name, 1)
    outside.fill(name, [7])
    assert loss_of(process, start, subscribe=name) == (Loss.TOPIC_RECREATED, [(0, 5, -1)])
    brave = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    assert brave.rows(start, brave.latest(start)) == [(0, o) for o in range(7)]
    (row,) = pyarrow.parquet.read_table(next(tmp_path.iterdir())).to_pylist()
    assert row["topic_id"] == json.loads(start)["topic_ids"][name]
    assert (row["query"], row["cause"]) == (json.loads(start)["query"], "TOPIC_RECREATED")


def test_an_added_partition_that_does_not_begin_at_zero(process: Any, topic: Any, outside: Any, tmp_path: Path) -> None:
    name = topic(1)
    outside.fill(name, [2])
    start = read_all(process, subscribe=name)
    outside.grow(name, 3)
    outside.fill(name, [0, 5, 5])
    outside.age_out(name, 1, 3)
    lost = (Loss.ADDED_PARTITION_DOES_NOT_START_FROM_ZERO, [(1, 0, 3)])
    assert loss_of(process, start, subscribe=name) == lost
    brave = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    assert brave.rows(start, brave.latest(start)) == [(1, 3), (1, 4), *((2, o) for o in range(5))]
    assert ledger(tmp_path) == [("ADDED_PARTITION_DOES_NOT_START_FROM_ZERO", 1, 0, 3)]


def test_a_deleted_topic_is_data_loss_under_available_now(process: Any, outside: Any, tmp_path: Path) -> None:
    name = f"gone-{uuid.uuid4().hex[:8]}"
    outside.create(name, 1)
    outside.fill(name, [3])
    start = read_all(process, subscribe=name)
    outside.delete(name)
    strict, brave = process(subscribe=name), process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    strict.reader.prepareForTriggerAvailableNow()
    brave.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError) as raised:
        strict.latest(start)
    assert (raised.value.loss, raised.value.lost) == (Loss.PARTITIONS_DELETED, [(TopicPartition(name, 0), 3, -1)])
    brave.latest(start)
    assert ledger(tmp_path) == [("PARTITIONS_DELETED", 0, 3, None)]


def test_a_topic_deleted_under_a_running_query_that_continues(
    process: Any, two_topics: tuple[str, str, str], outside: Any, old_metadata: None, tmp_path: Path
) -> None:
    _, stays, goes = two_topics
    subscribed = f"{stays},{goes}"
    brave = process(subscribe=subscribed, startingOffsets="earliest", dataLossLedger=str(tmp_path), **BRAVE)
    end = brave.latest(brave.initial())
    outside.delete(goes)
    outside.fill(stays, [3])
    onward = brave.latest(end)
    assert json.loads(onward)["offsets"] == {stays: {"0": 5}}
    assert brave.rows(end, onward) == [(0, 2), (0, 3), (0, 4)]
    assert ledger(tmp_path) == [("PARTITIONS_DELETED", 0, 2, None)]


def test_a_deleted_topic_does_not_hold_up_the_commits(
    process: Any, two_topics: tuple[str, str, str], outside: Any
) -> None:
    prefix, stays, goes = two_topics
    options = {"subscribePattern": f"^{prefix}", "kafka.group.id": f"g-{prefix}", **BRAVE}
    running = process(startingOffsets="earliest", **options)
    first = running.latest(running.initial())
    running.latest(first)
    outside.delete(goes)
    # The first one asks the leader of the deleted topic by metadata that are old; the other starts with fresh ones.
    for one, most_s in [(running, 12), (process(**options), 3)]:
        outside.fill(stays, [2])
        started = time.monotonic()
        second = one.latest(first)
        assert time.monotonic() - started < most_s, "the commit, too, has a deadline of 5 s"
        one.reader.commit(json.loads(second))
        report = one.reader.reportLatestOffset()
        assert report["commitFailures"] == 0
        assert outside.committed(options["kafka.group.id"])[stays, 0] == json.loads(second)["offsets"][stays]["0"]


@pytest.mark.long
def test_a_topic_deleted_under_a_running_query_that_must_not_lose_records(
    process: Any, two_topics: tuple[str, str, str], outside: Any, old_metadata: None
) -> None:
    prefix, _, goes = two_topics
    strict = process(subscribePattern=f"^{prefix}", startingOffsets="earliest")
    end = strict.latest(strict.initial())
    outside.delete(goes)
    with pytest.raises(DataLossError) as raised:
        strict.latest(end)
    assert (raised.value.loss, raised.value.lost) == (Loss.PARTITIONS_DELETED, [(TopicPartition(goes, 0), 2, -1)])


@pytest.mark.parametrize("n_records", [1, 5])
def test_a_topic_made_again_under_a_running_query(
    n_records: int, process: Any, two_topics: tuple[str, str, str], outside: Any, old_metadata: None, tmp_path: Path
) -> None:
    _, _, name = two_topics
    options = {"subscribe": name, "startingOffsets": "earliest"}
    strict, brave = process(**options), process(**options, dataLossLedger=str(tmp_path), **BRAVE)
    start = strict.latest(strict.initial())
    brave.latest(start)
    outside.delete(name)
    outside.create(name, 1)
    outside.fill(name, [n_records])
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        strict.rows(start, strict.latest(start))
    seen, end = [], start
    while (
        onward := brave.latest(end)
    ) != end:  # the new topic's records, first of all or after what was planned of the old
        seen += brave.rows(end, onward)
        end = onward
    assert seen == [(0, offset) for offset in range(n_records)]
    assert {cause for cause, *_ in ledger(tmp_path)} == {"TOPIC_RECREATED"}
    outside.delete(name)


def test_a_topic_made_again_in_an_available_now_run_with_as_many_records_as_were_read(
    process: Any, two_topics: tuple[str, str, str], outside: Any, old_metadata: None
) -> None:
    _, _, name = two_topics
    one = process(subscribe=name, startingOffsets="earliest")
    start = one.initial()
    one.reader.prepareForTriggerAvailableNow()
    first = one.latest(start, ReadMaxRows(1))
    outside.delete(name)
    outside.create(name, 1)
    outside.fill(name, [1])
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        one.latest(first, ReadMaxRows(1))
    outside.delete(name)


@pytest.mark.long
def test_a_new_topic_that_is_gone_before_it_was_looked_at(
    process: Any, two_topics: tuple[str, str, str], outside: Any, old_metadata: None, tmp_path: Path
) -> None:
    prefix, stays, _ = two_topics
    brave = process(subscribePattern=f"^{prefix}", startingOffsets="earliest", dataLossLedger=str(tmp_path), **BRAVE)
    start = brave.latest(brave.initial())
    outside.create(f"{prefix}-new", 1)
    shared_cluster(brave.reader._options.client).metadata.topics(None)
    outside.delete(f"{prefix}-new")
    outside.fill(stays, [1])
    assert brave.rows(start, brave.latest(start)) == [(0, 2)]
    assert ledger(tmp_path) == [("INITIAL_OFFSET_NOT_FOUND", 0, 0, None)]


def test_a_query_that_becomes_read_committed_has_lost_nothing(
    process: Any, topic: Any, outside: Any, until: Any, monkeypatch: Any, caplog: Any
) -> None:
    from confluent_kafka import Producer

    name = topic(1)
    outside.fill(name, [2])
    producer = Producer({"bootstrap.servers": outside.servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in (b"a", b"b", b"c"):
        producer.produce(name, value, partition=0)
    producer.flush(30)
    start = read_all(process, subscribe=name)
    assert json.loads(start)["offsets"] == {name: {"0": 5}}
    committed = {"subscribe": name, "kafka.isolation.level": "read_committed"}
    one = process(**committed)
    monkeypatch.setattr("pykafka_wire.source.progress.query_progress._HANGING_S", 0.0)
    for _ in range(2):
        assert "held up" not in caplog.text
        assert one.latest(start) == start  # the last stable offset is 2: an open transaction, not a lost tail
    assert re.search(r"held up the query for \d s: transactional id", caplog.text)
    assert f"{name}-0 from offset 2 on" in caplog.text
    producer.commit_transaction(30)
    outside.fill(name, [2])
    until(lambda: json.loads(one.latest(start))["offsets"] == {name: {"0": 8}}, what="the end of the transaction")
    expected = [(0, r.offset) for r in outside.consume(name) if r.offset >= 5]  # its marker is written when it is
    assert len(expected) == 2
    assert one.rows(start, one.latest(start)) == expected


def test_a_topic_that_is_deleted_between_two_requests_of_one_look(
    process: Any,
    two_topics: tuple[str, str, str],
    outside: Any,
    monkeypatch: Any,
    tmp_path: Path,
) -> None:
    """Of a query that read an open transaction before it became read_committed, ends are asked for twice."""
    from confluent_kafka import Producer

    _, stays, goes = two_topics
    producer = Producer({"bootstrap.servers": outside.servers, "transactional.id": uuid.uuid4().hex, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(goes, b"open", partition=0)
    assert producer.flush(30) == 0
    start = read_all(process, subscribe=f"{stays},{goes}")
    committed = {"subscribe": f"{stays},{goes}", "kafka.isolation.level": "read_committed"}
    brave = process(**committed, dataLossLedger=str(tmp_path), **BRAVE)
    outside.fill(stays, [1])
    asked = 0

    def latest_offsets(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 2:
            outside.delete(goes)
            deadline = time.monotonic() + 60
            while True:  # the leader hears of it last, and `real` raises then
                real(*arguments)
                assert time.monotonic() < deadline, "the leader still knows the topic"
                time.sleep(0.02)
        return real(*arguments)

    real = subscribed_logs.latest_offsets
    monkeypatch.setattr(subscribed_logs, "latest_offsets", latest_offsets)
    assert json.loads(brave.latest(start))["offsets"] == {stays: {"0": 3}}
    assert asked > 2
    assert ledger(tmp_path) == [("PARTITIONS_DELETED", 0, 3, None)]


def test_a_topic_that_is_known_at_the_second_look_is_no_loss(
    process: Any, two_topics: tuple[str, str, str], monkeypatch: Any, tmp_path: Path
) -> None:
    """As where the leader of a new topic-partition hears of it later than of the time that it is given for that."""
    _, stays, late = two_topics
    start = read_all(process, subscribe=stays)
    brave = process(subscribe=f"{stays},{late}", dataLossLedger=str(tmp_path), **BRAVE)
    responses = iter([UnknownTopicError(3, topic=late)])

    def latest_offsets(*arguments: Any) -> Any:
        for error in responses:
            raise error
        return real(*arguments)

    real = subscribed_logs.latest_offsets
    monkeypatch.setattr(subscribed_logs, "latest_offsets", latest_offsets)
    assert json.loads(brave.latest(start))["offsets"] == {stays: {"0": 2}, late: {"0": 2}}
    assert ledger(tmp_path) == []


@pytest.mark.timeout(300)  # two starts of a broker
def test_an_offset_with_a_leader_epoch_is_compared_with_the_log_wherever_a_read_begins_or_ends(
    kafka_cluster: Any, process_of: Any, outside_of: Any, until: Any, tmp_path: Path
) -> None:
    """A group's offsets have epochs, as checkpoints do. Here they say what an unclean election leaves: that offsets which are there
    again were read in an epoch that ended before them."""
    cluster, name = kafka_cluster(), "regrown"
    servers, outside = cluster.bootstrap_servers, outside_of(cluster.bootstrap_servers)
    outside.create(name, 1)

    def leader_epoch() -> int:
        with Cluster(ClientSettings.from_options({"bootstrap.servers": servers})) as fresh:
            return fresh.metadata.leader(TopicPartition(name, 0))[1]

    outside.fill(name, [5])
    before = leader_epoch()
    topic_id = json.loads(read_all(lambda **options: process_of(servers, **options), subscribe=name))["topic_ids"][name]
    cluster.nodes[0].stop()
    cluster.nodes[0].start()
    now = until(lambda: leader_epoch() != before and leader_epoch(), what="another leader epoch")
    outside.fill(name, [5])
    committer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    asked = {"kafka.bootstrap.servers": servers, "subscribe": name, "kafka.group.id": "reader"}

    def batch(**options: str) -> list[int] | tuple[Loss, list[tuple[int, int]]]:
        """The offsets of a batch read, or what it says is lost."""
        reader = KafkaBatchReader(parse_source_options(asked | options, "batch"), SCHEMA)
        try:
            rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
        except DataLossError as error:
            return error.loss, [(first, end) for _, first, end in error.lost]
        return [row["offset"] for row in rows]

    for offset, epoch in itertools.product((3, 5, 6, 8, 10), (before, now)):
        place = ConfluentPartition(name, 0, offset, leader_epoch=epoch)
        committer.commit(offsets=[place], asynchronous=False)
        logged = ours({name: {"0": offset}}, epochs={name: {"0": epoch}}, starts={name: {"0": 1}})
        path = write_checkpoint(tmp_path / f"{offset}-{epoch}", {0: [logged]}, committed=0)
        there = 5 if epoch == before and offset > 5 else offset
        loss = (Loss.LOG_TRUNCATED, [(there, offset)])
        for at in ("group", f"checkpoint:{path}"):
            one = process_of(servers, subscribe=name, startingOffsets=at, **{"kafka.group.id": "reader"}, **BRAVE)
            start = one.initial()
            end = one.latest(start)
            assert one.rows(start, end) == [(0, o) for o in range(there, 10)], (at, offset, epoch)
            assert batch(startingOffsets=at, **BRAVE) == list(range(there, 10))
            assert batch(startingOffsets=at) == (loss if there < offset else list(range(offset, 10)))
        # A planned micro-batch that another process replays, and the next one.
        first, planned = json.dumps(ours({name: {"0": 1}})), json.dumps(logged | {"topic_ids": {name: topic_id}})
        replay = process_of(servers, subscribe=name, commitOffsets="false", **BRAVE)
        assert replay.rows(first, planned) == [(0, o) for o in range(1, there)]
        assert replay.rows(planned, replay.latest(planned)) == [(0, o) for o in range(there, 10)]
        if there < offset:
            assert loss_of_rows(process_of(servers, subscribe=name), first, planned) == (
                Loss.LOG_TRUNCATED,
                [(0, there, offset)],
            )
        # It is read by the process that planned it: the log was cut, and has grown again, since.
        planner = process_of(servers, subscribe=name, commitOffsets="false", **BRAVE)
        planner.latest(first)
        assert planner.rows(first, planned) == [(0, o) for o in range(1, there)]
        assert planner.rows(planned, planner.latest(planned)) == [(0, o) for o in range(there, 10)]
        # The topic was dropped at this offset, and is back.
        gone = ours({}, dropped=[{"topic": name, "id": topic_id, "offsets": {"0": offset}, "epochs": {"0": epoch}}])
        path_of_gone = write_checkpoint(tmp_path / f"gone-{offset}-{epoch}", {0: [gone]}, committed=0)
        assert batch(startingOffsets=f"checkpoint:{path_of_gone}", **BRAVE) == list(range(there, 10))
        if there < 10:
            before_it = json.dumps(gone)
            resumed = process_of(servers, subscribe=name, commitOffsets="false", **BRAVE)
            assert resumed.rows(before_it, resumed.latest(before_it)) == [(0, o) for o in range(there, 10)]
        upto = {"startingOffsets": "earliest", "endingOffsets": f"checkpoint:{path}"}
        again = {"microBatch": f"{path}#0"}
        assert [batch(**upto, **BRAVE), batch(**again, **BRAVE)] == [list(range(there)), list(range(1, there))]
        assert [batch(**upto), batch(**again)] == (
            [loss, loss] if there < offset else [list(range(offset)), list(range(1, offset))]
        )
    committer.close()


@pytest.mark.timeout(600)  # four starts of brokers
def test_a_log_cut_by_an_unclean_election_is_found_by_its_leader_epoch(
    kafka_cluster: Any, process_of: Any, outside_of: Any, until: Any, tmp_path: Path
) -> None:
    """The log has grown past the reader's offset again: the offsets alone do not show that other records stand there now."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

    cluster = kafka_cluster(2, {"unclean.leader.election.interval.ms": "3000"})
    servers, (first, second) = cluster.bootstrap_servers, cluster.nodes
    outside, name = outside_of(servers), "cut"

    def is_led_by(leader: Any, *in_sync: Any) -> bool:
        try:
            found = outside.admin.list_topics(name, timeout=10).topics[name].partitions.get(0)
        except KafkaException:  # it asked the broker that is gone
            return False
        return found is not None and found.leader == leader.node_id and set(found.isrs) == {n.node_id for n in in_sync}

    new = NewTopic(name, 1, replica_assignment=[[first.node_id, second.node_id]], config={"min.insync.replicas": "1"})
    outside.admin.create_topics([new])[name].result(30)
    until(lambda: is_led_by(first, first, second), what="two replicas in sync")
    outside.fill(name, [5])
    second.stop()  # in good order, so that nothing waits for, or depends on, how soon a broker is missed
    until(lambda: is_led_by(first, first), what="one replica in sync")
    outside.fill(name, [5])
    start = read_all(lambda **options: process_of(servers, **options), subscribe=name)
    assert json.loads(start)["offsets"] == {name: {"0": 10}}
    late = process_of(servers, subscribe=name, startingOffsets="earliest", commitOffsets="false", **BRAVE)
    begin = late.initial()
    planned = late.latest(begin)
    idle = process_of(servers, subscribe=name, commitOffsets="false")
    nothing = idle.latest(idle.initial())
    assert idle.rows(idle.initial(), nothing) == []
    first.stop()
    second.start()
    outside = outside_of(servers)  # the one before would go on asking the broker that is gone
    unclean = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[unclean])
    outside.admin.incremental_alter_configs([resource])[resource].result(30)
    until(lambda: is_led_by(second, second), what="an unclean leader")
    outside.fill(name, [8])

    def process(**options: str) -> Any:
        return process_of(servers, commitOffsets="false", **options)  # its group has no coordinator now

    assert loss_of(process, start, subscribe=name) == (Loss.LOG_TRUNCATED, [(0, 5, 10)])
    assert loss_of(process, nothing, subscribe=name) == (Loss.LOG_TRUNCATED, [(0, 5, 10)])
    brave = process(subscribe=name, dataLossLedger=str(tmp_path), **BRAVE)
    end = brave.latest(start)
    assert brave.rows(start, end) == [(0, o) for o in range(5, 13)]
    assert ledger(tmp_path) == [("LOG_TRUNCATED", 0, 5, 10)]
    assert brave.latest(end) == end
    assert process(subscribe=name).latest(end) == end  # what was found once is not found again
    # A micro-batch that was planned before the cut, and is read now.
    assert late.rows(begin, planned) == [(0, o) for o in range(5)]
    assert late.rows(planned, late.latest(planned)) == [(0, o) for o in range(5, 13)]
