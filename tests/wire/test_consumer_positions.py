"""Pausing, offsets by time, subscriptions by pattern, and group protocols of consumers on a real broker."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import nullcontext, suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from pykafka_wire.wire import EARLIEST, LATEST, ClientSettings, Consumer, TopicPartition, WireError
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_partitions, create_topics, delete_topics
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.fetch.range_progress import Position
from tests.broker_features import lacking
from tests.wire.test_consumer import TIMEOUT_S, Reader, await_shares, ends_of, poll_until, produce, records_of

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(kafka: Any) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}


@pytest.fixture(params=["classic", pytest.param("consumer", marks=pytest.mark.needs("consumer protocol of KIP-848"))])
def protocol(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a group of its own, in either group protocol."""
    named = {
        "group.id": f"group-{uuid.uuid4().hex[:12]}",
        "group.protocol": request.param,
        "metadata.max.age.ms": "200",
    }
    return named | ({"heartbeat.interval.ms": "100"} if request.param == "classic" else {})


def test_paused_partitions_give_nothing_and_go_on_where_they_were(
    kafka: Any, topic: Any, settings: dict[str, str]
) -> None:
    name = topic(partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(kafka, name, 0, [b"%d" % number for number in range(5)])
    with Consumer(settings) as consumer:
        consumer.assign({zero: 0, one: 0})
        assert len(records_of(poll_until(consumer, lambda polled: len(ends_of(polled)) == 2))) == 5
        consumer.pause([zero])
        produce(kafka, name, 0, [b"paused"])
        produce(kafka, name, 1, [b"read"])
        polled = poll_until(consumer, lambda polled: one in ends_of(polled) and records_of(polled))
        assert [record.value for record in records_of(polled)] == [b"read"]
        assert (consumer.position(zero), consumer.paused, consumer.assignment) == (5, (zero,), (zero, one))
        consumer.resume([zero])
        assert [r.value for r in records_of(poll_until(consumer, lambda p: bool(records_of(p))))] == [b"paused"]


@pytest.mark.parametrize("timeout_ms", [2**63 - 1, float("inf")])
def test_a_poll_may_wait_for_ever(kafka: Any, topic: Any, settings: dict[str, str], timeout_ms: float) -> None:
    name = topic()
    produce(kafka, name, 0, [b"a"])
    with Consumer(settings) as consumer:
        consumer.assign({TopicPartition(name, 0): 0})
        assert [record.value for record in consumer.poll(timeout_ms)] == [b"a"]


@pytest.mark.parametrize("then", ["assigns others", "subscribes"])
def test_positions_are_committed_before_partitions_are_given_up(
    kafka: Any, topic: Any, settings: dict[str, str], then: str
) -> None:
    """As by Java's consumer, with ``enable.auto.commit``: what was processed is not read again."""
    name = topic(partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(kafka, name, 0, [b"%d" % number for number in range(5)])
    produce(kafka, name, 1, [b"other"])
    with Consumer(settings | {"group.id": f"group-{name}", "heartbeat.interval.ms": "100"}) as consumer:
        consumer.assign([zero])
        assert len(records_of(poll_until(consumer, ends_of))) == 5
        if then == "assigns others":
            consumer.assign([one])
            assert consumer.committed([zero]) == {zero: 5}
            assert [record.value for record in records_of(poll_until(consumer, ends_of))] == [b"other"]
            consumer.assign([zero])
            produce(kafka, name, 0, [b"5"])
            assert [record.value for record in records_of(poll_until(consumer, ends_of))] == [b"5"]
        else:
            consumer.subscribe([name])
            polled = poll_until(consumer, lambda polled: len(ends_of(polled)) == 2)
            assert [record.value for record in records_of(polled)] == [b"other"]


@pytest.mark.needs("topic ids")
def test_positions_keep_their_leader_epoch_when_they_go_back_or_are_looked_up(
    kafka: Any, topic: Any, settings: dict[str, str]
) -> None:
    """By it the first Fetch notices that the log was truncated meanwhile (KIP-320), and a commit tells it to others. The epoch of
    the log's end is its leader's, who may have written nothing."""
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"a", b"b"])
    group = {"group.id": f"group-{name}", "enable.auto.commit": "false"}

    def epoch(consumer: Consumer) -> int:
        return consumer.positions()[tp].leader_epoch

    with Consumer(settings | group) as consumer:
        consumer.assign([tp])
        assert (consumer.position(tp), epoch(consumer)) == (0, 0)  # by auto.offset.reset
        poll_until(consumer, ends_of)
        consumer.commit({tp: 2})
        produce(kafka, name, 0, [b"c"])
        poll_until(consumer, records_of)
        consumer.after_transaction(False)
        assert (consumer.position(tp), epoch(consumer)) == (2, 0)
        poll_until(consumer, records_of)
        with Consumer(settings | group) as other:
            other.assign([tp])
            assert (other.position(tp), epoch(other)) == (2, 0)
        consumer.seek(tp, LATEST)
        assert (consumer.position(tp), epoch(consumer)) == (3, -1)


def test_an_automatic_reset_skips_nothing_that_a_transaction_has_polled(
    kafka: Any, topic: Any, settings: dict[str, str]
) -> None:
    """A position above a log that was truncated, of a format without leader epochs: its end is in the midst of what was polled."""
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"%d" % number for number in range(3)])
    with Consumer(settings | {"auto.offset.reset": "latest"}) as consumer:
        consumer.assign({tp: 0})
        for is_looked_up in (False, True):
            assert len(records_of(poll_until(consumer, ends_of))) == 3
            consumer._assignment.positions[tp] = Position(50)
            consumer._assignment._read = None
            while tp in consumer.positions():
                consumer._assignment.poll(Deadline.after_ms(TIMEOUT_S * 1000))
            if is_looked_up:
                assert consumer.position(tp) == 3
            assert not consumer.owns_polled
            consumer.after_transaction(False)
            assert consumer.position(tp) == 0


@pytest.mark.parametrize("is_polled", [False, True])
def test_an_aborted_transaction_goes_back_to_a_reset_where_retention_was_faster(
    kafka: Any, topic: Any, settings: dict[str, str], is_polled: bool
) -> None:
    """Below the log's start would be reset anew: to the end that the log has by then, past records that were polled."""
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"%d" % number for number in range(3)])
    with Consumer(settings | {"auto.offset.reset": "latest"}) as consumer:
        consumer.assign({tp: 0})
        if is_polled:
            assert len(records_of(poll_until(consumer, ends_of))) == 3
        consumer.pause([tp])
        produce(kafka, name, 0, [b"%d" % number for number in range(3, 6)])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for deleted in admin.delete_records([confluent_kafka.TopicPartition(name, 0, 5)]).values():
            deleted.result(TIMEOUT_S)
        consumer.resume([tp])
        poll_until(consumer, lambda _: consumer.position(tp) == 6)
        # Records of a partition that has no position to commit are not to be committed.
        assert consumer.owns_polled is not is_polled
        produce(kafka, name, 0, [b"%d" % number for number in range(6, 9)])
        assert len(records_of(poll_until(consumer, ends_of))) == 3
        consumer.after_transaction(False)
        assert consumer.position(tp) == 6
        assert len(records_of(poll_until(consumer, ends_of))) == 3


def test_partitions_that_stay_assigned_go_on_where_they_were(kafka: Any, topic: Any, settings: dict[str, str]) -> None:
    name = topic(partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(kafka, name, 0, [b"before"])
    with Consumer(settings | {"auto.offset.reset": "latest"}) as consumer:
        consumer.assign({zero: EARLIEST})
        poll_until(consumer, lambda polled: zero in ends_of(polled))
        consumer.pause([zero])
        produce(kafka, name, 0, [b"after"])
        consumer.assign([zero, one])
        assert (consumer.assignment, consumer.paused, consumer.position(zero)) == ((zero, one), (zero,), 1)
        consumer.resume([zero])
        assert [r.value for r in records_of(poll_until(consumer, lambda p: bool(records_of(p))))] == [b"after"]
        consumer.assign({zero: EARLIEST})
        assert (consumer.assignment, consumer.position(zero)) == ((zero,), 0)
        consumer.assign([one])
        assert consumer.assignment == (one,)


def test_a_member_pauses_what_it_was_just_assigned(
    kafka: Any, topic: Any, settings: dict[str, str], protocol: dict[str, str]
) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"a"])
    with Consumer(settings | protocol) as consumer:
        consumer.subscribe([name], on_assigned=lambda partitions: consumer.pause(partitions))
        polled = poll_until(consumer, lambda _: consumer.assignment == (tp,))
        assert not records_of([*polled, consumer.poll(300)])
        consumer.resume([tp])
        assert [r.value for r in records_of(poll_until(consumer, ends_of))] == [b"a"]


def test_offsets_for_times_are_those_of_the_first_records_as_late(
    kafka: Any, topic: Any, settings: dict[str, str]
) -> None:
    name = topic(partitions=2)
    zero, empty = TopicPartition(name, 0), TopicPartition(name, 1)
    now = int(time.time() * 1000)
    for offset in range(3):
        produce(kafka, name, 0, [b"%d" % offset], timestamp=now + offset * 1000)
    with Consumer(settings) as consumer:
        found = consumer.offsets_for_times({zero: now + 1, empty: now})
        first = found[zero]
        assert first is not None and (first.offset, first.timestamp) == (1, now + 1000)
        assert found[empty] is None
        assert consumer.offsets_for_times({zero: now + 2001}) == {zero: None}
        assert consumer.offsets_for_times({}) == {}
        with pytest.raises(ValueError, match="milliseconds since the epoch"):
            consumer.offsets_for_times({zero: EARLIEST})


def test_a_pattern_finds_topics_that_are_created_later(
    kafka: Any, topic: Any, settings: dict[str, str], protocol: dict[str, str]
) -> None:
    """Whole names, without internal topics."""
    first, second = topic(), topic()
    later = f"{first}-later"
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        with Consumer(settings | protocol) as consumer:
            consumer.subscribe(re.compile(rf"(__.*|{first}(-later)?)"))
            poll_until(consumer, lambda _: consumer.assignment == (TopicPartition(first, 0),))
            produce(kafka, second, 0, [b"not subscribed"])
            create_topics(cluster, {later: (2, 1)})
            wanted = tuple(TopicPartition(name, partition) for name, partition in ((first, 0), (later, 0), (later, 1)))
            poll_until(consumer, lambda _: consumer.assignment == wanted)
        delete_topics(cluster, [later])


def test_a_topic_that_does_not_exist_yet_is_read_soon_after_it_is_created(
    kafka: Any, topic: Any, settings: dict[str, str], protocol: dict[str, str]
) -> None:
    """Long before ``metadata.max.age.ms``, as by Java's consumer."""
    later = f"{topic()}-later"
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        with Consumer(settings | protocol | {"metadata.max.age.ms": "300000"}) as consumer:
            consumer.subscribe([later])
            poll_until(consumer, lambda _: has_joined(consumer))
            assert consumer.assignment == ()
            create_topics(cluster, {later: (1, 1)})
            produce(kafka, later, 0, [b"first"])
            assert [r.value for r in records_of(poll_until(consumer, records_of))] == [b"first"]
        delete_topics(cluster, [later])


@pytest.mark.parametrize("subscribes", ["by name", "by pattern"])
def test_a_topic_that_was_deleted_is_read_again_once_it_is_created_again(
    kafka: Any, topic: Any, settings: dict[str, str], protocol: dict[str, str], subscribes: str
) -> None:
    name = f"{topic()}-again"
    tp = TopicPartition(name, 0)
    with Cluster(ClientSettings.from_options(settings)) as cluster:
        create_topics(cluster, {name: (1, 1)})
        with Consumer(settings | protocol | {"metadata.max.age.ms": "100"}) as consumer:
            consumer.subscribe([name] if subscribes == "by name" else re.compile(f"{name}|none"))
            poll_until(consumer, lambda _: consumer.assignment == (tp,))
            delete_topics(cluster, [name])
            deadline = time.monotonic() + TIMEOUT_S
            while consumer.assignment:
                assert time.monotonic() < deadline
                with suppress(WireError):  # the topic is gone
                    consumer.poll(100)
            create_topics(cluster, {name: (1, 1)})
            produce(kafka, name, 0, [b"of the new one"])
            assert [r.value for r in records_of(poll_until(consumer, records_of))] == [b"of the new one"]
        delete_topics(cluster, [name])


def has_joined(consumer: Consumer) -> bool:
    try:
        return consumer.group_metadata().member.generation >= 0
    except BrokerError:
        return False


@pytest.mark.parametrize("grows", ["while it is away", "later"])
def test_a_static_leader_that_comes_back_sees_new_partitions(topic: Any, settings: dict[str, str], grows: str) -> None:
    """KIP-814: it skips the assignment, and so it does not know whether that covers all partitions."""
    name = topic(partitions=2)
    static = settings | {
        "group.id": f"group-{name}",
        "group.instance.id": "one",
        "metadata.max.age.ms": "500",
        "heartbeat.interval.ms": "100",
    }

    def partitions(n_partitions: int) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(name, partition) for partition in range(n_partitions))

    with Cluster(ClientSettings.from_options(settings)) as cluster:
        leader = Consumer(static)
        leader.subscribe([name])
        poll_until(leader, lambda _: leader.assignment == partitions(2))
        leader.close(leave=False)
        if grows == "while it is away":
            create_partitions(cluster, {name: 4})
        with Consumer(static) as again:
            again.subscribe([name])
            poll_until(again, lambda _: len(again.assignment) >= 2)
            if grows == "later":
                generation = again.group_metadata().member.generation
                assert again.poll(700) is not None
                assert again.group_metadata().member.generation == generation  # nothing has grown: no rebalance
                create_partitions(cluster, {name: 4})
            poll_until(again, lambda _: again.assignment == partitions(4))


def test_one_string_is_no_list_of_topics(settings: dict[str, str]) -> None:
    with (
        Consumer(settings | {"group.id": "g"}) as consumer,
        pytest.raises(TypeError, match=r"subscribe\(\['orders'\]\)"),
    ):
        consumer.subscribe("orders")


def test_members_agree_on_a_strategy_that_all_of_them_name(kafka: Any, topic: Any, settings: dict[str, str]) -> None:
    """A group on its way from range to cooperative-sticky: one member gives everything up before it joins, the other nothing."""
    name = topic(partitions=4)
    everything = {TopicPartition(name, partition) for partition in range(4)}
    named = settings | {"group.id": f"group-{uuid.uuid4().hex[:12]}", "heartbeat.interval.ms": "100"}
    strategy = "partition.assignment.strategy"
    with (
        Consumer(named | {strategy: "range,cooperative-sticky"}) as both,
        Consumer(named | {strategy: "cooperative-sticky"}) as sticky,
        Consumer(named | {strategy: "roundrobin"}) as other,
    ):
        readers = [Reader(both, [name]), Reader(sticky, [name])]
        readers[0].start()
        await_shares(readers[:1], everything)
        readers[1].start()
        await_shares(readers, everything)
        assert {tp for revoked in readers[0].revoked for tp in revoked} == everything
        other.subscribe([name])
        with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
            poll_until(other, lambda _: False)
        readers[0].end()
        both.close()
        await_shares(readers[1:], everything)
        readers[1].end()
        assert not readers[1].revoked


def test_brokers_have_the_consumer_protocol_or_the_error_says_what_to_do(
    kafka: Any, topic: Any, settings: dict[str, str]
) -> None:
    name = topic()
    named = {"group.id": f"group-{uuid.uuid4().hex[:12]}", "group.protocol": "consumer"}
    with Consumer(settings | named) as consumer:
        consumer.subscribe([name])
        if lacking(["consumer protocol of KIP-848"]):
            with pytest.raises(WireError, match=r"Kafka 4\.0.*group\.protocol=classic"):
                poll_until(consumer, lambda _: False)
        else:
            poll_until(consumer, lambda _: consumer.assignment == (TopicPartition(name, 0),))


@pytest.mark.parametrize("processed", [True, False])
def test_closing_revokes_while_offsets_can_be_committed_and_an_exception_does_not(
    kafka: Any, topic: Any, settings: dict[str, str], protocol: dict[str, str], processed: bool
) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"a", b"b"])
    reader = Consumer(settings | protocol | {"enable.auto.commit": "false"})
    revoked: list[Any] = []

    def commit_one(partitions: Any) -> None:
        revoked.append(partitions)
        reader.commit({tp: 1})

    with suppress(RuntimeError), reader:
        reader.subscribe([name], on_revoked=commit_one)
        poll_until(reader, lambda polled: len(records_of(polled)) == 2)
        if not processed:
            raise RuntimeError("the records were not processed")
    with Consumer(settings | protocol) as seen:
        seen.assign([tp])
        assert (revoked, seen.committed()) == (([(tp,)], {tp: 1}) if processed else ([], {}))


@pytest.mark.parametrize("closes", [True, False])
def test_a_callback_that_fails_or_closes_does_not_keep_a_consumer_open(
    topic: Any, settings: dict[str, str], protocol: dict[str, str], closes: bool
) -> None:
    name = topic()
    reader = Consumer(settings | protocol)

    def on_revoked(_: Any) -> None:
        if not closes:
            raise RuntimeError("the callback fails")
        reader.close()

    reader.subscribe([name], on_revoked=on_revoked)
    poll_until(reader, lambda _: reader.assignment == (TopicPartition(name, 0),))
    with nullcontext() if closes else pytest.raises(RuntimeError, match="the callback fails"):
        reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.poll()
    with Consumer(settings | protocol) as next_member:  # at once, because the first one has left
        next_member.subscribe([name])
        poll_until(next_member, lambda _: next_member.assignment == (TopicPartition(name, 0),))
