"""Consumers in groups of the consumer protocol (KIP-848) on a real broker: hand-overs, epochs, static members and refusals."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pykafka_wire.wire import ClientSettings, Consumer, SubscriptionPattern, TopicPartition
from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.describe import describe_group
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.groups.kip848.membership import ConsumerMembership
from pykafka_wire.wire.groups.membership import MemberIdentity
from pykafka_wire.wire.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from tests.wire.test_consumer import Reader, await_shares, ends_of, members, poll_until, produce, records_of

pytestmark = [pytest.mark.broker, pytest.mark.needs("consumer protocol of KIP-848")]


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def consumer(kafka: Any, group: str) -> Iterator[Callable[..., Consumer]]:
    """`consumer(**settings)`: one of group `group`, closed in the end."""
    yield from members(kafka.bootstrap_servers, group, {"group.protocol": "consumer"})


def membership_of(consumer: Consumer) -> ConsumerMembership:
    assert isinstance(consumer._membership, ConsumerMembership)
    return consumer._membership


def leave_for(kafka: Any, group: str, member_id: str) -> None:
    """Leave the group in a member's place."""
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
    with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        response = cluster.by_coordinator(CoordinatorKind.GROUP, {group: request})[group]
    assert response.error_code == 0


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_partitions_and_give_up_no_more_than_they_must(
    kafka: Any, topic: Any, consumer: Any, assignor: str
) -> None:
    name = topic(partitions=4)
    everything = {TopicPartition(name, partition) for partition in range(4)}
    one, two = (Reader(consumer(group_remote_assignor=assignor), [name]) for _ in range(2))
    one.start()
    await_shares([one], everything)
    two.start()
    await_shares([one, two], everything)
    assert [set(revoked) for revoked in one.revoked] == [everything - set(one.consumer.assignment)]
    for partition in range(4):
        produce(kafka, name, partition, [b"%d" % number for number in range(5)])
    two.end()
    two.consumer.close()
    await_shares([one], everything)
    poll_until_read(one, two, n_records=20)
    one.end()
    read = [(record.partition, record.offset) for record in one.records + two.records]
    assert len(read) == len(set(read)) == 20


def poll_until_read(*readers: Reader, n_records: int) -> None:
    deadline = threading.Event()
    for _ in range(600):
        if len({(r.partition, r.offset) for reader in readers for r in reader.records}) >= n_records:
            return
        deadline.wait(0.1)
    raise AssertionError([reader.records for reader in readers])


def test_a_commit_under_a_stale_epoch_is_sent_again_under_the_members_present_one(
    topic: Any, consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a heartbeat's response brings another epoch after the commit was begun. Kafka 4.3 accepts epochs since the
    partition's assignment (KIP-1251); epoch 0 is always too old."""
    name = topic()
    tp = TopicPartition(name, 0)
    member = consumer()
    member.subscribe([name])
    poll_until(member, ends_of)
    membership = membership_of(member)
    stale = replace(membership.identity, generation=0)
    refused: list[MemberIdentity] = []
    renew = membership.newer_identity
    monkeypatch.setattr(member._commits, "_member", lambda: stale)
    monkeypatch.setattr(
        membership, "newer_identity", lambda identity, until: refused.append(identity) or renew(identity, until)
    )
    member.commit({tp: 0})
    assert refused == [stale]
    assert member.committed() == {tp: 0}


@pytest.mark.parametrize("code", ["UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"])
def test_a_member_that_lost_its_place_comes_back_and_reads_on_from_the_committed_offset(
    kafka: Any, topic: Any, consumer: Any, group: str, code: str, caplog: Any
) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    produce(kafka, name, 0, [b"a", b"b"])
    member, revoked = consumer(), []
    member.subscribe([name], on_revoked=revoked.append)
    assert len(records_of(poll_until(member, ends_of))) == 2
    member.commit({tp: 1})
    machine = membership_of(member).state_machine
    if code == "UNKNOWN_MEMBER_ID":
        leave_for(kafka, group, machine.identity.member_id)
    else:
        machine.identity = replace(machine.identity, generation=machine.identity.generation + 5)
    polled = poll_until(member, ends_of)
    assert [record.value for record in records_of(polled)] == [b"b"]
    assert revoked == [(tp,)]
    assert f"error {25 if code == 'UNKNOWN_MEMBER_ID' else 110}" in caplog.text


def test_a_member_that_does_not_poll_leaves_until_it_does(kafka: Any, topic: Any, consumer: Any) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    stuck = consumer(max_poll_interval_ms="500")
    stuck.subscribe([name])
    poll_until(stuck, lambda _: stuck.assignment == (tp,))
    other = Reader(consumer(), [name])
    other.start()
    await_shares([other], {tp})
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        stuck.commit({tp: 0})
    other.end()
    other.consumer.close()
    poll_until(stuck, ends_of)
    assert stuck.assignment == (tp,)


def test_a_static_member_comes_back_to_its_partitions_and_excludes_its_double(
    kafka: Any, topic: Any, consumer: Any, group: str
) -> None:
    name = topic(partitions=2)
    other = Reader(consumer(group_instance_id="b"), [name])
    other.start()
    first = consumer(group_instance_id="a")
    first.subscribe([name])
    poll_until(first, lambda _: len(first.assignment) == 1 and len(other.consumer.assignment) == 1)
    mine, revoked = first.assignment, list(other.revoked)
    double = consumer(group_instance_id="a")
    double.subscribe([name])
    with pytest.raises(BrokerError, match=r"UNRELEASED_INSTANCE_ID.*session has timed out"):
        poll_until(double, lambda _: False)
    first.close(leave=False)
    again = consumer(group_instance_id="a")
    again.subscribe([name])
    poll_until(again, lambda _: again.assignment == mine)
    other.end()
    assert other.revoked == revoked


def test_closing_while_the_first_join_is_on_its_way_leaves_no_member(
    kafka: Any, topic: Any, consumer: Any, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    for _ in range(4):
        member, joins = consumer(), threading.Event()
        member.subscribe([name])
        machine = membership_of(member).state_machine
        build = machine.heartbeat_request
        monkeypatch.setattr(machine, "heartbeat_request", lambda: (joins.set(), build())[1])  # noqa: B023
        member.poll(0)
        assert joins.wait(30)
        member.close()
        with Cluster(ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
            assert describe_group(cluster, group).members == []


def test_the_coordinator_matches_a_pattern(topic: Any, consumer: Any) -> None:
    first, second = topic(), topic()
    reader = consumer()
    reader.subscribe(SubscriptionPattern(f"{re.escape(first)}|{second}-none"))
    poll_until(reader, lambda _: reader.assignment == (TopicPartition(first, 0),))


@pytest.mark.parametrize(
    ("topics", "settings", "error"),
    [
        (["t"], {"group_remote_assignor": "nearest"}, r"UNSUPPORTED_ASSIGNOR.*group\.remote\.assignor"),
        (SubscriptionPattern("(t"), {}, r"INVALID_REGULAR_EXPRESSION.*RE2"),
    ],
)
def test_what_the_coordinator_refuses_is_an_error_with_the_remedy(
    consumer: Any, topics: Any, settings: dict[str, str], error: str
) -> None:
    reader = consumer(**settings)
    reader.subscribe(topics)
    with pytest.raises(BrokerError, match=error):
        poll_until(reader, lambda _: False)


def test_a_group_goes_over_from_the_classic_protocol_member_by_member(
    kafka: Any, topic: Any, consumer: Any, group: str
) -> None:
    """Brokers convert the group with its first member of the new protocol, and serve both kinds (KIP-848, "upgrade")."""
    name = topic(partitions=2)
    both = {TopicPartition(name, 0), TopicPartition(name, 1)}
    produce(kafka, name, 0, [b"a"])
    classic = Reader(consumer(group_protocol="classic", heartbeat_interval_ms="100"), [name])
    classic.start()
    await_shares([classic], both)
    new = Reader(consumer(), [name])
    new.start()
    await_shares([classic, new], both)
    classic.end()
    classic.consumer.close()
    await_shares([new], both)
    new.end()
    assert len(classic.records + new.records) == 1
