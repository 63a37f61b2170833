"""A consumer's place in its group, as the consumer sees it: the same for both group protocols.

The group names a target, the partitions that the consumer is to own from now on. The consumer gives up what is not in it, takes
up what is new, and acknowledges. Which requests that takes is the implementation's:
:mod:`~pykafka_wire.wire.groups.classic.membership` for the classic protocol, and
:mod:`~pykafka_wire.wire.groups.kip848.membership` for that of KIP-848.

A consumer subscribes to topics by name, or to those that match a pattern. Patterns are matched here (a compiled
:class:`re.Pattern`), or by the group's coordinator (:class:`SubscriptionPattern`). It does no I/O; who subscribes asks for the
topics that there are.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import SettingsError
from pykafka_wire.wire.topic_partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2's syntax, which the group's coordinator matches against whole topic names (KIP-848). It needs
    ``group.protocol=consumer``, and brokers of Kafka 4.0 or newer."""

    pattern: str


#: What may be subscribed to. A compiled pattern must match whole topic names, as in Java's consumer.
Topics = Iterable[str] | re.Pattern[str] | SubscriptionPattern


class _Topic(Protocol):
    @property
    def is_internal(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscription:
    """Topics by name, unless one of the patterns is set."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    server_pattern: str | None = None

    @classmethod
    def of(cls, topics: Topics) -> TopicSubscription:
        """Return names (without those that come twice) or a pattern.

        Raises:
            TypeError: ``topics`` is one string.
        """
        if isinstance(topics, SubscriptionPattern):
            return cls(server_pattern=topics.pattern)
        if isinstance(topics, re.Pattern):
            return cls(pattern=topics)
        if isinstance(topics, str):
            raise TypeError(
                f"subscribe to a list of topics, as in subscribe([{topics!r}]), or to re.compile({topics!r})"
            )
        return cls(names=tuple(dict.fromkeys(topics)))

    def matches(self, topics: Mapping[str, _Topic]) -> tuple[str, ...]:
        """Return the names to subscribe to, of all topics that there are: those of the pattern, sorted, without internal ones."""
        if self.pattern is None:
            return self.names
        names = (name for name, topic in topics.items() if not topic.is_internal and self.pattern.fullmatch(name))
        return tuple(sorted(names))

    def require_client_side(self) -> None:
        """Raise SettingsError for a pattern that only coordinators of the consumer protocol match."""
        if self.server_pattern is not None:
            raise SettingsError(
                "a SubscriptionPattern is matched by the group's coordinator, which the classic group protocol cannot do.",
                setting="group.protocol",
                remedy="Set {setting}=consumer, or subscribe to a pattern of re.compile().",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """Who a group's member is: what its requests and commits carry. Replaced as a whole, so that threads may read it.

    Attributes:
        generation: in the consumer protocol (KIP-848) the member epoch; -1 outside of the group.
        times_lost: how often the member had lost its place before: it may keep its member id.
    """

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    times_lost: int = 0


#: A commit from outside, which the coordinator accepts while the group has no members.
NO_MEMBER: Final = MemberIdentity()


class Membership(Protocol):
    """A member of a group. Methods are called from the consumer's thread, unless they say otherwise."""

    @property
    def lost(self) -> bool:
        """Return whether what the consumer owned is lost: others may own it already, and it must not commit for it."""

    @property
    def identity(self) -> MemberIdentity:
        """Return what a commit carries. Raises BrokerError where the place in the group is lost."""

    def newer_identity(self, identity: MemberIdentity, deadline: Deadline) -> MemberIdentity | None:
        """Return the identity for a commit that was refused as stale; None where there is none until the deadline, or the place
        was lost meanwhile. May be called from any thread.
        """

    def record_poll(self) -> None:
        """Note that the consumer polls: ``max.poll.interval.ms`` begins anew."""

    def target(self) -> frozenset[TopicPartition] | None:
        """Return the partitions to own from now on, None where nothing changes. Returns at once."""

    def topic_ids(self) -> Mapping[TopicPartition, uuid.UUID]:
        """Return the ids of the topics that the consumer owns, and of those in the last :meth:`target`; empty where the
        protocol assigns by names.
        """

    def recreated(self) -> frozenset[TopicPartition]:
        """Return what the consumer owns of topics that were deleted, and may have been recreated under their names: it must not
        commit its positions there. The last :meth:`target` does not have them.
        """

    def acknowledge(self) -> None:
        """Note that the consumer owns what the last :meth:`target` asked for."""

    def may_read(self, deadline: Deadline) -> bool:
        """Return whether the consumer may read what it owns; waits until ``deadline`` where it owns nothing yet.

        Raises:
            WireError: the error that has ended the membership; one of credentials, once for each try; NoBrokerAvailableError before
                the first join.
        """

    def close(self, *, leave: bool) -> None:
        """Leave the group; ``leave=False`` for a static member that is to come back soon. May be called twice."""
