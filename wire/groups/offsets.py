"""Offsets that a consumer group has committed: read and written through the group's coordinator.

Owns OffsetCommit and OffsetFetch. A commit without a member (generation -1) is accepted while the group has none, which is
how tools and this project's queries commit; with a member's generation it is the member's own.
https://kafka.apache.org/protocol#The_Messages_OffsetCommit
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pykafka_wire.wire.cluster.cluster import COORDINATION, Cluster, CoordinatorKind, Deadline, partitions_by_topic
from pykafka_wire.wire.errors import BrokerError, broker_error
from pykafka_wire.wire.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pykafka_wire.wire.topics import TopicPartition

#: From version 10 topics go by id, which a group's old topics may not have any more.
_LAST_VERSION_BY_NAME: Final = 9
#: The first OffsetFetch of several groups, and the first that can wait for stable offsets.
_FIRST_BATCHED_VERSION: Final = 8
_FIRST_STABLE_VERSION: Final = 7


class CommittedOffset(NamedTuple):
    """A committed offset: the next one to read, the leader epoch of the last one read (-1 if unknown), a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    deadline: Deadline | None = None,
) -> None:
    """Commit offsets to a group; retried while the coordinator moves or loads.

    Raises:
        BrokerError: an offset was refused; names the first, and how many were.
        DeadlineExceededError: no coordinator answered in time.
    """
    if not offsets:
        return
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=p,
                        committed_offset=offsets[TopicPartition(topic, p)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, p)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, p)].metadata,
                    )
                    for p in numbers
                ],
            )
            for topic, numbers in partitions_by_topic(offsets).items()
        ],
    )

    def codes(response: OffsetCommitResponse) -> Iterable[int]:
        return (p.error_code for topic in response.topics for p in topic.partitions)

    response = cluster.coordinator_request(
        CoordinatorKind.GROUP, group, lambda _: request, codes, deadline=deadline, version_cap=_LAST_VERSION_BY_NAME
    )
    refused = [
        (topic.name, p.partition_index, p.error_code)
        for topic in response.topics
        for p in topic.partitions
        if p.error_code
    ]
    if refused:
        topic_name, partition, code = refused[0]
        raise broker_error(
            code,
            topic=topic_name,
            partition=partition,
            api="OffsetCommit",
            detail=f"Group {group!r}: {len(refused)} of {len(offsets)} offsets were refused.",
        )


def fetch_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """What a group has committed; topic-partitions without a committed offset are left out.

    Args:
        partitions: None for all that the group has.
        require_stable: wait until pending transactions on these offsets have ended (KIP-447).

    Raises:
        BrokerError: the group or a topic may not be read.
        DeadlineExceededError: no coordinator answered in time.
    """
    wanted = None if partitions is None else partitions_by_topic(partitions)

    def build(node: int) -> OffsetFetchRequest:
        def supports(version: int) -> bool:
            return cluster.supports(node, OffsetFetchRequest, version, purpose=COORDINATION, deadline=deadline)

        if supports(_FIRST_BATCHED_VERSION):
            batch = [OffsetFetchRequestTopics(name=t, partition_indexes=ps) for t, ps in (wanted or {}).items()]
            asked = OffsetFetchRequestGroup(group_id=group, topics=None if wanted is None else batch)
            return OffsetFetchRequest(groups=[asked], require_stable=require_stable)
        single = [OffsetFetchRequestTopic(name=t, partition_indexes=ps) for t, ps in (wanted or {}).items()]
        # Before version 7 an offset in a pending transaction cannot be told from a stable one.
        return OffsetFetchRequest(
            group_id=group,
            topics=None if wanted is None else single,
            require_stable=require_stable and supports(_FIRST_STABLE_VERSION),
        )

    def codes(response: OffsetFetchResponse) -> Iterable[int]:
        yield response.error_code
        for answer in response.groups:
            yield answer.error_code
        for _, _, code, _ in _offsets(response):
            yield code

    response = cluster.coordinator_request(
        CoordinatorKind.GROUP, group, build, codes, deadline=deadline, version_cap=_LAST_VERSION_BY_NAME
    )
    group_code = response.error_code or next((answer.error_code for answer in response.groups if answer.error_code), 0)
    if group_code:
        raise _refused(group_code, group)
    found = {}
    for topic, partition, code, committed in _offsets(response):
        if code:
            raise _refused(code, group, topic, partition)
        if committed.offset >= 0:
            found[TopicPartition(topic, partition)] = committed
    return found


def _offsets(response: OffsetFetchResponse) -> Iterable[tuple[str, int, int, CommittedOffset]]:
    for answer in response.groups:  # version 8 and newer
        for topics in answer.topics:
            for p in topics.partitions:
                committed = CommittedOffset(p.committed_offset, p.committed_leader_epoch, p.metadata or "")
                yield topics.name, p.partition_index, p.error_code, committed
    for topic in response.topics:  # up to version 7
        for q in topic.partitions:
            committed = CommittedOffset(q.committed_offset, q.committed_leader_epoch, q.metadata or "")
            yield topic.name, q.partition_index, q.error_code, committed


def _refused(code: int, group: str, topic: str | None = None, partition: int | None = None) -> BrokerError:
    return broker_error(code, topic=topic, partition=partition, api="OffsetFetch", detail=f"(group {group!r})")
