"""Committed offsets of consumer groups: commits them, and fetches them, through the group's coordinator.

Owns OffsetCommit and OffsetFetch; an overview of many groups takes a request for each coordinator (KIP-709). The coordinator
accepts a commit without a member (generation -1) while the group has no members: tools and this project's queries commit so. A
member commits under its generation. https://kafka.apache.org/protocol#The_Messages_OffsetCommit
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from pykafka_wire.wire.cluster import Cluster, CoordinatorKind
from pykafka_wire.wire.cluster.describe import ListedGroup
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode, error_info
from pykafka_wire.wire.errors import BrokerError, ProtocolError, broker_error
from pykafka_wire.wire.groups.membership import NO_MEMBER, MemberIdentity
from pykafka_wire.wire.protocol.message import ByVersion
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
    OffsetFetchResponseGroup,
)
from pykafka_wire.wire.protocol.messages.transactions import TxnOffsetCommitResponse
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition, group_by_topic, partitions_by_topic

logger = logging.getLogger(__name__)

#: From version 10 on requests name topics by id; a group may have offsets of topics that exist no more.
_LAST_VERSION_BY_NAME: Final = 9
#: The first OffsetFetch of several groups, and the first that can wait for stable offsets.
_FIRST_BATCHED_VERSION: Final = 8
_FIRST_STABLE_VERSION: Final = 7

_NO_IDS: Final[Mapping[TopicPartition, uuid.UUID]] = MappingProxyType({})

#: A response without an error. Brokers that are not Apache's return the second for a group that has committed nothing yet;
#: Apache's return offsets of -1.
_NO_ERROR: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})
#: A request's size as a batch of ``__consumer_offsets``: half of what brokers accept by default (message.max.bytes, 1 MiB).
_PORTION_BYTES: Final = 512 * 1024
#: The size of one offset there, without its texts: some 40 bytes of fields and at most 25 of record header; rounded up.
_RECORD_BYTES: Final = 80
#: A commit is too large. The coordinators of Kafka 4.0 and newer return the last.
_TOO_LARGE: Final = frozenset(
    {
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
#: What concerns single offsets. The last does for an offset that is alone in its request.
_OF_ONE_OFFSET: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
#: Groups of one request: their offsets are in one response. At 1,000 partitions a group it has some 50 MB.
_MAX_GROUPS: Final = 1_000


class CommittedOffset(NamedTuple):
    """A committed offset: the next offset to read, the leader epoch of the last record read (-1 if unknown), and metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Offsets = Mapping[TopicPartition, CommittedOffset]
StructT = TypeVar("StructT")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A group, and its member that commits in a transaction, so that the group's coordinator fences zombies (KIP-447); only the
    name for a commit from outside, which fences no member."""

    group: str
    member: MemberIdentity = NO_MEMBER
    #: The topics that the member has read, as for :func:`commit_offsets`.
    topic_ids: Mapping[TopicPartition, uuid.UUID] = field(default_factory=dict, compare=False)


class CommittedTopics:
    """How a commit names its topics: by id where all ids are known, so that no offset is committed to a later topic of the same
    name; by name otherwise. For OffsetCommit and TxnOffsetCommit, whose responses are alike."""

    def __init__(self, partitions: Collection[TopicPartition], ids: Mapping[TopicPartition, uuid.UUID]) -> None:
        self.are_ids_known = all(tp in ids for tp in partitions)
        self._ids = {tp.topic: ids[tp] for tp in partitions if tp in ids}
        self._names = {topic_id: topic for topic, topic_id in self._ids.items()}

    def of_request(
        self, offsets: Offsets, topic: Callable[..., StructT], partition: Callable[..., object]
    ) -> list[StructT]:
        """Return a request's structures for these offsets, which `topic` and `partition` make."""
        return [
            topic(
                name=name,
                topic_id=self._ids.get(name, ZERO_UUID),
                partitions=[
                    partition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in of_topic
                ],
            )
            for name, of_topic in group_by_topic(offsets).items()
        ]

    def codes(self, response: OffsetCommitResponse | TxnOffsetCommitResponse) -> Iterable[int]:
        """Return the error codes, among them those after which another try may succeed."""
        # A coordinator knows the ids that it has assigned: where they were sent, another try would not help.
        final = ErrorCode.UNKNOWN_TOPIC_ID if self.are_ids_known else None
        return (code for code in response.error_codes() if code != final)

    def results(self, response: OffsetCommitResponse | TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
        """Return the error code of each topic-partition of a response."""
        return {
            TopicPartition(topic.name or self._names[topic.topic_id], p.partition_index): p.error_code
            for topic in response.topics
            if topic.name or topic.topic_id in self._names
            for p in topic.partitions
        }


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member: MemberIdentity = NO_MEMBER,
    topic_ids: Mapping[TopicPartition, uuid.UUID] = _NO_IDS,
    deadline: Deadline | None = None,
) -> None:
    """Commit offsets to a group, in as many requests as they need; retried while the coordinator moves or loads.

    Args:
        topic_ids: the topics that the offsets are of, so that none is committed to a later topic of the same name. Used where
            they are given for all offsets, and brokers know them (Kafka 4.1 and newer); else the names alone count.

    Raises:
        BrokerError: the coordinator refused an offset; names the first one, and how many were refused.
        DeadlineExceededError: no coordinator responded in time.
    """
    deadline = deadline or Deadline.of_call(cluster.settings)

    topics = CommittedTopics(offsets, topic_ids)

    def commit(portion: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=topics.of_request(portion, OffsetCommitRequestTopic, OffsetCommitRequestPartition),
        )
        responses = cluster.by_coordinator(
            CoordinatorKind.GROUP,
            {group: request},
            error_codes=topics.codes,
            deadline=deadline,
            version_cap=None if topics.are_ids_known else _LAST_VERSION_BY_NAME,
        )
        return topics.results(responses[group])

    commit_in_portions(group, offsets, commit, api="OffsetCommit")


def commit_in_portions(
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    commit: Callable[[Mapping[TopicPartition, CommittedOffset]], Mapping[TopicPartition, int]],
    *,
    api: str,
) -> None:
    """Commit offsets in portions, since a coordinator writes each request as one batch of ``__consumer_offsets``.

    A portion that is too large for the coordinator is halved. Offsets of other portions stay committed where one is refused.

    Args:
        commit: sends one portion, and returns the error code of each topic-partition.

    Raises:
        BrokerError: an offset was refused; names the first one, and how many were refused.
        ProtocolError: the coordinator does not say of an offset whether it is committed.
    """
    remaining = list(offsets.items())
    max_bytes = _PORTION_BYTES
    refused: dict[TopicPartition, int] = {}
    while remaining:
        portion = _first_portion(group, remaining, max_bytes)
        codes = set((results := commit(portion)).values())
        _require_all(portion, results, group, api)
        if len(portion) > 1 and codes & _TOO_LARGE:
            max_bytes = sum(_size(group, tp, committed) for tp, committed in portion.items()) // 2
            continue
        refused |= {tp: code for tp, code in results.items() if code}
        remaining = remaining[len(portion) :]
        if codes - _OF_ONE_OFFSET:
            break  # the coordinator refuses the group or its member: the next portion would meet the same
    if refused:
        tp, code = next(iter(refused.items()))
        detail = f"Group {group!r}: {len(refused)} of {len(offsets)} offsets were refused"
        detail += f", {len(remaining)} were not sent." if remaining else "."
        raise broker_error(code, **tp._asdict(), api=api, detail=detail)


def _require_all(wanted: Iterable[TopicPartition], results: Container[TopicPartition], group: str, api: str) -> None:
    """Raise ProtocolError where a response leaves out a topic-partition that it was asked for."""
    for tp in wanted:
        if tp not in results:
            raise ProtocolError(
                f"the response for group {group!r} leaves out a topic-partition of the request", **tp._asdict(), api=api
            )


def _first_portion(
    group: str, offsets: Sequence[tuple[TopicPartition, CommittedOffset]], max_bytes: int
) -> dict[TopicPartition, CommittedOffset]:
    """Return the first offsets that take at most ``max_bytes`` together, at least one."""
    portion: dict[TopicPartition, CommittedOffset] = {}
    n_bytes = 0
    for tp, committed in offsets:
        n_bytes += _size(group, tp, committed)
        if portion and n_bytes > max_bytes:
            break
        portion[tp] = committed
    return portion


def _size(group: str, tp: TopicPartition, committed: CommittedOffset) -> int:
    return _RECORD_BYTES + sum(len(text.encode()) for text in (group, tp.topic, committed.metadata))


def fetch_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    member: MemberIdentity = NO_MEMBER,
    require_stable: bool = False,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """Return a group's committed offsets, without topic-partitions that have none; an unknown group has none at all.

    Args:
        partitions: None for all of the group.
        member: of the consumer protocol (KIP-848), whose epoch the coordinator then checks.
        require_stable: wait until open transactions on these offsets have ended (KIP-447).

    Raises:
        BrokerError: the coordinator refuses the group or a topic.
        ProtocolError: the response does not contain the group.
        DeadlineExceededError: no coordinator responded in time.
    """
    wanted = None if partitions is None else list(partitions)
    batched = False

    def topics(kind: Callable[..., StructT]) -> list[StructT] | None:
        if wanted is None:
            return None
        return [kind(name=name, partition_indexes=numbers) for name, numbers in partitions_by_topic(wanted).items()]

    def build(version: int) -> OffsetFetchRequest:
        nonlocal batched
        if batched := version >= _FIRST_BATCHED_VERSION:
            entry = OffsetFetchRequestGroup(
                group_id=group,
                member_id=member.member_id or None,
                member_epoch=member.generation,
                topics=topics(OffsetFetchRequestTopics),
            )
            return OffsetFetchRequest(groups=[entry], require_stable=require_stable)
        # Before version 7 a response does not tell offsets in an open transaction from stable ones.
        stable = require_stable and version >= _FIRST_STABLE_VERSION
        return OffsetFetchRequest(group_id=group, topics=topics(OffsetFetchRequestTopic), require_stable=stable)

    asked = {group: ByVersion(OffsetFetchRequest, build)}
    response = cluster.by_coordinator(
        CoordinatorKind.GROUP, asked, deadline=deadline, version_cap=_LAST_VERSION_BY_NAME
    )[group]
    # A query that took "not in the response" for "nothing committed" would start somewhere else.
    if batched and [entry.group_id for entry in response.groups] != [group]:
        named = ", ".join(repr(entry.group_id) for entry in response.groups) or "no group"
        raise ProtocolError(f"the response for group {group!r} has the offsets of {named}", api="OffsetFetch")
    part = response.groups[0] if batched else response
    group_offsets = list(_offsets_of(part))
    for place, code in [({}, part.error_code), *((tp._asdict(), code) for tp, code, _ in group_offsets)]:
        if code not in _NO_ERROR:
            raise broker_error(code, **place, api="OffsetFetch", detail=f"(group {group!r})")
    offsets = {tp: committed for tp, _, committed in group_offsets}
    if ErrorCode.GROUP_ID_NOT_FOUND not in response.error_codes():
        _require_all(wanted or (), offsets, group, "OffsetFetch")
    return {tp: committed for tp, committed in offsets.items() if committed.offset >= 0}


def _offsets_of(
    part: OffsetFetchResponse | OffsetFetchResponseGroup,
) -> Iterable[tuple[TopicPartition, int, CommittedOffset]]:
    """Return ``(topic-partition, error code, offset)`` of each offset of a group, or of a response up to version 7."""
    for topic in part.topics:
        for p in topic.partitions:
            committed = CommittedOffset(p.committed_offset, p.committed_leader_epoch, p.metadata or "")
            yield TopicPartition(topic.name, p.partition_index), p.error_code, committed


def fetch_offsets_of_groups(cluster: Cluster, groups: Iterable[ListedGroup]) -> dict[str, Offsets]:
    """Return the groups' committed offsets by the groups' names, without groups whose offsets cannot be fetched: they may be
    forbidden, or were deleted a moment ago.

    Before Kafka 3.0 each group takes a request of its own, and so does one whose coordinator has moved.

    Raises:
        TransportError: a coordinator has not responded in time.
    """
    by_node: dict[int, list[str]] = {}
    for group in groups:
        by_node.setdefault(group.coordinator, []).append(group.name)
    by_group: dict[str, Offsets] = {}
    alone: list[str] = []
    for node, names in by_node.items():
        wanted = set(names)
        if not cluster.supports(node, OffsetFetchRequest, _FIRST_BATCHED_VERSION):
            alone += names
            continue
        for first in range(0, len(names), _MAX_GROUPS):
            asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names[first : first + _MAX_GROUPS]]
            response = cluster.request(
                node,
                OffsetFetchRequest(groups=asked),
                version_cap=_LAST_VERSION_BY_NAME,
                error_codes=lambda response: (),  # each group has its own
            )
            for entry in response.groups:
                if entry.group_id not in wanted:
                    continue
                offsets = list(_offsets_of(entry))
                codes = {entry.error_code, *(code for _, code, _ in offsets)} - _NO_ERROR
                if error_info(entry.error_code).retriable:  # its broker is not, or not yet, the coordinator
                    alone.append(entry.group_id)
                elif codes:  # the group, or one of its topics, is refused
                    logger.debug(
                        "group %s: its offsets cannot be fetched: error codes %s", entry.group_id, sorted(codes)
                    )
                else:
                    by_group[entry.group_id] = {
                        tp: offset for tp, code, offset in offsets if not code and offset.offset >= 0
                    }
    for name in alone:
        try:
            by_group[name] = fetch_offsets(cluster, name, None)
        except BrokerError as error:
            logger.debug("group %s: its offsets cannot be fetched: %s", name, error)
    return by_group
