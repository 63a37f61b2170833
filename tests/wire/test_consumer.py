"""The consumer on a real broker: assigned and in a group; what it reads was written by librdkafka, or is judged by it."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from pykafka_wire.wire import (
    EARLIEST,
    LATEST,
    ClientSettings,
    Consumer,
    ConsumerRecord,
    ConsumerRecords,
    TopicPartition,
    WireError,
)
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_partitions
from pykafka_wire.wire.errors import BrokerError, OffsetOutOfRangeError, SettingsError
from pykafka_wire.wire.groups.classic.membership import GroupMember
from pykafka_wire.wire.groups.classic.state_machine import MemberStateMachine

pytestmark = pytest.mark.broker

TIMEOUT_S = 60.0


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def consumer(kafka: Any, group: str) -> Iterator[Callable[..., Consumer]]:
    """`consumer(**settings)`: one of group `group`, with short times, closed in the end."""
    times = {"heartbeat.interval.ms": "100", "session.timeout.ms": "6000"}
    yield from members(kafka.bootstrap_servers, group, times)


def members(servers: str, group: str, own: Mapping[str, str]) -> Iterator[Callable[..., Consumer]]:
    """For a fixture: makes consumers of a group with these settings and those of each call, and closes them in the end."""
    options = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        **own,
    }
    made: list[Consumer] = []

    def make(**more: str) -> Consumer:
        made.append(Consumer({**options, **{name.replace("_", "."): value for name, value in more.items()}}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def produce(kafka: Any, topic: str, partition: int, values: list[bytes], **more: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(30) == 0


def poll_until(consumer: Consumer, done: Callable[[list[ConsumerRecords]], bool]) -> list[ConsumerRecords]:
    polled: list[ConsumerRecords] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not done(polled):
        assert time.monotonic() < deadline, polled
        polled.append(consumer.poll(500))
    return polled


def records_of(polled: list[ConsumerRecords]) -> list[ConsumerRecord]:
    return [record for each in polled for record in each]


def ends_of(polled: list[ConsumerRecords]) -> list[TopicPartition]:
    return [tp for each in polled for tp in each.ended]


def test_assigned_partitions_are_read_to_their_ends_and_on(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic(partitions=3)
    zero, one, empty = (TopicPartition(name, partition) for partition in range(3))
    produce(kafka, name, 0, [b"a", b"b"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    produce(kafka, name, 1, [b"c"])
    reader = consumer()
    reader.assign({zero: 0, one: EARLIEST, empty: LATEST})
    polled = poll_until(reader, lambda polled: len(ends_of(polled)) == 3)
    records = sorted(records_of(polled))
    assert records[0] == ConsumerRecord(name, 0, 0, 1_700_000_000_123, b"k", b"a", (("h", b"1"), ("h", None)))
    assert [(r.partition, r.offset, r.value) for r in records] == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]
    assert sorted(ends_of(polled)) == [zero, one, empty]
    assert [reader.position(tp) for tp in (zero, one, empty)] == [2, 1, 0]
    assert ends_of([reader.poll(300)]) == []  # told once
    produce(kafka, name, 2, [b"later"])
    polled = poll_until(reader, ends_of)
    assert [r.value for r in records_of(polled)] == [b"later"]
    assert ends_of(polled) == [empty]


def test_a_poll_gives_arrow_columns(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic(partitions=2)
    produce(kafka, name, 1, [b"a", b"b"], key=b"k")
    reader = consumer()
    reader.assign([TopicPartition(name, partition) for partition in range(2)])
    (polled,) = (each for each in poll_until(reader, records_of) if each)
    batch = polled.to_arrow()
    assert batch.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert batch.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert batch.select(["topic", "partition", "offset", "key", "value"]).to_pylist() == [
        {"topic": name, "partition": 1, "offset": offset, "key": b"k", "value": value}
        for offset, value in enumerate([b"a", b"b"])
    ]
    assert ConsumerRecords().to_arrow().num_rows == len(ConsumerRecords()) == 0


def test_reading_continues_where_it_was_sought(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"%d" % number for number in range(10)])
    reader = consumer()
    reader.assign([tp])
    assert len(records_of(poll_until(reader, ends_of))) == 10
    reader.seek(tp, 7)
    assert reader.position(tp) == 7
    assert [r.value for r in records_of(poll_until(reader, ends_of))] == [b"7", b"8", b"9"]
    reader.seek(tp, EARLIEST)
    assert len(records_of(poll_until(reader, ends_of))) == 10
    with pytest.raises(KeyError):
        reader.seek(TopicPartition(name, 1), 0)


def test_positions_and_commits_cross_aborted_transactions_and_their_markers(
    kafka: Any, topic: Any, consumer: Any, group: str
) -> None:
    """Else the group's lag would never be 0, and its commits would carry no leader epoch (KIP-320)."""
    name = topic(partitions=1)
    tp = TopicPartition(name, 0)
    reader = consumer(isolation_level="read_committed")
    reader.assign([tp])
    produce(kafka, name, 0, [b"plain"])
    assert len(records_of(poll_until(reader, lambda polled: bool(records_of(polled))))) == 1
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(name, b"aborted", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
    poll_until(reader, lambda _: reader.position(tp) == 5)
    reader.commit()
    observer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    (committed,) = observer.committed([confluent_kafka.TopicPartition(name, 0)], 30)
    observer.close()
    assert (committed.offset, committed.leader_epoch) == (5, 0)


def test_a_poll_ends_in_time(topic: Any, consumer: Any) -> None:
    reader = consumer(fetch_max_wait_ms="5000")
    reader.assign([TopicPartition(topic(), 0)])
    poll_until(reader, ends_of)
    started = time.monotonic()
    assert not reader.poll(50)
    assert time.monotonic() - started < 3


def test_an_offset_that_is_gone_is_reset_or_reported(topic: Any, consumer: Any, kafka: Any) -> None:
    name = topic()
    produce(kafka, name, 0, [b"a"])
    reader = consumer()
    reader.assign({TopicPartition(name, 0): 100})
    assert [r.offset for r in records_of(poll_until(reader, ends_of))] == [0]
    strict = consumer(auto_offset_reset="none")
    strict.assign({TopicPartition(name, 0): 100})
    with pytest.raises(OffsetOutOfRangeError):
        poll_until(strict, lambda _: False)
    strict.seek(TopicPartition(name, 0), 0)
    assert [r.offset for r in records_of(poll_until(strict, ends_of))] == [0]


def test_without_a_committed_offset_and_a_policy_it_is_an_error(topic: Any, consumer: Any) -> None:
    reader = consumer(auto_offset_reset="none")
    reader.assign([TopicPartition(topic(), 0)])
    with pytest.raises(WireError, match=r"auto\.offset\.reset"):
        reader.poll()


def test_a_member_commits_and_the_next_one_continues_from_there(
    kafka: Any, topic: Any, consumer: Any, group: str
) -> None:
    name = topic(partitions=2)
    produce(kafka, name, 0, [b"a", b"b"])
    first = consumer()
    first.subscribe([name])
    poll_until(first, lambda polled: len(ends_of(polled)) == 2)
    assert first.committed() == {}
    first.commit()
    assert first.committed() == {TopicPartition(name, 0): 2, TopicPartition(name, 1): 0}
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):  # from outside, while the group has a member
        outsider = consumer()
        outsider.assign({TopicPartition(name, 0): 1})
        outsider.position(TopicPartition(name, 0))
        outsider.commit()
    first.close()
    produce(kafka, name, 0, [b"c"])
    second = consumer()
    second.subscribe([name])
    assert [r.value for r in records_of(poll_until(second, lambda polled: len(ends_of(polled)) == 2))] == [b"c"]


def test_positions_are_committed_by_themselves_where_asked_for(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"a"])
    for leaving in (False, True):
        reader = consumer(enable_auto_commit="true", auto_commit_interval_ms="3600000" if leaving else "0")
        reader.subscribe([name])
        poll_until(reader, ends_of)
        if leaving:
            reader.close()
        else:
            # What a poll has returned counts as done with the next one.
            poll_until(reader, lambda _, reader=reader: reader.committed() == {tp: 1})
            produce(kafka, name, 0, [b"b"])
            reader.close()
    seen = consumer()
    seen.assign([tp])
    assert seen.committed() == {tp: 2}


class Reader(threading.Thread):
    """Polls in a thread, as one member of a group would in its process; remembers what it owned and read."""

    def __init__(self, consumer: Consumer, topics: list[str]) -> None:
        super().__init__(daemon=True)
        self.consumer, self.topics = consumer, topics
        self.records: list[ConsumerRecord] = []
        self.revoked: list[tuple[TopicPartition, ...]] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.consumer.subscribe(self.topics, on_revoked=self.revoked.append)
            while not self.stop.is_set():
                self.records += list(self.consumer.poll(100))
                with suppress(BrokerError):  # a rebalance; read again by whoever gets the partitions
                    self.consumer.commit()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.stop.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        assert self.error is None, self.error


def await_shares(readers: list[Reader], wanted: set[TopicPartition]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        shares = [reader.consumer.assignment for reader in readers]
        if all(shares) and sorted(tp for share in shares for tp in share) == sorted(wanted):
            return
        assert all(reader.error is None for reader in readers), [reader.error for reader in readers]
        assert time.monotonic() < deadline, shares
        time.sleep(0.05)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_and_hand_them_over(kafka: Any, topic: Any, consumer: Any, strategy: str) -> None:
    name = topic(partitions=4)
    everything = {TopicPartition(name, partition) for partition in range(4)}
    one = Reader(consumer(partition_assignment_strategy=strategy), [name])
    two = Reader(consumer(partition_assignment_strategy=strategy), [name])
    one.start()
    await_shares([one], everything)
    two.start()
    await_shares([one, two], everything)
    for partition in range(4):
        produce(kafka, name, partition, [b"%d" % number for number in range(5)])
    two.end()
    two.consumer.close()
    await_shares([one], everything)
    deadline = time.monotonic() + TIMEOUT_S
    while len({(r.partition, r.offset) for r in one.records + two.records}) < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    one.end()
    assert one.revoked and all(one.revoked)


def test_a_leader_shares_new_partitions_out(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic()
    reader = Reader(consumer(metadata_max_age_ms="100"), [name])
    reader.start()
    await_shares([reader], {TopicPartition(name, 0)})
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        create_partitions(cluster, {name: 2})
    await_shares([reader], {TopicPartition(name, 0), TopicPartition(name, 1)})
    reader.end()


class Foreign(MemberStateMachine):
    """A member whose subscription is bytes of another client."""

    metadata = b""

    def _subscription(self, strategy: str) -> bytes:
        return self.metadata


@pytest.mark.parametrize("client", ["Sarama before 1.38", "bytes behind the last field", "malformed bytes"])
def test_a_member_of_another_client_does_not_end_the_leaders_membership(
    kafka: Any, topic: Any, consumer: Any, group: str, client: str
) -> None:
    name = topic(partitions=2)
    produce(kafka, name, 0, [b"a"])
    produce(kafka, name, 1, [b"b"])
    leader = Reader(consumer(), [name])
    leader.start()
    await_shares([leader], {TopicPartition(name, 0), TopicPartition(name, 1)})
    # Topics, then null user data: Sarama writes version 1 without the owned partitions that it has.
    subscription = struct.pack(">ih", 1, len(name)) + name.encode() + struct.pack(">i", -1)
    machine = Foreign(group, [name], session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    machine.metadata = {
        "Sarama before 1.38": b"\0\1" + subscription,
        "bytes behind the last field": b"\0\0" + subscription + b"more",
        "malformed bytes": b"\xff\xff" + subscription,
    }[client]
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        foreign = GroupMember(cluster, machine)
        assert len(foreign.join()) == (0 if client == "malformed bytes" else 1)
        foreign.leave()
    await_shares([leader], {TopicPartition(name, 0), TopicPartition(name, 1)})
    leader.end()


def test_a_member_that_polls_no_more_loses_its_place_until_it_does(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    stuck = consumer(max_poll_interval_ms="500")
    stuck.subscribe([name])
    poll_until(stuck, lambda _: stuck.assignment == (tp,))
    other = Reader(consumer(), [name])
    other.start()
    await_shares([other], {tp})
    other.end()
    other.consumer.close()
    poll_until(stuck, ends_of)
    assert stuck.assignment == (tp,)


def test_a_member_at_work_on_its_records_keeps_its_place_in_a_rebalance(
    kafka: Any, topic: Any, consumer: Any, group: str
) -> None:
    """It works for longer than session.timeout.ms after another member came, then commits and gives its share up."""
    name = topic(partitions=2)
    both = {TopicPartition(name, 0), TopicPartition(name, 1)}
    produce(kafka, name, 0, [b"a"])
    slow = consumer()
    slow.subscribe([name])
    poll_until(slow, lambda polled: len(ends_of(polled)) == 2)
    other = Reader(consumer(), [name])
    other.start()
    time.sleep(8)  # session.timeout.ms is 6 s, the least that brokers allow by default
    assert not other.consumer.assignment
    slow.commit()
    assert slow.committed() == dict.fromkeys(both, 0) | {TopicPartition(name, 0): 1}
    poll_until(slow, lambda _: len(slow.assignment) == 1)
    await_shares([other], both - set(slow.assignment))
    other.end()


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_double(
    kafka: Any, topic: Any, consumer: Any, group: str
) -> None:
    name = topic(partitions=2)
    other = Reader(consumer(group_instance_id="b"), [name])
    other.start()
    # It leads the group: some brokers rebalance when the leader comes back.
    await_shares([other], {TopicPartition(name, 0), TopicPartition(name, 1)})
    first = consumer(group_instance_id="a")
    first.subscribe([name])
    poll_until(first, lambda _: first.assignment == (TopicPartition(name, 0),))
    await_shares([other], {TopicPartition(name, 1)})
    generation = other.consumer.group_metadata().member.generation
    revoked = list(other.revoked)  # what it had before the first one came
    first.close(leave=False)
    again = consumer(group_instance_id="a")
    again.subscribe([name])
    poll_until(again, lambda _: again.assignment == (TopicPartition(name, 0),))
    double = consumer(group_instance_id="a")
    double.subscribe([name])
    poll_until(double, lambda _: double.assignment == (TopicPartition(name, 0),))
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        poll_until(again, lambda _: False)
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        again.commit({TopicPartition(name, 0): 0})
    other.end()
    assert other.consumer.assignment == (TopicPartition(name, 1),)
    assert other.consumer.group_metadata().member.generation == generation
    assert other.revoked == revoked


def test_what_cannot_be_is_said_at_once(kafka: Any) -> None:
    alone = Consumer({"bootstrap.servers": kafka.bootstrap_servers})
    with pytest.raises(SettingsError, match=r"group\.id"):
        alone.subscribe(["t"])
    with pytest.raises(SettingsError, match=r"group\.id"):
        alone.commit()
    other = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
    sticky = "org.apache.kafka.clients.consumer.StickyAssignor"
    with pytest.raises(SettingsError, match=r"partition\.assignment\.strategy"):
        Consumer(other | {"partition.assignment.strategy": sticky}).subscribe(["t"])
    subscribed = Consumer(other)
    subscribed.subscribe(["t"])
    with pytest.raises(ValueError, match="has subscribed"):
        subscribed.assign([TopicPartition("t", 0)])
    with pytest.raises(ValueError, match="has subscribed"):
        subscribed.subscribe(["t"])
