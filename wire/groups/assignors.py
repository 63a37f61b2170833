"""How a group's leader shares topic-partitions out: range and round-robin, with the results of Java's assignors.

Pure functions over who subscribed to what and how many partitions each topic has. All members of a group must come to use
the same strategy, and whichever of them leads decides for all; a Java leader and this one decide alike. (Java's range
assignor also looks at racks where members name theirs; this one does not.)
https://kafka.apache.org/documentation/#consumerconfigs_partition.assignment.strategy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykafka_wire.wire.topics import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member of the group, as its leader sees it."""

    member_id: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()

    @property
    def order(self) -> tuple[bool, bytes]:
        """Static members come first, by instance id, so that a restart moves nothing; the others by member id. Java
        compares UTF-16 units."""
        return self.instance_id is None, _units(self.instance_id or self.member_id)


#: Subscribers and partition counts by topic (a topic that is not there has none) -> partitions by member id.
Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], dict[str, list[TopicPartition]]]


def assign_range(members: Sequence[Subscriber], n_partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Each topic by itself: consecutive partitions to its subscribers in order, the first ones get one more."""
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
    """All partitions of all topics in turn; a member that did not subscribe to the topic is passed over."""
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    ordered = sorted(members, key=lambda member: member.order)
    turn = 0
    for topic in sorted(n_partitions, key=_units):
        if not any(topic in member.topics for member in ordered):
            continue
        for partition in range(n_partitions[topic]):
            while topic not in ordered[turn % len(ordered)].topics:
                turn += 1
            assigned[ordered[turn % len(ordered)].member_id].append(TopicPartition(topic, partition))
            turn += 1
    return assigned


#: By the name that goes over the wire, which all members must share.
ASSIGNORS: Final[dict[str, Assignor]] = {"range": assign_range, "roundrobin": assign_round_robin}


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
