"""Members of groups on real brokers: their coordinator dies under them, or another one takes their place."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pykafka_wire.local import LocalCluster
from pykafka_wire.wire import ClientSettings, Consumer, TopicPartition
from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError
from pykafka_wire.wire.groups.classic.membership import ClassicMembership, GroupMember, member_state_machine
from pykafka_wire.wire.groups.membership import TopicSubscription
from tests.wire.conftest import await_in_sync
from tests.wire.pace import paused
from tests.wire.test_consumer import Reader, await_shares, produce

pytestmark = pytest.mark.broker

TIMEOUT_S = 60.0


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param({"heartbeat.interval.ms": "200"}, id="classic"),
        pytest.param(
            {"group.protocol": "consumer"}, id="consumer", marks=pytest.mark.needs("consumer protocol of KIP-848")
        ),
    ],
)
def test_a_group_outlives_its_coordinator(
    two_brokers: LocalCluster, place_topic: Any, group: str, protocol: dict[str, str]
) -> None:
    name = f"topic-of-{group}"
    place_topic(two_brokers, name, {0: [1, 2], 1: [2, 1]})
    options = {
        "bootstrap.servers": two_brokers.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        **protocol,
    }
    with Cluster(ClientSettings.from_options(options)) as cluster:
        coordinator = cluster.coordinator(CoordinatorKind.GROUP, group)
    everything = {TopicPartition(name, 0), TopicPartition(name, 1)}
    with Consumer(options) as one, Consumer(options) as two:
        readers = [Reader(one, [name]), Reader(two, [name])]
        for reader in readers:
            reader.start()
        await_shares(readers, everything)
        await_in_sync(two_brokers, "__consumer_offsets")  # the other broker can take over then
        two_brokers.nodes[coordinator - 1].kill()
        for partition in (0, 1):
            produce(two_brokers, name, partition, [b"%d" % number for number in range(5)])
        deadline = time.monotonic() + TIMEOUT_S
        # Committed by the members of a group: its new coordinator knows them, the place of each was kept or won anew.
        while one.committed(everything) != dict.fromkeys(everything, 5):
            assert [reader.error for reader in readers] == [None, None]
            assert time.monotonic() < deadline, one.committed(everything)
            time.sleep(0.1)
        await_shares(readers, everything)
        for reader in readers:
            reader.end()
        read = {(record.partition, record.offset) for reader in readers for record in reader.records}
        assert read == {(partition, offset) for partition in (0, 1) for offset in range(5)}


@pytest.fixture
def member(kafka: Any, topic: Any, group: str) -> Iterator[Callable[..., ClassicMembership]]:
    """Members of one group, of one instance id, that have joined."""
    name = topic()
    opened: list[tuple[Cluster, ClassicMembership]] = []

    def join() -> ClassicMembership:
        options = {"bootstrap.servers": kafka.bootstrap_servers, "heartbeat.interval.ms": "500"}
        settings = ClientSettings.from_options(options | {"group.instance.id": "twin"})
        cluster, state_machine = Cluster(settings), member_state_machine(settings, group, (name,))
        opened.append((cluster, ClassicMembership(GroupMember(cluster, state_machine), settings, rejoins=True)))
        opened[-1][1].request_join()
        assert opened[-1][1].wait_until_stable(Deadline.after_ms(TIMEOUT_S * 1000))
        return opened[-1][1]

    yield join
    for cluster, live in opened:
        live.close()
        cluster.close()


def test_a_member_whose_place_another_one_took_stops_and_reports_it(kafka: Any, member: Any, group: str) -> None:
    """By its instance id, as a second process with the same settings does."""
    first, second = member(), member()
    deadline = time.monotonic() + TIMEOUT_S
    while first.error is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(BrokerError, match=f"FENCED_INSTANCE_ID.*{group}"):
        first.wait_until_stable(Deadline.after_ms(0))
    first.close()  # gives up nothing that is the other's by now
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert [each.member_id for each in described.members] == [second.state_machine.identity.member_id]


def test_a_member_that_waits_for_metadata_ends_as_soon_as_it_is_closed(kafka: Any, topic: Any, group: str) -> None:
    settings = ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers, "group.instance.id": "one"})
    pattern = re.compile(re.escape(topic()))
    machine = member_state_machine(settings, group, ())
    with Cluster(settings) as cluster:
        member = GroupMember(cluster, machine, subscription=TopicSubscription(pattern=pattern))
        live = ClassicMembership(member, settings)
        live.request_join()
        assert live.wait_until_stable(Deadline.after_ms(TIMEOUT_S * 1000))
        with paused(kafka, kafka.nodes[0].node_id):
            sent = cluster.counters.totals().requests
            machine.rejoin()
            live.request_join()
            deadline = time.monotonic() + TIMEOUT_S
            while cluster.counters.totals().requests == sent:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            started = time.monotonic()
            live.close(leave=False)
            assert time.monotonic() - started < 3
