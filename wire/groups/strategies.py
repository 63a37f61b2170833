"""The assignment strategies that this client implements, and what members and leaders of each one tell each other.

Owns the bytes of subscriptions and assignments, which JoinGroup and SyncGroup carry: what Java's ConsumerProtocol and its
CooperativeStickyAssignor write. It does no I/O. KIP-429 (owned partitions), KIP-792 (their generation).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pykafka_wire.wire.groups.assignors import (
    Assignor,
    Subscriber,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
)
from pykafka_wire.wire.protocol.messages.group import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponseMember,
    OwnedTopicPartitions,
    decode_versioned,
    encode_versioned,
)
from pykafka_wire.wire.topic_partitions import TopicPartition

COOPERATIVE_STICKY: Final = "cooperative-sticky"
#: By the name that goes over the wire, which all members must share.
ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    COOPERATIVE_STICKY: assign_cooperative_sticky,
}
#: Of subscriptions: the newest, as Java's consumers write them. Readers of older ones leave out what they do not know.
_SUBSCRIPTION_VERSION: Final = 3
#: Of assignments: the layout is the same in all versions.
_ASSIGNMENT_VERSION: Final = 1
#: The user data of cooperative-sticky: the generation, for leaders that read subscriptions up to version 1.
_GENERATION: Final = struct.Struct(">i")


def are_cooperative(strategies: Sequence[str]) -> bool:
    """Whether members with these strategies keep their partitions in a rebalance: as in Java, only where all of them allow it."""
    return set(strategies) == {COOPERATIVE_STICKY}


def encode_subscription(
    strategy: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    *,
    generation: int = -1,
    rack_id: str | None = None,
) -> bytes:
    """What a member tells the leader, for one of its strategies.

    Args:
        owned: what the member has not given up; nothing in the eager protocol.
        generation: the one in which it was assigned them, -1 for none.
    """
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=_GENERATION.pack(generation) if strategy == COOPERATIVE_STICKY else None,
            owned_partitions=[
                OwnedTopicPartitions(topic=topic, partitions=numbers) for topic, numbers in _by_topic(owned).items()
            ],
            generation_id=generation,
            rack_id=rack_id,
        ),
        _SUBSCRIPTION_VERSION,
    )


def decode_subscriber(member: JoinGroupResponseMember) -> Subscriber:
    """A member and what it sent to the leader. Raises ProtocolError for malformed bytes."""
    subscription = decode_versioned(ConsumerProtocolSubscription, member.metadata)
    generation, user_data = subscription.generation_id, subscription.user_data or b""
    if generation < 0 and len(user_data) == _GENERATION.size:
        (generation,) = _GENERATION.unpack(user_data)
    return Subscriber(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        topics=frozenset(subscription.topics),
        owned=tuple(TopicPartition(each.topic, p) for each in subscription.owned_partitions for p in each.partitions),
        generation=generation,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's assignment, as SyncGroup carries it."""
    assigned = [
        AssignedTopicPartitions(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), _ASSIGNMENT_VERSION)


def decode_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """A member's assignment, sorted; for an empty one a coordinator may send no bytes at all.

    Raises ProtocolError for malformed bytes."""
    if not len(data):
        return ()
    assigned = decode_versioned(ConsumerProtocolAssignment, data).assigned_partitions
    return tuple(sorted(TopicPartition(each.topic, partition) for each in assigned for partition in each.partitions))


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
