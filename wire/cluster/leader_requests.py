"""The requests of one reader or writer to the leaders of many topic-partitions, to all brokers at the same time.

Owns what reading and writing share: finding the leaders of what is due, which brokers can be sent to now, the requests that wait
for their responses, which of these is to be dealt with next, and when one has expired. All times are of its clock, which its client
stops between calls. A broker that does not respond must not be hidden by others that always do, and one that stops in the middle of
a response must not hold up the others.

It calls nothing of its clients, :mod:`~pykafka_wire.wire.fetch.range_read` and :mod:`~pykafka_wire.wire.produce.producer`. They
know what is due and when, build the requests, and act on the responses.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pykafka_wire.wire.background_call import BackgroundCall
from pykafka_wire.wire.cluster.client import Cluster
from pykafka_wire.wire.cluster.metadata import LeaderLookup
from pykafka_wire.wire.cluster.retries import Backoff
from pykafka_wire.wire.connection.connection import ResponseFuture, first_to_arrive
from pykafka_wire.wire.deadline import Deadline, WorkingClock
from pykafka_wire.wire.errors import NoBrokerAvailableError, WireError
from pykafka_wire.wire.protocol.message import Message
from pykafka_wire.wire.topic_partitions import TopicPartition

ResponseT = TypeVar("ResponseT", bound=Message)

#: How long to wait for a response about leaders while partitions whose leaders are known could be served.
_LEADER_WAIT_MS: Final = 1_000
#: Most handshakes take less: those are waited for, which costs no more than one after the other on the caller's thread.
_SOON_MS: Final = 250
#: How often to see whether a connection has been opened that takes longer than usual.
_CHECK_S: Final = 0.05
#: How long what has become of a connection counts while brokers are asked for nothing.
_OPENED_S: Final = 60.0
#: The shortest wait, where nothing is in flight and nothing is known to wait for.
_MIN_WAIT_MS: Final = 1


@dataclass(slots=True, eq=False, kw_only=True)
class SentRequest(Generic[ResponseT]):
    """A request without a response yet.

    Attributes:
        node: the broker's node id.
        expires_at: when its response counts as lost, on the requests' clock; once it `has_begun`, when it has to be complete.
    """

    future: ResponseFuture[ResponseT]
    node: int
    expires_at: float
    has_begun: bool = False


SentT = TypeVar("SentT", bound=SentRequest[Any])


class LeaderRequests(Generic[SentT]):
    """Requests by broker, the oldest first, as each broker responds in order. Not thread-safe.

    A broker that accepts connections and responds to nothing (stopped, overloaded) takes up to
    ``socket.connection.setup.timeout.ms``, in which a reader or writer of many brokers must go on with the rest: each connection is
    opened in a thread of its own.

    Args:
        purpose: the connection to each broker to use.
        response_s: the time for a response from its first bytes to its last, for which nothing else waits; None where responses are
            small: the first bytes are enough then.
        knows_brokers: whether brokers have responded before, so that the addresses are right.

    Attributes:
        held_up: when to look again at brokers that :meth:`reachable` has not yielded: they throttle us (KIP-219), or a connection
            is being opened.
    """

    def __init__(
        self, cluster: Cluster, purpose: str, *, response_s: float | None = None, knows_brokers: bool = False
    ) -> None:
        self.clock = WorkingClock()
        self.held_up: dict[int, float] = {}
        self._cluster = cluster
        self._purpose = purpose
        self._response_s = response_s
        self._backoff = Backoff(cluster.settings)
        self._by_node: dict[int, deque[SentT]] = {}
        self._opening: dict[int, BackgroundCall[None]] = {}
        self._asked_at = time.monotonic()
        self._knows_brokers = knows_brokers
        self._round_at = self.clock.now()

    # --- before a request ---------------------------------------------------------------------------------------------

    def start_round(self) -> float:
        """Return the present time: what is due now is sent next, and :meth:`next_response` waits for all that is due later."""
        self._round_at = self.clock.now()
        return self._round_at

    def find_leaders(self, partitions: Iterable[TopicPartition]) -> LeaderLookup:
        """Return the leaders of all that is due, at once: a partition without a leader delays no other one.

        Raises:
            NoBrokerAvailableError: none responds, and none ever did: a wrong address is to be known within seconds.
        """
        deadline = Deadline.after_ms(_LEADER_WAIT_MS) if self._knows_brokers else None
        lookup = self._cluster.metadata.leaders(partitions, deadline=deadline)
        for error in lookup.errors.values():
            if isinstance(error, NoBrokerAvailableError) and not self._knows_brokers:
                raise error
        return lookup

    def reachable(self, nodes: Collection[int]) -> Iterator[tuple[int, WireError | None]]:
        """Yield the brokers that can be sent a request now, the connected ones first, and with the reason those that cannot be
        reached. The others are :attr:`held_up`.
        """
        self.held_up = {}
        # What has become of a connection that nobody asked for since is old.
        is_old = time.monotonic() > self._asked_at + _OPENED_S
        self._asked_at = time.monotonic()
        self._opening = {
            node: opening
            for node, opening in self._opening.items()
            if node in nodes and not (is_old and opening.wait(Deadline.after_ms(0)))
        }
        throttled_s = {node: self._cluster.throttled_s(node, purpose=self._purpose) for node in nodes}
        for node in sorted(throttled_s, key=lambda node: throttled_s[node] is None):
            error, wait_s = None, throttled_s[node]
            if wait_s is None:
                try:
                    wait_s = 0.0 if self._connect(node) else _CHECK_S
                except WireError as failure:
                    wait_s, error = 0.0, failure
            else:
                self._opening.pop(node, None)
            if wait_s:
                self.held_up[node] = self.clock.now() + wait_s
            else:
                self._knows_brokers |= error is None
                yield node, error

    def _connect(self, node: int) -> bool:
        """Return whether a connection to a broker is open; begin to open it.

        Raises:
            WireError: the broker could not be reached, or refused us; the next call tries again.
        """
        opening = self._opening.get(node)
        if opening is None or opening.is_lost:
            opening = self._opening[node] = BackgroundCall(
                lambda deadline: self._cluster.connect(node, purpose=self._purpose, deadline=deadline),
                deadline=Deadline.of_call(self._cluster.settings),
                name=f"connect to broker {node}",
            )
            opening.wait(Deadline.after_ms(_SOON_MS))
        if not opening.wait(Deadline.after_ms(0)):
            return False
        del self._opening[node]
        opening.result()
        return self._cluster.throttled_s(node, purpose=self._purpose) is not None

    def retry_at(self, n_failures: int) -> float:
        """Return when to try again after the ``n_failures``-th failure in a row, counted from 1."""
        return self.clock.now() + self._backoff.delay_ms(n_failures) / 1000

    # --- in flight ----------------------------------------------------------------------------------------------------

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

    def next_response(self, pauses: Iterable[float], until: Deadline | None = None) -> SentT | None:
        """Wait for the first request that has a response or needs none any more; None if there is none at ``until``, at the end of
        a pause, or when a broker that is held up may be asked.

        Args:
            pauses: when to look for more to send. What was due in the last round is not waited for.
        """
        moments = itertools.chain(pauses, self.held_up.values())
        due_at = min((moment for moment in moments if moment > self._round_at), default=None)
        limit = until or Deadline(math.inf)
        if due_at is not None:
            limit = limit.at_most_ms((due_at - self.clock.now()) * 1000)
        if not self:
            limit.sleep(_MIN_WAIT_MS if due_at is None else math.inf)
            return None
        while True:
            oldest = self.oldest()
            now = self.clock.now()
            # Before the responses of others, which may keep coming.
            for sent in oldest:
                if now >= sent.expires_at and (self._response_s is None or sent.has_begun or not sent.future.arrived):
                    return sent
            first = first_to_arrive(
                [sent.future for sent in oldest], limit.at_most_ms((oldest[0].expires_at - now) * 1000)
            )
            if not first.arrived:
                return None
            sent = next(sent for sent in oldest if sent.future is first)
            if self._response_s is None or sent.future.read_arrived():
                return sent
            if not sent.has_begun:
                sent.expires_at, sent.has_begun = self.clock.now() + self._response_s, True
            if limit.expired:
                return None
