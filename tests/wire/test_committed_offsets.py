"""Committed offsets, on a real broker, and in the form that old coordinators know."""

from __future__ import annotations

import uuid
from typing import Any

import confluent_kafka
import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import Group, describe_group
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import BrokerError, DeadlineExceededError, ProtocolError, UnknownTopicError
from pykafka_wire.wire.groups.committed_offsets import (
    CommittedOffset,
    commit_in_portions,
    commit_offsets,
    fetch_offsets,
)
from pykafka_wire.wire.groups.membership import MemberIdentity
from pykafka_wire.wire.protocol.messages.group import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pykafka_wire.wire.protocol.messages.handshake import ApiVersionsRequest
from pykafka_wire.wire.protocol.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from pykafka_wire.wire.transactions.transaction import Transaction
from tests.wire.fake_broker import VERSIONS, FakeBroker, versions_response
from tests.wire.fake_coordinator import offsets_coordinator

T0 = TopicPartition("t", 0)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.mark.broker
def test_what_is_committed_is_fetched_and_seen_by_others(kafka: Any, topic: Any, cluster: Cluster, group: str) -> None:
    name = topic(partitions=3)
    zero, one, two = (TopicPartition(name, partition) for partition in range(3))
    committed = {zero: CommittedOffset(5, 2, "a note"), one: CommittedOffset(0)}
    commit_offsets(cluster, group, committed)
    assert fetch_offsets(cluster, group, [zero, one, two]) == committed
    assert fetch_offsets(cluster, group, None) == committed
    assert fetch_offsets(cluster, group, [two], require_stable=True) == {}
    assert fetch_offsets(cluster, group, []) == {}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    seen = consumer.committed([confluent_kafka.TopicPartition(name, p) for p in range(3)], timeout=30)
    consumer.close()
    assert [each.offset for each in seen] == [5, 0, confluent_kafka.OFFSET_INVALID]
    assert (seen[0].metadata, seen[0].leader_epoch) == ("a note", 2)


@pytest.mark.broker
def test_what_others_commit_is_fetched(kafka: Any, topic: Any, cluster: Cluster, group: str) -> None:
    name = topic()
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 42)], asynchronous=False)
    consumer.close()
    tp = TopicPartition(name, 0)
    assert fetch_offsets(cluster, group, [tp])[tp].offset == 42


@pytest.mark.broker
def test_a_group_that_never_was_has_committed_nothing(cluster: Cluster, group: str) -> None:
    assert fetch_offsets(cluster, group, None) == {}


@pytest.mark.broker
def test_nothing_to_commit_sends_no_request(group: str) -> None:
    with Cluster(ClientSettings(bootstrap_servers=(("no-such-host.invalid", 9092),))) as cluster:
        commit_offsets(cluster, group, {})


@pytest.mark.broker
def test_a_commit_with_a_member_that_is_not_there_is_refused(topic: Any, cluster: Cluster, group: str) -> None:
    offsets = {TopicPartition(topic(), 0): CommittedOffset(1)}
    with pytest.raises(BrokerError) as raised:
        commit_offsets(cluster, group, offsets, member=MemberIdentity(generation=3, member_id="nobody"))
    assert raised.value.name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "GROUP_ID_NOT_FOUND")
    assert "1 of 1 offsets were refused" in raised.value.detail


@pytest.mark.broker
def test_a_commit_for_a_topic_that_is_not_there_names_it(topic: Any, cluster: Cluster, group: str) -> None:
    offsets = {TopicPartition(topic(), 0): CommittedOffset(1), TopicPartition("never-was", 3): CommittedOffset(1)}
    with pytest.raises(UnknownTopicError, match="1 of 2 offsets were refused") as raised:
        commit_offsets(cluster, group, offsets)
    assert (raised.value.topic, raised.value.partition) == ("never-was", 3)


@pytest.mark.broker
def test_stable_offsets_are_waited_for_until_the_deadline(kafka: Any, topic: Any, cluster: Cluster, group: str) -> None:
    """KIP-447: an offset in an open transaction is not one to start from."""
    name = topic()
    tp = TopicPartition(name, 0)
    commit_offsets(cluster, group, {tp: CommittedOffset(1)})
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    consumer = confluent_kafka.Consumer({**servers, "group.id": group})
    producer = confluent_kafka.Producer({**servers, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    pending = [confluent_kafka.TopicPartition(name, 0, 2)]
    producer.send_offsets_to_transaction(pending, consumer.consumer_group_metadata(), 30)
    assert fetch_offsets(cluster, group, [tp])[tp].offset == 1
    with pytest.raises(DeadlineExceededError, match="UNSTABLE_OFFSET_COMMIT"):
        fetch_offsets(cluster, group, [tp], require_stable=True, deadline=Deadline.after_ms(500))
    producer.commit_transaction(30)
    consumer.close()
    assert fetch_offsets(cluster, group, [tp], require_stable=True)[tp].offset == 2


@pytest.mark.broker
def test_more_offsets_than_one_batch_holds_are_committed_in_portions(topic: Any, cluster: Cluster, group: str) -> None:
    """A commit is one batch of __consumer_offsets, and 1 MiB is what a broker accepts by default."""
    name = topic(partitions=280)
    committed = {TopicPartition(name, partition): CommittedOffset(partition, 2, "x" * 4000) for partition in range(280)}
    commit_offsets(cluster, group, committed)
    assert fetch_offsets(cluster, group, None) == committed
    assert fetch_offsets(cluster, group, committed) == committed


@pytest.mark.broker
def test_a_portion_that_is_too_large_for_the_coordinator_is_halved(topic: Any, kafka_cluster: Any, group: str) -> None:
    brokers = kafka_cluster(properties={"message.max.bytes": "20000"})
    name = topic(partitions=30, cluster=brokers)
    committed = {TopicPartition(name, partition): CommittedOffset(partition, 2, "x" * 1500) for partition in range(30)}
    with Cluster(ClientSettings.from_options({"bootstrap.servers": brokers.bootstrap_servers})) as cluster:
        commit_offsets(cluster, group, committed)
        assert fetch_offsets(cluster, group, None) == committed

        with Transaction.begin(cluster, group) as transaction:
            later = {tp: CommittedOffset(each.offset + 1, 2, each.metadata) for tp, each in committed.items()}
            transaction.commit_offsets(group, later)
            transaction.commit()
        assert fetch_offsets(cluster, group, None, require_stable=True) == later

        with pytest.raises(BrokerError, match="1 of 1 offsets were refused"):  # longer than a broker lets metadata be
            commit_offsets(cluster, group, {TopicPartition(name, 0): CommittedOffset(1, 2, "x" * 5000)})


def refuse(code: int) -> Any:
    """Sends nothing, and refuses every offset; remembers how many each portion had."""

    def commit(portion: Any) -> Any:
        commit.portions.append(len(portion))
        return dict.fromkeys(portion, code)

    commit.portions = []
    return commit


@pytest.mark.parametrize(
    ("code", "portions"), [(22, [131]), (29, [131, 131, 38]), (28, [131, 65, 32, 16, 8, 4, 2, *[1] * 300])]
)
def test_what_is_refused_for_the_whole_group_ends_a_commit(code: int, portions: list[int]) -> None:
    offsets = {TopicPartition("t", partition): CommittedOffset(1, 2, "x" * 3913) for partition in range(300)}
    commit = refuse(code)
    with pytest.raises(BrokerError, match=f"of 300 offsets were refused{'' if code != 22 else ', 169 were not sent'}"):
        commit_in_portions("group", offsets, commit, api="OffsetCommit")
    assert commit.portions == portions


def unknown_group(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """GROUP_ID_NOT_FOUND where an OffsetFetch response has room for it in this version."""
    if version >= 8:
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=69)])
    if version >= 2:
        return OffsetFetchResponse(error_code=69, topics=[])
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=-1, metadata="", error_code=69)
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])


@pytest.mark.parametrize("highest", [1, 7, 9])
def test_a_group_that_the_broker_does_not_know_has_committed_nothing(highest: int) -> None:
    with offsets_coordinator(highest, unknown_group) as (_, cluster):
        assert fetch_offsets(cluster, "g", [T0], require_stable=True) == {}


@pytest.mark.parametrize(("groups", "responded"), [([], "no group"), (["h"], "'h'"), (["g", "h"], "'g', 'h'")])
def test_a_response_without_the_group_is_an_error_and_not_no_offsets(groups: list[str], responded: str) -> None:
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=each, topics=[]) for each in groups])
    for partitions in ([T0], None):
        with (
            offsets_coordinator(9, lambda request, version: response) as (_, cluster),
            pytest.raises(ProtocolError, match=f"for group 'g' has the offsets of {responded}"),
        ):
            fetch_offsets(cluster, "g", partitions)


def test_a_group_that_the_broker_does_not_know_is_dead() -> None:
    with FakeBroker(1) as foreign:
        foreign.speak({15: (0, 5), 10: (0, 2)})
        foreign.on[DescribeGroupsRequest] = lambda request, version: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="g", error_code=69)]
        )
        foreign.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=foreign.port
        )
        with Cluster(ClientSettings(bootstrap_servers=(("127.0.0.1", foreign.port),))) as cluster:
            assert describe_group(cluster, "g") == Group(state="Dead", members=[], operations=None)


@pytest.mark.parametrize("highest", [5, 7])
def test_an_old_coordinator_is_asked_in_the_form_that_it_knows(highest: int) -> None:
    with FakeBroker(1) as old:
        response = OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name="t",
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=0, committed_offset=7, committed_leader_epoch=3, metadata=None
                        )
                    ],
                )
            ]
        )
        versions = {**VERSIONS, 9: (1, highest), 10: (0, 2)}
        old.on[ApiVersionsRequest] = lambda request, version: versions_response(versions)
        old.on[OffsetFetchRequest] = lambda request, version: response
        old.on[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(
            node_id=1, host="127.0.0.1", port=old.port
        )
        with Cluster(ClientSettings(bootstrap_servers=(("127.0.0.1", old.port),))) as cluster:
            found = fetch_offsets(cluster, "g", [T0], require_stable=True)
        assert found == {T0: CommittedOffset(7, 3, "")}
        (asked,) = (each for each in old.requests if isinstance(each, OffsetFetchRequest))
        assert asked.group_id == "g"
        assert asked.require_stable is (highest >= 7)


@pytest.mark.parametrize("api", ["OffsetCommit", "TxnOffsetCommit"])
def test_an_offset_that_a_response_leaves_out_is_not_committed(api: str) -> None:
    offsets = {TopicPartition("t", partition): CommittedOffset(1) for partition in range(3)}
    with pytest.raises(ProtocolError, match="leaves out") as raised:
        commit_in_portions("g", offsets, lambda portion: dict.fromkeys(list(portion)[:2], 0), api=api)
    assert (raised.value.topic, raised.value.partition, raised.value.api) == ("t", 2, api)


@pytest.mark.parametrize("highest", [7, 9])
def test_a_partition_that_a_response_leaves_out_is_an_error_and_not_no_offset(highest: int) -> None:
    """A query that took it for "nothing committed" would start somewhere else."""

    def response(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        if version >= 8:
            partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="")
            topic = OffsetFetchResponseTopics(name="t", partitions=[partition])
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
        old = OffsetFetchResponsePartition(partition_index=0, committed_offset=7, metadata="")
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[old])])

    with offsets_coordinator(highest, response) as (_, cluster):
        assert fetch_offsets(cluster, "g", [T0]) == {T0: CommittedOffset(7)}
        with pytest.raises(ProtocolError, match="leaves out") as raised:
            fetch_offsets(cluster, "g", [T0, TopicPartition("t", 1)])
        assert (raised.value.topic, raised.value.partition) == ("t", 1)
