"""A Kafka cluster as one client sees it: how to reach it, who leads what, and what to do when a broker says no.

Owns routing and retries: every retry of a whole request happens here, driven by the table in
:mod:`~pykafka_wire.wire.error_codes`. (The fetcher and the producer retry what only they can: positions and sequences.) What
is known of topics and brokers is :mod:`~pykafka_wire.wire.cluster.metadata_refresh`'s.

In the order of Kafka's guide to clients: try the bootstrap servers in turn, each name's every address too, until
one answers; ask it for metadata; route each request to the leader or coordinator that it concerns; on an error refresh the
metadata and try again, with growing pauses, until a deadline. https://kafka.apache.org/protocol#protocol_partitioning
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, TypeVar

from pykafka_wire.wire.backoff import Backoff
from pykafka_wire.wire.cluster.connection_pool import GENERAL
from pykafka_wire.wire.cluster.metadata_refresh import MetadataRefresher
from pykafka_wire.wire.cluster.metadata_view import Broker
from pykafka_wire.wire.cluster.retries import Graces, gave_up, tries
from pykafka_wire.wire.connection.connection import Connection
from pykafka_wire.wire.connection.response_future import ResponseFuture
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import Action, error_info
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    NoBrokerAvailableError,
    ProtocolError,
    TransportError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.protocol.message import Message, Request
from pykafka_wire.wire.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from pykafka_wire.wire.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

__all__ = ["ANY", "CONTROLLER", "Backoff", "Cluster", "CoordinatorKind", "Deadline", "ResponseFuture"]

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)
ValueT = TypeVar("ValueT")

#: In place of a node id: whichever broker answers; the controller.
ANY: Final = -1
CONTROLLER: Final = -2
COORDINATION: Final = "coordination"
_FIRST_BATCHED_FIND: Final = 4
#: Of one request: some 50 bytes each, there and back.
_MOST_FOUND: Final = 1_000
_RETRIED: Final = (Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR)


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates, as FindCoordinator's ``key_type`` says it."""

    GROUP = 0
    TRANSACTION = 1


class Cluster(MetadataRefresher):
    """One client of one cluster. Opens connections when they are first needed; threads may share it.

    After a fork the child keeps what is known of the cluster and opens connections of its own.
    """

    def __init__(self, settings: ClientSettings, *, log_warnings: bool = True) -> None:
        super().__init__(settings, log_warnings=log_warnings)
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}

    def _forget(self) -> None:
        with self._lock:
            super()._forget()
            self._coordinators.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close_connections(self, purpose: str) -> None:
        """Close the connections of one purpose; threads that wait for an answer on them fail."""
        self._check_fork()
        self._connections.close(purpose)

    def controller(self) -> int:
        """Broker id of the controller, or of a broker that stands in for it (KRaft brokers forward what is for it)."""
        return self._resolve(CONTROLLER, self._total()).node_id

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(
        self,
        node_id: int,
        request: Request[ResponseT],
        *,
        purpose: str = GENERAL,
        version_cap: int | None = None,
        deadline: Deadline | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send one request to one broker and do not wait for the answer; nothing is retried.

        Args:
            purpose: the connection to that broker to use. A broker answers the requests of one connection in order, so
                what may wait for long must not stand before what may not.
            deadline: for connecting (at most ``request.timeout.ms``) and for waiting while the broker throttles us.

        Raises:
            TransportError: the broker cannot be reached; it does not have the request, or not all of it, and will not act on it.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed for it.
        """
        deadline = deadline or self._total()
        connection = self._connection(self._node(node_id, deadline), purpose, deadline)
        # Produce with acks=0 is the one request without an answer.
        answered = getattr(request, "acks", None) != 0
        pending: ResponseFuture[ResponseT] = connection.send(
            request, cap=version_cap, answered=answered, deadline=deadline
        )
        return pending

    def request(
        self,
        node_id: int,
        request: Request[ResponseT],
        *,
        deadline: Deadline | None = None,
        purpose: str = GENERAL,
        version_cap: int | None = None,
        error_codes: Callable[[ResponseT], Iterable[int]] | None = None,
    ) -> ResponseT:
        """The response of one broker, of :data:`ANY`, or of the :data:`CONTROLLER`. The request must bear repetition.

        Broken connections and retriable error codes are retried until ``deadline`` (``default.api.timeout.ms``), with
        :data:`ANY` on another broker; any other error code is left in the response for the caller.

        Args:
            error_codes: the codes in a response, by default its top-level one.

        Raises:
            DeadlineExceededError: chained to the last failure.
        """
        deadline = deadline or self._total()
        attempt = None
        for attempt in tries(self._backoff, deadline, self.counters):
            with attempt:
                node = self._resolve(node_id, deadline)
                pending = self.send(node.node_id, request, purpose=purpose, version_cap=version_cap, deadline=deadline)
                response = self._result(pending, deadline)
                codes = error_codes(response) if error_codes else [getattr(response, "error_code", 0)]
                for code in codes:
                    if code and error_info(code).action in _RETRIED:
                        if node_id == CONTROLLER:
                            with self._lock:
                                self._view.controller = -1
                        raise broker_error(code, broker=node.node_id, api=type(request).name, version=pending.version)
                return response
        raise gave_up(attempt, type(request).name)

    def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        build: Callable[[Sequence[TopicPartition]], Request[ResponseT]],
        results: Callable[[ResponseT], Iterable[tuple[TopicPartition, int, ValueT]]],
        *,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
    ) -> dict[TopicPartition, ValueT]:
        """One value for each topic-partition, asked of its leader: one request a broker, all brokers at the same time.

        Args:
            build: makes the request for some partitions of one leader.
            results: ``(topic_partition, error_code, value)`` for each partition in a response.

        Raises:
            BrokerError: a partition failed for good, or until the deadline.
            DeadlineExceededError: a broker did not answer until then.
        """
        deadline = deadline or self._total()
        remaining = dict.fromkeys(partitions)
        found: dict[TopicPartition, ValueT] = {}
        graces = Graces()
        last: WireError | None = None
        started = time.monotonic()
        for _ in tries(self._backoff, deadline, self.counters):
            flights: list[tuple[int, list[TopicPartition], ResponseFuture[ResponseT]]] = []
            lookup = self.leaders(remaining, deadline=deadline)
            for error in lookup.errors.values():
                if isinstance(error, NoBrokerAvailableError) and last is not None and deadline.expired:
                    continue  # brokers answered before: the earlier error says more
                if (
                    not error.retriable
                    or isinstance(error, NoBrokerAvailableError)
                    or (isinstance(error, BrokerError) and not graces.allow(error.code))
                ):
                    raise error
                last = error
            by_node: dict[int, list[TopicPartition]] = {}
            for tp, (node, _) in lookup.leaders.items():
                by_node.setdefault(node, []).append(tp)
            for node, group in by_node.items():
                try:
                    pending = self.send(node, build(group), version_cap=version_cap, deadline=deadline)
                    flights.append((node, group, pending))
                except TransportError as error:
                    self._unreachable(group)
                    last = error
            for node, group, pending in flights:
                try:
                    answers = list(results(self._result(pending, deadline)))
                except TransportError as error:
                    self._unreachable(group)
                    if last is None or not deadline.expired:  # a broker's own error says more than a timeout
                        last = error
                    continue
                for tp, code, value in answers:
                    if tp not in remaining:
                        continue
                    if error_info(code).action is Action.SUCCESS:
                        found[tp] = value
                        del remaining[tp]
                        continue
                    last = self._retriable(tp, code, node, pending, graces)
            if not remaining:
                return found
        tp = next(iter(remaining))
        raise DeadlineExceededError(
            f"{len(remaining)} topic-partitions did not answer in {deadline.spent(started)}"
            + (f": {last.message}" if last else ""),
            topic=tp.topic,
            partition=tp.partition,
            broker=last.broker if last else None,
            remedy=last.remedy if last else "",
        ) from last

    def coordinator(self, kind: CoordinatorKind, key: str, *, deadline: Deadline | None = None) -> int:
        """Broker id of the broker that coordinates a group or a transactional id; remembered until it is forgotten.

        Raises:
            BrokerError: it may not be asked for.
            DeadlineExceededError: none is available until the deadline.
        """
        return self.coordinators(kind, [key], deadline=deadline)[key]

    def coordinators(
        self, kind: CoordinatorKind, keys: Sequence[str], *, deadline: Deadline | None = None
    ) -> dict[str, int]:
        """As :meth:`coordinator`, for many: unknown ones are asked for together, where brokers can (KIP-699)."""
        deadline = deadline or self._total()
        self._check_fork()
        with self._lock:
            found = {key: self._coordinators[kind, key] for key in keys if (kind, key) in self._coordinators}
        if len(found) == len(keys):
            return found
        attempt = None
        for attempt in tries(self._backoff, deadline, self.counters):
            with attempt:
                asked = self._resolve(ANY, deadline).node_id
                batched = self.supports(asked, FindCoordinatorRequest, _FIRST_BATCHED_FIND, deadline=deadline)
                while unknown := [key for key in keys if key not in found][: _MOST_FOUND if batched else 1]:
                    if batched:
                        request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=unknown)
                    else:
                        request = FindCoordinatorRequest(key=unknown[0], key_type=int(kind))
                    pending = self.send(asked, request, deadline=deadline)
                    response = self._result(pending, deadline)
                    answers: Sequence[FoundCoordinator | FindCoordinatorResponse] = (
                        response.coordinators if batched else [response]
                    )
                    for answer in answers:
                        key = answer.key if isinstance(answer, FoundCoordinator) else unknown[0]
                        if key not in unknown:
                            continue
                        if answer.error_code:
                            raise broker_error(
                                answer.error_code,
                                broker=asked,
                                api="FindCoordinator",
                                version=pending.version,
                                detail=f"(for {key!r})",
                            )
                        with self._lock:
                            node = self._view.update_node(answer.node_id, answer.host, answer.port)
                            found[key] = self._coordinators[kind, key] = node.node_id
                        logger.debug("broker %s coordinates %s %r", node, kind.name.lower(), key)
                    left_out = [key for key in unknown if key not in found]
                    if left_out:
                        raise ProtocolError(
                            f"the response names no coordinator of {left_out[0]!r}",
                            broker=asked,
                            api="FindCoordinator",
                            version=pending.version,
                        )
                return found
        raise gave_up(attempt, f"finding the coordinator of {next(key for key in keys if key not in found)!r}")

    def coordinator_request(
        self,
        kind: CoordinatorKind,
        key: str,
        build: Callable[[int], Request[ResponseT]],
        error_codes: Callable[[ResponseT], Iterable[int]],
        *,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
        purpose: str = COORDINATION,
        request_timeout_ms: int | None = None,
    ) -> ResponseT:
        """The response of a coordinator, on a connection of its own. Retried while it moves or loads (fault 3).

        Args:
            build: makes the request for a coordinator's node id (what it can say may depend on the broker's versions).
            error_codes: the codes in a response; retriable ones are retried, others left to the caller.
            request_timeout_ms: for one answer, where it may take longer than others (``request.timeout.ms``).
        """
        deadline = deadline or self._total()
        attempt = None
        for attempt in tries(self._backoff, deadline, self.counters):
            with attempt:
                node = self.coordinator(kind, key, deadline=deadline)
                try:
                    request = build(node)
                    pending = self.send(node, request, purpose=purpose, version_cap=version_cap, deadline=deadline)
                    response = self._result(pending, deadline, request_timeout_ms)
                except TransportError:
                    self.forget_coordinator(kind, key)
                    raise
                for code in error_codes(response):
                    info = error_info(code)
                    if code and info.action is Action.FIND_COORDINATOR:
                        self.forget_coordinator(kind, key)
                    if code and info.action in _RETRIED and attempt.may_retry(code):
                        raise broker_error(code, broker=node, api=type(request).name, version=pending.version)
                return response
        raise gave_up(attempt, f"a request to the coordinator of {key!r}")

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """A coordinator has moved: find it anew before the next use."""
        with self._lock:
            self._coordinators.pop((kind, key), None)

    def supports(
        self,
        node_id: int,
        request: type[Request[Any]],
        version: int,
        *,
        purpose: str = GENERAL,
        deadline: Deadline | None = None,
    ) -> bool:
        """Whether a broker and this client both speak a version of an API."""
        deadline = deadline or self._total()
        return self._connection(self._resolve(node_id, deadline), purpose, deadline).state_machine.supports(
            request, version
        )

    def is_connected(self, node_id: int, *, purpose: str = GENERAL) -> bool:
        """Whether a request to a broker need not wait for a connection. Never waits itself."""
        with self._lock:
            node = self._view.nodes.get(node_id)
        return node is not None and self._connections.is_open(node, purpose)

    def connect(self, node_id: int, *, purpose: str = GENERAL, deadline: Deadline | None = None) -> None:
        """Open a connection to a broker, where there is none; waits for the end of ``reconnect.backoff.ms`` before.

        Raises:
            TransportError: the broker cannot be reached.
            AuthenticationError: it refused us.
        """
        deadline = deadline or self._total()
        node = self._node(node_id, deadline)
        self._connections.wait_until_due(node, deadline)
        self._connection(node, purpose, deadline)

    def finalized_feature(self, name: str) -> int:
        """The level at which the cluster has finalized a feature (KIP-584), 0 where it has not."""
        deadline = self._total()
        attempt = None
        for attempt in tries(self._backoff, deadline, self.counters):
            with attempt:
                connection = self._connection(self._resolve(ANY, deadline), GENERAL, deadline)
                return connection.state_machine.finalized_features.get(name, 0)
        raise gave_up(attempt, f"asking for the feature {name}")

    # --- routing ------------------------------------------------------------------------------------------------------

    def _result(
        self, pending: ResponseFuture[ResponseT], deadline: Deadline, timeout_ms: int | None = None
    ) -> ResponseT:
        return pending.result(deadline.at_most_ms(timeout_ms or self.settings.request_timeout_ms), deadline)

    def _resolve(self, node_id: int, deadline: Deadline) -> Broker:
        """The broker of a node id, of :data:`ANY` or of the :data:`CONTROLLER`."""
        if node_id >= 0:
            return self._node(node_id, deadline)
        nodes = self._nodes(deadline)
        if node_id == CONTROLLER:
            with self._lock:
                controller = self._view.controller
            if controller not in nodes:
                self._refresh([], deadline)
                nodes = self._nodes(deadline)
                with self._lock:
                    controller = self._view.controller
            if controller in nodes:
                return nodes[controller]
        first = self._connections.in_order(nodes.values())[0]
        if self._connections.is_out_of_reach(first):
            # So are all others: the brokers may have moved, and the bootstrap servers may know where they are now.
            self._refresh([], deadline)
            first = self._connections.in_order(self._nodes(deadline).values())[0]
        return first

    def _connection(self, node: Broker, purpose: str, deadline: Deadline) -> Connection:
        try:
            return self._connections.get(node, purpose, deadline.at_most_ms(self.settings.request_timeout_ms))
        except TransportError as error:
            with self._lock:
                self._view.invalidate_node(node.node_id)
            error.remedy = error.remedy or (
                "The broker advertises this address: check its advertised.listeners, and the network between this machine and it."
            )
            raise

    def _retriable(
        self, tp: TopicPartition, code: int, node_id: int, pending: ResponseFuture[Any], graces: Graces
    ) -> BrokerError:
        """The error for a partition if another try may succeed; raises it otherwise."""
        failure = broker_error(
            code,
            topic=tp.topic,
            partition=tp.partition,
            broker=node_id,
            api=type(pending.sent.request).name,
            version=pending.version,
        )
        if failure.info.action not in _RETRIED or not graces.allow(code):
            raise failure
        if failure.info.action is Action.REFRESH_METADATA:
            self.invalidate(tp)
        return failure

    def _unreachable(self, group: Sequence[TopicPartition]) -> None:
        for tp in group:
            self.invalidate(tp)


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partition numbers grouped by topic, as requests want them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
