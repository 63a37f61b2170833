"""A consumer whose topic is deleted and recreated under its name: positions in the old topic are never used in the new one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykafka_wire.wire import EARLIEST, ClientSettings, Consumer, TopicPartition
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import create_topics, delete_topics
from pykafka_wire.wire.errors import BrokerError, TopicRecreatedError
from pykafka_wire.wire.protocol.messages.fetch import FetchRequest
from pykafka_wire.wire.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.wire.fake_coordinator import TOPIC_ID, ConsumerGroupCoordinator, end_early
from tests.wire.fake_fetch import response
from tests.wire.test_consumer import TIMEOUT_S, ends_of, members, poll_until, produce, records_of
from tests.wire.test_kip848_membership import T0, T1, Member, commit_response, committed

OLD = [b"old %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(8)]


@pytest.fixture
def consumer(kafka: Any) -> Iterator[Callable[..., Consumer]]:
    """`consumer(**settings)`: one of a group of its own, closed in the end."""
    yield from members(kafka.bootstrap_servers, f"group-{uuid.uuid4().hex[:12]}", {})


def recreate(kafka: Any, name: str) -> None:
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        delete_topics(cluster, [name])
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                create_topics(cluster, {name: (1, 1)})
                break
            except BrokerError:  # the old one is still on its way out
                assert time.monotonic() < deadline
                time.sleep(0.05)


@pytest.mark.broker
@pytest.mark.needs("consumer protocol of KIP-848")
@pytest.mark.parametrize("pauses", [False, True])
def test_the_group_revokes_the_old_topic_and_the_new_one_is_read_from_its_start(
    kafka: Any, topic: Any, consumer: Any, pauses: bool
) -> None:
    """A paused partition is not fetched, so that the group's coordinator alone says that the topic is another one."""
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, OLD)
    member, events = consumer(group_protocol="consumer", enable_auto_commit="true", auto_commit_interval_ms="50"), []
    member.subscribe(
        [name], on_assigned=lambda _: events.append("assigned"), on_revoked=lambda _: events.append("revoked")
    )
    assert [record.value for record in records_of(poll_until(member, ends_of))] == OLD
    poll_until(member, lambda _: member.committed() == {tp: len(OLD)})
    if pauses:
        member.pause([tp])
        member.seek(tp, len(OLD) - 1)  # a position that the next poll commits
    recreate(kafka, name)
    produce(kafka, name, 0, NEW)
    polled = poll_until(member, lambda polled: len(records_of(polled)) >= len(NEW))
    assert [record.value for record in records_of(polled)] == NEW
    assert events == ["assigned", "revoked", "assigned"]
    poll_until(member, lambda _: member.committed() == {tp: len(NEW)})


@pytest.mark.broker
@pytest.mark.needs("topic ids")
def test_without_the_groups_word_each_poll_fails_until_a_seek(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, OLD)
    reader = consumer()
    reader.assign([tp])
    poll_until(reader, ends_of)
    recreate(kafka, name)
    produce(kafka, name, 0, NEW)
    for _ in range(2):
        with pytest.raises(TopicRecreatedError, match="Seek to where"):
            poll_until(reader, lambda _: False)
        reader.after_transaction(False)  # goes back in the old topic
    reader.seek(tp, EARLIEST)
    assert [record.value for record in records_of(poll_until(reader, ends_of))] == NEW


@pytest.fixture
def coordinator() -> Iterator[ConsumerGroupCoordinator]:
    with ConsumerGroupCoordinator() as broker:
        broker.on[FetchRequest] = lambda request, _: response(request, records=memoryview(b""))
        broker.on[OffsetFetchRequest] = lambda request, _: committed(request)
        broker.on[OffsetCommitRequest] = lambda request, _: commit_response(request)
        yield broker


def test_both_topics_in_one_assignment_are_distinguished_by_their_ids(coordinator: ConsumerGroupCoordinator) -> None:
    """The consumer commits nothing for the old topic, and looks up the group's offset for the new one."""
    member = Member(coordinator)
    consumer, events = member.consumer, member.events

    def on_revoked(partitions: tuple[TopicPartition, ...]) -> None:
        events.append(("revoked", partitions))
        consumer.commit()
        with pytest.raises(TopicRecreatedError):
            consumer.seek(T0, 0)

    consumer.subscribe(
        ["t"], on_assigned=lambda partitions: events.append(("assigned", partitions)), on_revoked=on_revoked
    )
    coordinator.assigned = [0, 1]
    member.own(T0, T1)
    assert consumer.position(T0) == 5
    n_looked_up = coordinator.count(OffsetFetchRequest)
    coordinator.topic_ids["t"] = uuid.UUID(int=TOPIC_ID.int + 1)
    coordinator.assigned = [1]
    member.poll_until(lambda: len(events) == 3)
    assert events == [("assigned", (T0, T1)), ("revoked", (T0, T1)), ("assigned", (T1,))]
    assert coordinator.count(OffsetCommitRequest) == 0
    assert consumer.position(T1) == 5
    assert coordinator.count(OffsetFetchRequest) > n_looked_up
    end_early(consumer)
