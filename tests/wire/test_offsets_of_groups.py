"""Committed offsets of many groups: a request for each coordinator, not for each group."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.describe import ListedGroup, list_groups
from pykafka_wire.wire.groups.committed_offsets import CommittedOffset, commit_offsets, fetch_offsets_of_groups
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition
from tests.wire.fake_coordinator import offsets_coordinator

T0 = TopicPartition("t", 0)


def listed(name: str) -> ListedGroup:
    return ListedGroup(name=name, protocol_type="consumer", state="Empty", kind="Classic", coordinator=1)


@pytest.mark.broker
@pytest.mark.needs("several groups in one OffsetFetch")
def test_the_number_of_requests_does_not_grow_with_the_groups(kafka: Any, topic: Any) -> None:
    tp, suffix = TopicPartition(topic(), 0), uuid.uuid4().hex[:8]
    committed = {f"group-{number}-{suffix}": {tp: CommittedOffset(number)} for number in range(20)}
    settings = ClientSettings.from_options({"bootstrap.servers": kafka.bootstrap_servers})
    with Cluster(settings) as cluster:
        for name, offsets in committed.items():
            commit_offsets(cluster, name, offsets)
    with Cluster(settings) as cluster:
        groups = [group for group in list_groups(cluster) if group.name in committed]
        n_requests = []
        for some in (groups[:1], groups):
            before = cluster.counters.totals()
            found = fetch_offsets_of_groups(cluster, some)
            n_requests.append(cluster.counters.totals().since(before).requests)
    assert found == committed
    assert n_requests == [1, 1]


def test_a_group_that_has_moved_is_asked_for_again_and_one_that_is_refused_is_left_out() -> None:
    refused = {"moved": 16, "forbidden": 30, "unknown": 69}
    partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="", error_code=0)
    forbidden = OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, metadata="", error_code=29)

    def of_group(name: str) -> OffsetFetchResponseGroup:
        code = refused.get(name, 0)
        partitions = [partition, forbidden] if name == "forbidden topic" else [partition]
        topics = [] if code else [OffsetFetchResponseTopics(name="t", partitions=partitions)]
        return OffsetFetchResponseGroup(group_id=name, topics=topics, error_code=code)

    def response(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        names = [group.group_id for group in request.groups]
        if len(names) == 1:
            del refused["moved"]
        return OffsetFetchResponse(groups=[of_group(name) for name in names])

    with offsets_coordinator(9, response) as (fake, cluster):
        names = ["there", "moved", "forbidden", "unknown", "forbidden topic"]
        found = fetch_offsets_of_groups(cluster, map(listed, names))
        assert fake.count(OffsetFetchRequest) == 2
    there = {T0: CommittedOffset(7)}
    assert found == {"there": there, "moved": there, "unknown": {}}


def test_an_old_coordinator_is_asked_group_by_group() -> None:
    def response(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        offset = OffsetFetchResponsePartition(partition_index=0, committed_offset=int(request.group_id), metadata=None)
        if request.group_id == "3":
            return OffsetFetchResponse(error_code=30, topics=[])
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[offset])])

    with offsets_coordinator(7, response) as (_, cluster):
        found = fetch_offsets_of_groups(cluster, map(listed, ["1", "2", "3"]))
    assert found == {"1": {T0: CommittedOffset(1)}, "2": {T0: CommittedOffset(2)}}
