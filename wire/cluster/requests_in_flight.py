"""The requests of a reader or writer of many brokers that wait for their responses, and which of them is to be dealt with next.

Owns their order and their expiry, on the working clock of whoever sent them: a broker that does not respond must not be hidden by
others that always do, and one that stops in the middle of a response must not hold up the others. What a request asks for, and what
its response means, is the client's: :mod:`~pykafka_wire.wire.fetch.range_read` and :mod:`~pykafka_wire.wire.produce.producer`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pykafka_wire.wire.connection.connection import ResponseFuture, first_to_arrive
from pykafka_wire.wire.deadline import Deadline, WorkingClock
from pykafka_wire.wire.protocol.message import Message

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(slots=True, eq=False, kw_only=True)
class SentRequest(Generic[ResponseT]):
    """A request without a response yet.

    Attributes:
        node: the broker's node id.
        expires_at: when its response counts as lost, on the client's clock; once it `has_begun`, when it has to be complete.
    """

    future: ResponseFuture[ResponseT]
    node: int
    expires_at: float
    has_begun: bool = False


SentT = TypeVar("SentT", bound=SentRequest[Any])


class RequestsInFlight(Generic[SentT]):
    """By broker, the oldest first, as each broker responds in order. Not thread-safe."""

    def __init__(self, clock: WorkingClock) -> None:
        self._clock = clock
        self._by_node: dict[int, deque[SentT]] = {}

    def __bool__(self) -> bool:
        return any(self._by_node.values())

    def __iter__(self) -> Iterator[SentT]:
        return itertools.chain.from_iterable(self._by_node.values())

    def count(self, node: int) -> int:
        """Return how many of them a broker has."""
        return len(self._by_node.get(node, ()))

    def add(self, sent: SentT) -> None:
        self._by_node.setdefault(sent.node, deque()).append(sent)

    def remove(self, sent: SentT) -> None:
        self._by_node[sent.node].remove(sent)

    def oldest(self) -> list[SentT]:
        """Return the oldest request of each broker, the one that expires first before the others."""
        oldest = [requests[0] for requests in self._by_node.values() if requests]
        return sorted(oldest, key=lambda sent: sent.expires_at)

    def next_response(self, until: Deadline, *, response_s: float | None = None) -> SentT | None:
        """Wait for the first request that has a response or needs none any more; None if there is none at ``until``.

        Args:
            response_s: the time for a response from its first bytes to its last, for which nothing else waits; None where
                responses are small: the first bytes are enough then.
        """
        while True:
            oldest = self.oldest()
            now = self._clock.now()
            # Before the responses of others, which may keep coming.
            for sent in oldest:
                if now >= sent.expires_at and (response_s is None or sent.has_begun or not sent.future.arrived):
                    return sent
            limit = until.at_most_ms((oldest[0].expires_at - now) * 1000)
            first = first_to_arrive([sent.future for sent in oldest], limit)
            if not first.arrived:
                return None
            sent = next(sent for sent in oldest if sent.future is first)
            if response_s is None or sent.future.read_arrived():
                return sent
            if not sent.has_begun:
                sent.expires_at, sent.has_begun = self._clock.now() + response_s, True
            if limit.expired:
                return None
