"""Consume, transform, produce in one transaction, on real brokers: each record read counts once, whoever reads it (KIP-447)."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pykafka_wire.wire import (
    Consumer,
    ConsumerRecords,
    GroupMetadata,
    RecordProducer,
    TopicPartition,
    TransactionalProducer,
)
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.errors import (
    BrokerError,
    ProducerFencedError,
    RecordsNotWrittenError,
    SettingsError,
    UnknownTopicError,
)
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, fetch_offsets
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.broker_features import lacking
from tests.wire.test_producer import settings_of
from tests.wire.test_recreated_topic import recreate
from tests.wire.transaction_records import committed_values, encode

WORKER = Path(__file__).parent / "copying_worker.py"


@pytest.fixture
def own_id() -> str:
    return f"tx-{uuid.uuid4().hex[:12]}"


def reading(brokers: Any, group: str, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "bootstrap.servers": brokers.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "isolation.level": "read_committed",
        "heartbeat.interval.ms": "100",
    } | named


def writing(brokers: Any, own_id: str) -> dict[str, str]:
    return {"bootstrap.servers": brokers.bootstrap_servers, "transactional.id": own_id}


def fill(brokers: Any, topic: str, start: int, end: int, *, partitions: int = 1) -> None:
    # Small batches: several make a topic.
    with RecordProducer({"bootstrap.servers": brokers.bootstrap_servers, "batch.size": "1000"}) as producer:
        for number in range(start, end):
            producer.send(topic, b"%d" % number, partition=number % partitions)


#: A kill may leave a member of a group until its session ends (45 s), and a transaction until its timeout (60 s).
_STALL_S = 150.0


def until(condition: Callable[[], Any], *, timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found


def poll(consumer: Consumer) -> ConsumerRecords:
    """The next records; there must be some."""
    found: ConsumerRecords = until(lambda: consumer.poll(200))
    return found


def values(polled: ConsumerRecords) -> list[int]:
    return [int(record.value) for record in polled]


def test_records_and_positions_are_committed_together(
    transaction_version_brokers: tuple[str, Any], topic: Any, own_id: str
) -> None:
    brokers = transaction_version_brokers[1]
    source, target = topic(cluster=brokers), topic(cluster=brokers)
    tp = TopicPartition(source, 0)
    fill(brokers, source, 0, 10)
    with Consumer(reading(brokers, own_id)) as consumer, TransactionalProducer(writing(brokers, own_id)) as producer:
        consumer.subscribe([source])
        first = poll(consumer)
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer) as transaction:
            transaction.send(target, b"never seen")
            raise ZeroDivisionError
        assert not transaction.committed
        again = poll(consumer)
        assert values(again) == values(first) == list(range(10))
        with producer.transaction(consumer) as transaction:
            for record in again:
                transaction.send(target, record.value, key=record.key)
        assert transaction.committed
        with pytest.raises(RecordsNotWrittenError, match="over"):
            transaction.send(target, b"too late")
        assert consumer.committed([tp]) == {tp: 10}
        fill(brokers, source, 10, 12)
        assert values(poll(consumer)) == [10, 11]
        with producer.transaction(consumer) as transaction:
            transaction.send(target, b"11")
            transaction.abort()
        assert values(poll(consumer)) == [10, 11]
    assert committed_values(brokers, target) == [[b"%d" % number for number in range(10)]]


@pytest.mark.needs("consumer protocol of KIP-848")
def test_positions_are_committed_to_the_topic_that_was_read_and_to_no_later_one_of_its_name(
    kafka: Any, topic: Any, own_id: str, tmp_path: Path
) -> None:
    """KIP-1319: the coordinator's word for the old topic's id; brokers before Kafka 4.4 know names only."""
    source = topic()
    tp = TopicPartition(source, 0)
    fill(kafka, source, 0, 3)
    trace = tmp_path / "trace"
    settings = reading(kafka, own_id, group_protocol="consumer")
    del settings["heartbeat.interval.ms"]  # the coordinator's own
    with (
        Consumer(settings) as consumer,
        TransactionalProducer(writing(kafka, own_id) | {"trace": str(trace)}) as producer,
    ):
        consumer.subscribe([source])
        poll(consumer)
        with producer.transaction(consumer) as transaction:
            transaction.send(topic(), b"seen")
        assert transaction.committed
        assert consumer.committed([tp]) == {tp: 3}
        by_id = not lacking(["topic ids in TxnOffsetCommit"])
        assert set(re.findall(r"-> TxnOffsetCommit v(\d)", trace.read_text())) == {"6" if by_id else "5"}
        if by_id:
            metadata = consumer.group_metadata()
            recreate(kafka, source)
            transaction = producer.transaction()
            with pytest.raises(UnknownTopicError, match=r"UNKNOWN_TOPIC_ID.*TxnOffsetCommit"):
                transaction.commit_offsets(metadata, {tp: 2})
            transaction.abort()


def test_after_an_abort_nothing_is_skipped_where_the_group_has_committed_nothing(
    kafka: Any, topic: Any, own_id: str
) -> None:
    """auto.offset.reset=latest would begin after the records of the transaction that was aborted."""
    source = topic()
    latest = reading(kafka, own_id, auto_offset_reset="latest")
    with Consumer(latest) as consumer, TransactionalProducer(writing(kafka, own_id)) as producer:
        consumer.subscribe([source])
        until(lambda: TopicPartition(source, 0) in consumer.poll(200).ended)
        fill(kafka, source, 0, 5)
        assert values(poll(consumer)) == list(range(5))
        producer.transaction(consumer).abort()
        assert values(poll(consumer)) == list(range(5))
        no_name = pa.table({"value": [b"x"], "headers": [[{"key": None, "value": b"x"}]]})
        with (
            pytest.raises(RecordsNotWrittenError, match="null key"),
            producer.transaction(consumer) as transaction,
            contextlib.suppress(ValueError),  # that an error was caught does not make it good
        ):
            transaction.send_arrow(source, no_name)
        assert values(poll(consumer)) == list(range(5))
        consumer.after_transaction(None)  # as after a commit of which nobody knows
        assert values(poll(consumer)) == list(range(5))


@pytest.mark.parametrize("place", ["of an old generation", "of one that has left", "taken by its successor"])
def test_the_commit_of_a_zombie_member_is_refused_and_its_transaction_can_be_aborted(
    transaction_version_brokers: tuple[str, Any], topic: Any, own_id: str, place: str
) -> None:
    brokers = transaction_version_brokers[1]
    source, target = topic(2, cluster=brokers), topic(cluster=brokers)
    static = {"group_instance_id": "one"} if place == "taken by its successor" else {}
    settings = reading(brokers, own_id, **static)
    expected = {
        "of an old generation": "ILLEGAL_GENERATION",
        "of one that has left": "UNKNOWN_MEMBER_ID",
        "taken by its successor": "FENCED_INSTANCE_ID",
    }[place]
    with contextlib.ExitStack() as stack:
        zombie = stack.enter_context(Consumer(settings))
        zombie.subscribe([source])
        until(lambda: zombie.poll(50) is not None and len(zombie.assignment) == 2)
        metadata = zombie.group_metadata()
        if place == "of one that has left":
            zombie.close()
        other = stack.enter_context(Consumer(settings if static else reading(brokers, own_id)))
        other.subscribe([source])
        # A static member's successor takes over all; beside a member that is there, it gets one of two.
        share = 1 if place == "of an old generation" else 2

        def rebalanced() -> bool:
            other.poll(50)
            if share == 1:
                zombie.poll(50)
            return len(other.assignment) == share

        until(rebalanced)
        tp = TopicPartition(source, 0)
        with Cluster(settings_of(brokers)) as cluster:
            transaction = Transaction.begin(cluster, own_id)
            transaction.produce({TopicPartition(target, 0): encode(b"zombie")})
            with pytest.raises(BrokerError, match=expected):
                transaction.commit_offsets(metadata, {tp: CommittedOffset(7)})
            transaction.abort()
            successor = Transaction.begin(cluster, own_id, successor_of=transaction.last_handle.identity)
            successor.produce({TopicPartition(target, 0): encode(b"heir")})
            successor.commit_offsets(other.group_metadata(), {tp: CommittedOffset(8)})
            successor.commit()
            assert fetch_offsets(cluster, own_id, [tp], require_stable=True)[tp].offset == 8
    assert committed_values(brokers, target) == [[b"heir"]]


def test_a_transaction_over_a_rebalance_is_aborted_and_its_records_are_read_again(
    kafka: Any, topic: Any, own_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = topic(2), topic()
    fill(kafka, source, 0, 10, partitions=2)
    settings = reading(kafka, own_id)
    with Consumer(settings) as consumer, TransactionalProducer(writing(kafka, own_id)) as producer:
        consumer.subscribe([source])
        found = set(values(poll(consumer)))
        while len(found) < 10:
            found |= set(values(consumer.poll(200)))
        with Consumer(settings) as other:
            other.subscribe([source])
            transaction = producer.transaction(consumer)
            for number in sorted(found):
                transaction.send(target, b"%d" % number)
            until(lambda: (consumer.poll(50), other.poll(50)) and len(other.assignment) == 1)
            assert transaction.commit() is False
            assert "will be read again: partitions were revoked" in caplog.text
        while set(values(consumer.poll(200))) or len(consumer.assignment) < 2:
            pass  # what was polled meanwhile
        consumer.after_transaction(False)
        again: set[int] = set()
        while len(again) < 10:
            polled = poll(consumer)
            with producer.transaction(consumer) as next_one:
                for record in polled:
                    next_one.send(target, record.value)
            assert next_one.committed
            again |= set(values(polled))
    assert sorted(map(int, committed_values(kafka, target)[0])) == list(range(10))


def test_a_transaction_of_records_that_were_polled_before_an_abort_is_not_committed(
    kafka: Any, topic: Any, own_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer has gone back and polls them again: they would count twice, or those of a forgotten transaction never."""
    source, target = topic(), topic()
    fill(kafka, source, 0, 5)
    with Consumer(reading(kafka, own_id)) as consumer, TransactionalProducer(writing(kafka, own_id)) as producer:
        consumer.subscribe([source])
        polled = poll(consumer)
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
            raise ZeroDivisionError
        with producer.transaction(consumer) as repeated:
            for record in polled:
                repeated.send(target, record.value)
        assert not repeated.committed
        assert "positions went back" in caplog.text
        assert values(poll(consumer)) == list(range(5))
        producer.transaction(consumer).send(target, b"its end was forgotten")
        fill(kafka, source, 5, 10)
        later = poll(consumer)
        with producer.transaction(consumer) as later_ones:
            for record in later:
                later_ones.send(target, record.value)
        assert not later_ones.committed
        with producer.transaction(consumer) as within:
            found: list[int] = []
            while len(found) < 10:
                found += values(poll(consumer))
            for number in found:
                within.send(target, b"%d" % number)
        assert within.committed
    assert committed_values(kafka, target) == [[b"%d" % number for number in range(10)]]


def test_records_of_a_transaction_that_does_not_begin_are_polled_again(kafka: Any, topic: Any, own_id: str) -> None:
    """The consumer's positions are past them, and a later transaction would commit those."""
    source, target = topic(), topic()
    fill(kafka, source, 0, 10)
    refused = writing(kafka, own_id) | {"transaction.timeout.ms": "2000000000"}
    with (
        Consumer(reading(kafka, own_id)) as consumer,
        TransactionalProducer(refused) as never,
        TransactionalProducer(writing(kafka, own_id)) as producer,
        TransactionalProducer(writing(kafka, own_id)) as successor,
    ):
        consumer.subscribe([source])
        assert values(poll(consumer)) == list(range(10))
        with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT"):
            never.transaction(consumer)
        assert values(poll(consumer)) == list(range(10))
        producer.transaction().abort()
        successor.transaction().abort()
        for _ in range(2):
            with pytest.raises(ProducerFencedError):
                producer.transaction(consumer)
            assert values(poll(consumer)) == list(range(10))
        fill(kafka, source, 10, 13)
        found = list(range(10))
        while len(found) < 13:
            found += values(poll(consumer))
        with successor.transaction(consumer) as transaction:
            for number in found:
                transaction.send(target, b"%d" % number)
        assert transaction.committed
    assert committed_values(kafka, target) == [[b"%d" % number for number in range(13)]]


def test_a_transaction_without_records_and_positions_is_committed(
    transaction_version_brokers: tuple[str, Any], topic: Any, own_id: str
) -> None:
    """As of a member that owns no partition at present."""
    brokers = transaction_version_brokers[1]
    target = topic(cluster=brokers)
    with Consumer(reading(brokers, own_id)) as consumer, TransactionalProducer(writing(brokers, own_id)) as producer:
        consumer.assign([])
        for _ in range(2):
            with producer.transaction(consumer) as transaction:
                pass
            assert transaction.committed
        with producer.transaction(consumer) as transaction:
            transaction.send(target, b"with records")
        assert transaction.committed
    assert committed_values(brokers, target) == [[b"with records"]]


def test_of_two_producers_of_one_id_the_older_is_of_no_more_use(
    transaction_version_brokers: tuple[str, Any], topic: Any, own_id: str
) -> None:
    """Each transaction names the one before it (KIP-360): a zombie does not fence the producer that took its id over."""
    brokers = transaction_version_brokers[1]
    target = topic(cluster=brokers)
    settings = writing(brokers, own_id)
    with TransactionalProducer(settings) as older, TransactionalProducer(settings) as newer:
        for turn in range(3):
            with older.transaction() as transaction:
                transaction.send(target, b"older %d" % turn)
        left_open = older.transaction()
        left_open.send(target, b"never seen")
        with newer.transaction() as transaction:
            transaction.send(target, b"newer 0")
        with pytest.raises(ProducerFencedError):
            left_open.commit()
        for _ in range(2):
            with pytest.raises(ProducerFencedError):
                older.transaction()
        with newer.transaction() as transaction:
            transaction.send(target, b"newer 1")
    assert committed_values(brokers, target) == [[b"older 0", b"older 1", b"older 2", b"newer 0", b"newer 1"]]


def test_offsets_that_are_no_positions_are_committed_too(kafka: Any, topic: Any, own_id: str) -> None:
    source = topic()
    tp = TopicPartition(source, 0)
    with TransactionalProducer(writing(kafka, own_id)) as producer:
        with producer.transaction() as transaction:
            transaction.commit_offsets(own_id, {tp: 5})
        with producer.transaction() as transaction:
            transaction.commit_offsets(GroupMetadata(group=own_id), {tp: CommittedOffset(6, metadata="six")})
    with Cluster(settings_of(kafka)) as cluster:
        assert fetch_offsets(cluster, own_id, [tp]) == {tp: CommittedOffset(6, metadata="six")}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"enable_auto_commit": "true"}, "enable.auto.commit"),
        ({"isolation_level": "read_uncommitted"}, "isolation.level"),
    ],
)
def test_a_consumer_that_would_defeat_its_transactions_is_refused(
    kafka: Any, own_id: str, more: dict[str, str], text: str
) -> None:
    with (
        Consumer(reading(kafka, own_id, **more)) as consumer,
        TransactionalProducer(writing(kafka, own_id)) as producer,
        pytest.raises(SettingsError, match=text),
    ):
        producer.transaction(consumer)
    with pytest.raises(SettingsError, match=r"transactional\.id is missing"):
        TransactionalProducer({"bootstrap.servers": kafka.bootstrap_servers})


@contextlib.contextmanager
def worker(brokers: Any, source: str, target: str, group: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """A running copying_worker.py, which is killed at the end."""
    command = [sys.executable, str(WORKER), brokers.bootstrap_servers, source, target, group, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def test_every_record_counts_once_over_kills_and_rebalances(kafka: Any, topic: Any, own_id: str) -> None:
    n_records, partitions = 4_000, 4
    source, target = topic(partitions), topic(partitions)
    fill(kafka, source, 0, n_records, partitions=partitions)
    places = [TopicPartition(source, partition) for partition in range(partitions)]

    with Cluster(settings_of(kafka)) as cluster, contextlib.ExitStack() as stack:

        def n_done() -> int:
            return sum(found.offset for found in fetch_offsets(cluster, own_id, places).values())

        def start(name: str) -> subprocess.Popen[str]:
            return stack.enter_context(worker(kafka, source, target, own_id, name))

        first, second = start("+first"), start("+second")
        until(lambda: n_done() > n_records // 8, timeout_s=_STALL_S)
        first.kill()  # most likely in a transaction; its successor takes its place and its transactional id
        first = start("+first")
        until(lambda: n_done() > n_records // 4, timeout_s=_STALL_S)
        third = start("third")
        until(lambda: n_done() > n_records // 2, timeout_s=_STALL_S)
        second.kill()
        second = start("+second")
        until(lambda: n_done() > n_records * 3 // 4, timeout_s=_STALL_S)
        third.terminate()  # it leaves the group
        until(lambda: n_done() == n_records, timeout_s=_STALL_S)
        assert [each.poll() for each in (first, second)] == [None, None]
    found = committed_values(kafka, target, partitions)
    assert [[int(value) for value in own] for own in found] == [
        list(range(partition, n_records, partitions)) for partition in range(partitions)
    ]
