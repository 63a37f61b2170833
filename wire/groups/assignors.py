"""Assignment strategies of a group's leader that look at subscriptions alone: range and round-robin, with the results of Java's.

Pure functions of the members' subscriptions and the partition count of each topic. The members of a group agree on one strategy,
and the leader assigns for all; a Java leader assigns alike. (Java's range assignor also considers racks, where members name
theirs; this one does not.)
https://kafka.apache.org/documentation/#consumerconfigs_partition.assignment.strategy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pykafka_wire.wire.topic_partitions import TopicPartition


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
        """Static members first, by instance id, so that a restart keeps assignments; then the others by member id. Strings
        compare by UTF-16 units, as in Java."""
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
    """All partitions of all topics in turn; members that did not subscribe to the topic are skipped."""
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
