"""The assignment strategies that this client implements: what each assigns, and what members and leaders tell each other.

Assignments are pure functions of the members' subscriptions and the partition count of each topic. The members of a group agree on
one strategy, and the leader assigns for all. Range and round-robin have the results of a Java leader. (Java's range assignor also
considers racks, where members name theirs; this one does not.) Cooperative-sticky is balanced, with as few partitions moved as that
takes (KIP-429). A partition that changes hands is first assigned to no member, so that its owner gives it up; the rebalance that
follows assigns it. Any balanced assignment serves the members, Java's too: the result is not the same as Java's in each case.
https://kafka.apache.org/documentation/#consumerconfigs_partition.assignment.strategy

Owns also the bytes of subscriptions and assignments, which JoinGroup and SyncGroup carry: what Java's ConsumerProtocol and its
CooperativeStickyAssignor write. It does no I/O. KIP-429 (owned partitions), KIP-792 (their generation).
"""

from __future__ import annotations

import heapq
import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.errors import ProtocolError
from pykafka_wire.wire.protocol.messages.group import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponseMember,
    OwnedTopicPartitions,
    decode_versioned,
    encode_versioned,
)
from pykafka_wire.wire.topic_partitions import TopicPartition, partitions_by_topic

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member of the group and its subscription, as the leader gets them from JoinGroup.

    Attributes:
        owned: the partitions that it has not given up, from the generation in which it was assigned them (-1 if unknown).
    """

    member_id: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1

    @property
    def order(self) -> tuple[bool, bytes]:
        """Return static members first, by instance id, so that a restart keeps assignments; then the others by member id. Strings
        compare by UTF-16 units, as in Java."""
        return self.instance_id is None, _units(self.instance_id or self.member_id)


#: Subscribers and partition counts by topic (a topic that is not there has none) -> partitions by member id.
Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], dict[str, list[TopicPartition]]]


def assign_range(members: Sequence[Subscriber], n_partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Return each topic by itself: consecutive partitions to its subscribers in order, the first ones get one more."""
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.order)
    for topic in sorted(n_partitions, key=_units):
        subscribers = [member for member in ordered if topic in member.topics]
        if not subscribers:
            continue
        share, more = divmod(n_partitions[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + share + (index < more)
            assigned[member.member_id] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assigned


def assign_round_robin(
    members: Sequence[Subscriber], n_partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return all partitions of all topics in turn; members that did not subscribe to the topic are skipped."""
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.order)
    position = 0
    for topic in sorted(n_partitions, key=_units):
        if not any(topic in member.topics for member in ordered):
            continue
        for partition in range(n_partitions[topic]):
            while topic not in ordered[position % len(ordered)].topics:
                position += 1
            assigned[ordered[position % len(ordered)].member_id].append(TopicPartition(topic, partition))
            position += 1
    return assigned


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def assign_cooperative_sticky(
    members: Sequence[Subscriber], n_partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return what :func:`assign_sticky` does, without the partitions that another member still owns."""
    claimed: dict[TopicPartition, set[str]] = {}
    for member in members:
        for tp in member.owned:
            claimed.setdefault(tp, set()).add(member.member_id)
    return {
        member_id: [tp for tp in partitions if claimed.get(tp, {member_id}) == {member_id}]
        for member_id, partitions in assign_sticky(members, n_partitions).items()
    }


def assign_sticky(members: Sequence[Subscriber], n_partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Return each member keeps what it owns, as far as that is balanced: no partition could go to a subscriber that has two
    less.
    """
    ordered = sorted(members, key=lambda member: member.order)
    counts = {member.member_id: 0 for member in ordered}
    #: Topics with the same subscribers are shared out together.
    topics: dict[tuple[str, ...], list[str]] = {}
    for topic in sorted(n_partitions):
        subscribers = tuple(member.member_id for member in ordered if topic in member.topics)
        if subscribers:
            topics.setdefault(subscribers, []).append(topic)
    owners = _owners(ordered)
    held: dict[tuple[str, ...], dict[str, list[TopicPartition]]] = {}
    free: dict[tuple[str, ...], list[TopicPartition]] = {}
    for subscribers, names in topics.items():
        held[subscribers] = {member_id: [] for member_id in subscribers}
        free[subscribers] = []
        for tp in (TopicPartition(name, partition) for name in names for partition in range(n_partitions[name])):
            owner = owners.get(tp)
            if owner in held[subscribers]:
                held[subscribers][owner].append(tp)
                counts[owner] += 1
            else:
                free[subscribers].append(tp)
    # Partitions that few may have go first: the others can make up for them.
    for subscribers in sorted(free, key=len):
        _share_out(free[subscribers], subscribers, held[subscribers], counts)
    while any(_balance(subscribers, held[subscribers], counts) for subscribers in held):
        pass
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for shares in held.values():
        for member_id, partitions in shares.items():
            assigned[member_id] += partitions
    return {member_id: sorted(partitions) for member_id, partitions in assigned.items()}


def _owners(members: Sequence[Subscriber]) -> dict[TopicPartition, str]:
    """Return who owns what, by the newest generation. A partition that two claim in the same generation has no owner."""
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for tp in member.owned:
            generation, owner = newest.get(tp, (member.generation - 1, None))
            if member.generation > generation:
                newest[tp] = member.generation, member.member_id
            elif member.generation == generation and owner != member.member_id:
                newest[tp] = generation, None
    return {tp: owner for tp, (_, owner) in newest.items() if owner is not None}


def _share_out(
    partitions: Sequence[TopicPartition],
    subscribers: Sequence[str],
    held: Mapping[str, list[TopicPartition]],
    counts: dict[str, int],
) -> None:
    """Give each partition to the subscriber that has the least."""
    ascending = [(counts[member_id], index) for index, member_id in enumerate(subscribers)]
    heapq.heapify(ascending)
    for tp in partitions:
        n_owned, index = ascending[0]
        held[subscribers[index]].append(tp)
        counts[subscribers[index]] += 1
        heapq.heapreplace(ascending, (n_owned + 1, index))


def _balance(subscribers: Sequence[str], held: Mapping[str, list[TopicPartition]], counts: dict[str, int]) -> bool:
    """Return whether partitions had to move from a subscriber to one that has at least two less; the last ones that it got go
    first.
    """
    #: By count, up and down; an entry whose count is no longer its subscriber's is left out when it comes first.
    ascending = [(counts[member_id], index) for index, member_id in enumerate(subscribers)]
    descending = [(-n_owned, index) for n_owned, index in ascending]
    heapq.heapify(ascending)
    heapq.heapify(descending)
    moved = False
    while True:
        while ascending[0][0] != counts[subscribers[ascending[0][1]]]:
            heapq.heappop(ascending)
        while descending and not (held[name := subscribers[descending[0][1]]] and -descending[0][0] == counts[name]):
            heapq.heappop(descending)
        if not descending or -descending[0][0] - ascending[0][0] < 2:
            return moved
        giver, taker = descending[0][1], ascending[0][1]
        held[subscribers[taker]].append(held[subscribers[giver]].pop())
        for index, change in ((giver, -1), (taker, 1)):
            n_owned = counts[subscribers[index]] = counts[subscribers[index]] + change
            heapq.heappush(ascending, (n_owned, index))
            heapq.heappush(descending, (-n_owned, index))
        moved = True


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
    """Return whether members with these strategies keep their partitions in a rebalance: as in Java, only where all of them
    allow it.
    """
    return set(strategies) == {COOPERATIVE_STICKY}


def encode_subscription(
    strategy: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    *,
    generation: int = -1,
    rack_id: str | None = None,
) -> bytes:
    """Return what a member tells the leader, for one of its strategies.

    Args:
        owned: what the member has not given up; nothing in the eager protocol.
        generation: the one in which it was assigned them, -1 for none.
    """
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=_GENERATION.pack(generation) if strategy == COOPERATIVE_STICKY else None,
            owned_partitions=[
                OwnedTopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in partitions_by_topic(sorted(owned)).items()
            ],
            generation_id=generation,
            rack_id=rack_id,
        ),
        _SUBSCRIPTION_VERSION,
    )


def decode_subscriber(member: JoinGroupResponseMember) -> Subscriber:
    """Return a member and what it sent to the leader. One whose bytes are malformed subscribes to nothing, with a warning: it
    must not end the leader's membership, and so the group."""
    try:
        subscription = decode_versioned(ConsumerProtocolSubscription, member.metadata)
    except ProtocolError as error:
        logger.warning("member %s is assigned nothing: its subscription is malformed: %s", member.member_id, error)
        subscription = ConsumerProtocolSubscription(topics=[])
    generation, user_data = subscription.generation_id, subscription.user_data or b""
    if generation < 0 and len(user_data) == _GENERATION.size:
        (generation,) = _GENERATION.unpack(user_data)
    return Subscriber(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        topics=frozenset(subscription.topics),
        owned=tuple(
            TopicPartition(owned.topic, p) for owned in subscription.owned_partitions for p in owned.partitions
        ),
        generation=generation,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return a member's assignment, as SyncGroup carries it."""
    assigned = [
        AssignedTopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in partitions_by_topic(sorted(partitions)).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), _ASSIGNMENT_VERSION)


def decode_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """Return a member's assignment, sorted; for an empty one a coordinator may send no bytes at all.

    Raises ProtocolError for malformed bytes."""
    if not len(data):
        return ()
    assigned = decode_versioned(ConsumerProtocolAssignment, data).assigned_partitions
    return tuple(sorted(TopicPartition(topic.topic, partition) for topic in assigned for partition in topic.partitions))
