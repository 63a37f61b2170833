"""What a consumer subscribes to: topics by name, or those that match a pattern.

Patterns are matched here (a compiled :class:`re.Pattern`), or by the group's coordinator (:class:`SubscriptionPattern`). It does
no I/O; who subscribes asks for the topics that there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pykafka_wire.wire.errors import SettingsError


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
class Subscription:
    """Topics by name, unless one of the patterns is set."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    server_pattern: str | None = None

    @classmethod
    def of(cls, topics: Topics) -> Subscription:
        """Names (without those that come twice) or a pattern.

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
        """The names to subscribe to, of all topics that there are: those of the pattern, sorted, without internal ones."""
        if self.pattern is None:
            return self.names
        found = (name for name, topic in topics.items() if not topic.is_internal and self.pattern.fullmatch(name))
        return tuple(sorted(found))

    def require_client_side(self) -> None:
        """Raises SettingsError for a pattern that only coordinators of the consumer protocol match."""
        if self.server_pattern is not None:
            raise SettingsError(
                "a SubscriptionPattern is matched by the group's coordinator, which the classic group protocol cannot do.",
                setting="group.protocol",
                remedy="Set group.protocol=consumer, or subscribe to a pattern of re.compile().",
            )
