"""A Kafka cluster as one client sees it: how to reach it, who leads what, and what to do when a broker says no.

Owns routing: to a given broker, to a partition's leader, to a coordinator, to any broker; and which brokers can be sent to now. A
whole request is repeated here only, by the one loop of :mod:`~pykafka_wire.wire.cluster.retries` and the table of
:mod:`~pykafka_wire.wire.error_codes`. (The fetcher and the producer retry what only they can: positions and sequences.) A cluster
has its metadata, :class:`Metadata`, and its connections.

In the order of Kafka's guide to clients: try the bootstrap servers in turn, each name's every address too, until
one responds; ask it for metadata; route each request to the leader or coordinator that it concerns; on an error refresh the
metadata and try again, with growing pauses, until a deadline. https://kafka.apache.org/protocol#protocol_partitioning
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from pykafka_wire.wire import forks
from pykafka_wire.wire.cluster.connection_pool import GENERAL, ConnectionPool
from pykafka_wire.wire.cluster.metadata import Metadata
from pykafka_wire.wire.cluster.metadata_cache import Broker
from pykafka_wire.wire.cluster.retries import Backoff, Retry, Unfinished
from pykafka_wire.wire.connection.connection import Connection, ResponseFuture
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.connection.trace import Trace
from pykafka_wire.wire.connection.transport import Network
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import Action, error_info
from pykafka_wire.wire.errors import (
    DeadlineExceededError,
    Place,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    broker_error,
)
from pykafka_wire.wire.protocol.message import Asked, ByVersion, Message, Request
from pykafka_wire.wire.protocol.messages.metadata import Coordinator as FoundCoordinator
from pykafka_wire.wire.protocol.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition

__all__ = ["ANY", "CONTROLLER", "Cluster", "CoordinatorKind"]

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)
ValueT = TypeVar("ValueT")
KeyT = TypeVar("KeyT")

#: In place of a node id: whichever broker responds; the controller.
ANY: Final = -1
CONTROLLER: Final = -2
COORDINATION: Final = "coordination"
_FIRST_BATCHED_FIND: Final = 4
#: Of one request: some 50 bytes each, there and back.
_MAX_FOUND: Final = 1_000
#: Connections to one coordinator for requests in bulk: a broker serves a connection's requests one after the other, and EndTxn
#: waits for replicas.
_BULK_CONNECTIONS: Final = 4
#: Bulk requests in flight on one connection: their bytes fit its buffers, so that sending never waits for a response to be read.
_BULK_IN_FLIGHT: Final = 32


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates, as FindCoordinator's ``key_type`` says it."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """How requests are sent.

    Attributes:
        version_cap: the highest version that they may go in, None for any.
        purpose: the connection to each broker to use.
        response_ms: the time for one response, ``request.timeout.ms`` where it is None.
    """

    version_cap: int | None = None
    purpose: str = GENERAL
    response_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Addressed(Generic[KeyT, ResponseT]):
    """A request, with what it is for, its broker's node id, and the purpose of the connection."""

    key: KeyT
    node: int
    request: Asked[ResponseT]
    purpose: str


class _Route(Protocol[KeyT]):
    """The way to the brokers of requests, by their keys.

    Attributes:
        moved_by: the action of error codes that say that another broker is the one.
    """

    moved_by: Action

    def find(self, keys: Sequence[KeyT], deadline: Deadline) -> Mapping[KeyT, int]:
        """Return the node id of each key's broker."""

    def forget(self, key: KeyT) -> None:
        """Find the key's broker anew: it cannot be reached, or is not the one any more."""


class _NodeRoute:
    """Keys are node ids, :data:`ANY` or :data:`CONTROLLER`."""

    moved_by = Action.REFRESH_METADATA

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, keys: Sequence[int], deadline: Deadline) -> Mapping[int, int]:
        return {node_id: self._cluster.resolve(node_id, deadline).node_id for node_id in keys}

    def forget(self, key: int) -> None:
        if key == CONTROLLER:
            self._cluster.metadata.forget_controller()


class _CoordinatorRoute:
    """Keys are groups or transactional ids, whose coordinators are asked."""

    moved_by = Action.FIND_COORDINATOR

    def __init__(self, cluster: Cluster, kind: CoordinatorKind) -> None:
        self._cluster = cluster
        self._kind = kind

    def find(self, keys: Sequence[str], deadline: Deadline) -> Mapping[str, int]:
        return self._cluster.coordinators(self._kind, keys, deadline=deadline)

    def forget(self, key: str) -> None:
        self._cluster.metadata.forget_coordinator(self._kind, key)


class Cluster:
    """One client of one cluster. Opens connections when they are first needed; threads may share it.

    After a fork the child keeps what is known of the cluster and opens connections of its own.

    Args:
        network: opens the connections' byte streams, by default sockets.

    Attributes:
        metadata: brokers, topics and leaders.
        counters: what this client has sent, received and waited for.
    """

    def __init__(self, settings: ClientSettings, *, log_warnings: bool = True, network: Network | None = None) -> None:
        self.settings = settings
        for warning in settings.warnings() if log_warnings else ():
            logger.warning("%s", warning)
        self.counters = ClientCounters()
        self._trace = Trace(settings.trace)
        self._backoff = Backoff(settings)
        self._connections = ConnectionPool(settings, self._trace, self.counters, network)
        self.metadata = Metadata(settings, self._connections, self.counters)
        forks.call_in_child(self)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next request opens what it needs."""
        self._connections.close()
        self._trace.close()
        self.metadata.forget()

    def close_connections(self, purpose: str) -> None:
        """Close the connections of one purpose; threads that wait for a response on them fail."""
        self._connections.close(purpose)

    def at_exit(self) -> None:
        """Close what is open, without waiting for a thread that uses it: the process ends."""
        self._connections.abandon()
        self._trace.close()

    def after_fork(self) -> None:
        """Begin anew in a forked child: the sockets are the parent's, and a thread that the child lacks may have held a lock."""
        self.metadata.after_fork()
        self._trace.after_fork()
        self.counters.after_fork()
        self._connections.after_fork()

    # --- one request to one broker, once ------------------------------------------------------------------------------

    def send(
        self,
        node_id: int,
        request: Asked[ResponseT],
        *,
        purpose: str = GENERAL,
        version_cap: int | None = None,
        deadline: Deadline | None = None,
    ) -> ResponseFuture[ResponseT]:
        """Send one request to one broker and do not wait for the response; nothing is retried.

        Args:
            purpose: the connection to that broker to use. A broker responds to the requests of one connection in order, so
                what may wait for long must not stand before what may not.
            deadline: for connecting (at most ``request.timeout.ms``) and for waiting while the broker throttles us.

        Raises:
            TransportError: the broker cannot be reached; it does not have the request, or not all of it, and will not act on it.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed for it.
        """
        deadline = deadline or Deadline.of_call(self.settings)
        connection = self._connection(self.metadata.broker(node_id, deadline=deadline), purpose, deadline)
        if isinstance(request, ByVersion):
            try:
                request = request.build(connection.state_machine.version_of(request.api, version_cap))
            except UnsupportedVersionError as error:
                error.broker = node_id
                raise
        pending: ResponseFuture[ResponseT] = connection.send(request, cap=version_cap, deadline=deadline)
        return pending

    def supports(
        self,
        node_id: int,
        request: type[Request[Any]],
        version: int,
        *,
        purpose: str = GENERAL,
        deadline: Deadline | None = None,
    ) -> bool:
        """Return whether a broker and this client both speak a version of an API."""
        deadline = deadline or Deadline.of_call(self.settings)
        connection = self._connection(self.resolve(node_id, deadline), purpose, deadline)
        return connection.state_machine.supports(request, version)

    def throttled_s(self, node_id: int, *, purpose: str = GENERAL) -> float | None:
        """Return for how many seconds a request to a broker would wait because it throttles us (KIP-219), 0 if not at all; None
        where it would wait for a connection. Never waits itself."""
        broker = self.metadata.known_broker(node_id)
        connection = None if broker is None else self._connections.find_open(broker, purpose)
        return None if connection is None else connection.muted_s

    def connect(self, node_id: int, *, purpose: str, deadline: Deadline) -> None:
        """Open a connection to a broker, where there is none; waits for the end of ``reconnect.backoff.ms`` before.

        Raises:
            TransportError: the broker cannot be reached.
            AuthenticationError: it refused us.
        """
        broker = self.metadata.broker(node_id, deadline=deadline)
        self._connections.wait_until_due(broker, deadline)
        self._connection(broker, purpose, deadline)

    # --- requests with retries ----------------------------------------------------------------------------------------

    def retry(self, deadline: Deadline | None = None) -> Retry:
        """Return what repeats an operation of several requests as a whole, until ``deadline`` (``default.api.timeout.ms``)."""
        return Retry(self._backoff, deadline or Deadline.of_call(self.settings), self.counters)

    def request(
        self,
        node_id: int,
        request: Asked[ResponseT],
        *,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
        error_codes: Callable[[ResponseT], Iterable[int]] | None = None,
    ) -> ResponseT:
        """Return the response of one broker, of :data:`ANY`, or of the :data:`CONTROLLER`. The request may be sent several times.

        Broken connections and retriable error codes are retried until ``deadline`` (``default.api.timeout.ms``), with
        :data:`ANY` on another broker; any other error code is left in the response for the caller.

        Args:
            error_codes: the codes in a response, by default all.

        Raises:
            DeadlineExceededError: chained to the last failure.
        """
        terms = _Terms(version_cap=version_cap)
        what, retry = request.name, self.retry(deadline)
        return self._request_each(_NodeRoute(self), {node_id: request}, what, retry, terms, error_codes)[node_id]

    def by_coordinator(
        self,
        kind: CoordinatorKind,
        requests: Mapping[str, Asked[ResponseT]],
        *,
        error_codes: Callable[[ResponseT], Iterable[int]] | None = None,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
        purpose: str = COORDINATION,
        request_timeout_ms: int | None = None,
    ) -> dict[str, ResponseT]:
        """Return the response to a request for each key, of its coordinator, on a connection of its own; of many requests, on a
        few of each coordinator. Retried while it moves or loads.

        Args:
            error_codes: the codes in a response, by default all; retriable ones are retried, others left to the caller.
            request_timeout_ms: for one response, where it may take longer than others (``request.timeout.ms``).

        Raises:
            DeadlineExceededError: chained to the last failure.
        """
        one = repr(next(iter(requests), ""))
        what = f"a request to the coordinator of {one}"
        if len(requests) != 1:
            what = f"requests to the coordinators of {len(requests)} keys, one is {one},"
        terms = _Terms(version_cap=version_cap, purpose=purpose, response_ms=request_timeout_ms)
        route = _CoordinatorRoute(self, kind)
        return self._request_each(route, requests, what, self.retry(deadline), terms, error_codes)

    def _request_each(
        self,
        route: _Route[KeyT],
        requests: Mapping[KeyT, Asked[ResponseT]],
        what: str,
        retry: Retry,
        terms: _Terms,
        error_codes: Callable[[ResponseT], Iterable[int]] | None,
    ) -> dict[KeyT, ResponseT]:
        """Return the response to each request, of the broker that ``route`` finds for its key, anew with each try."""
        responses: dict[KeyT, ResponseT] = {}
        # Many requests have connections of their own, beside which others go on.
        purposes = [terms.purpose]
        if len(requests) > 1:
            purposes = [f"{terms.purpose} {nth}" for nth in range(_BULK_CONNECTIONS)]

        def request_missing() -> dict[KeyT, ResponseT]:
            missing = [key for key in requests if key not in responses]
            for portion in _portions(route.find(missing, retry.deadline)):
                addressed = [
                    _Addressed(key, node, requests[key], purposes[n % len(purposes)])
                    for n, (key, node) in enumerate(portion)
                ]
                for key, place, response in self._exchange(addressed, retry, route.forget, terms):
                    codes = list(error_codes(response) if error_codes else response.error_codes())
                    if any(error_info(code).action is route.moved_by for code in codes):
                        route.forget(key)
                    retried = next(filter(retry.allows, codes), None)
                    if retried is None:
                        responses[key] = response
                    else:
                        retry.keep(
                            broker_error(retried, detail=f"(for {key!r})" if isinstance(key, str) else "", **place)
                        )
            if len(responses) < len(requests):
                raise Unfinished
            return responses

        return retry.run(request_missing, what)

    def by_leader(
        self,
        partitions: Iterable[TopicPartition],
        build: Callable[[Sequence[TopicPartition]], Asked[ResponseT]],
        results: Callable[[ResponseT], Iterable[tuple[TopicPartition, int, ValueT]]],
        *,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
    ) -> dict[TopicPartition, ValueT]:
        """Return one value for each topic-partition, asked of its leader: one request a broker, all brokers at the same time.

        Args:
            build: makes the request for some partitions of one leader.
            results: ``(topic_partition, error_code, value)`` for each partition in a response.

        Raises:
            BrokerError: a partition failed for good, or until the deadline.
            DeadlineExceededError: a broker did not respond until then.
        """
        retry = self.retry(deadline)
        remaining = dict.fromkeys(partitions)
        values: dict[TopicPartition, ValueT] = {}

        def forget(group: Iterable[TopicPartition]) -> None:
            for tp in group:
                self.metadata.invalidate(tp)

        def ask() -> dict[TopicPartition, ValueT]:
            lookup = self.metadata.leaders(remaining, deadline=retry.deadline)
            for error in lookup.errors.values():
                retry.keep(error)
            by_node = _group_by_node(lookup.leaders)
            addressed = [_Addressed(group, node, build(group), GENERAL) for node, group in by_node.items()]
            for _, place, response in self._exchange(addressed, retry, forget, _Terms(version_cap=version_cap)):
                for tp, code, value in results(response):
                    if tp not in remaining:
                        continue
                    action = error_info(code).action
                    if action is Action.SUCCESS:
                        values[tp] = value
                        del remaining[tp]
                        continue
                    if action is Action.REFRESH_METADATA:
                        self.metadata.invalidate(tp)
                    retry.keep(broker_error(code, **place | {"topic": tp.topic, "partition": tp.partition}))
            if remaining and retry.last is None:
                raise TransportError("a response leaves topic-partitions out")
            if remaining:
                raise Unfinished
            return values

        try:
            return retry.run(ask, f"a request to the leaders of {len(remaining)} topic-partitions")
        except DeadlineExceededError as error:
            if error.topic is None:
                error.topic, error.partition = next(iter(remaining))
            raise

    def _exchange(
        self,
        addressed: Iterable[_Addressed[KeyT, ResponseT]],
        retry: Retry,
        forget: Callable[[KeyT], None],
        terms: _Terms,
    ) -> Iterator[tuple[KeyT, Place, ResponseT]]:
        """Yield the responses to requests that are sent all at once, with where an error code in them is from; what cannot be
        reached is forgotten, and kept as a failure."""
        timeout_ms = terms.response_ms or self.settings.request_timeout_ms
        flights: list[tuple[KeyT, int, ResponseFuture[ResponseT]]] = []
        for address in addressed:
            try:
                pending = self.send(
                    address.node,
                    address.request,
                    purpose=address.purpose,
                    version_cap=terms.version_cap,
                    deadline=retry.deadline,
                )
                flights.append((address.key, address.node, pending))
            except TransportError as error:
                forget(address.key)
                retry.keep(error)
        for key, node, pending in flights:
            try:
                response = pending.result(retry.deadline.at_most_ms(timeout_ms), retry.deadline)
            except TransportError as error:
                forget(key)
                retry.keep(error)
            else:
                yield key, _place(node, pending), response

    def coordinator(self, kind: CoordinatorKind, key: str, *, deadline: Deadline | None = None) -> int:
        """Return the id of the broker that coordinates a group or a transactional id; remembered until it is forgotten.

        Raises:
            BrokerError: it may not be asked for.
            DeadlineExceededError: none is available until the deadline.
        """
        return self.coordinators(kind, [key], deadline=deadline)[key]

    def coordinators(
        self, kind: CoordinatorKind, keys: Sequence[str], *, deadline: Deadline | None = None
    ) -> dict[str, int]:
        """Return what :meth:`coordinator` does, for many: unknown ones are asked for together, where brokers can (KIP-699)."""
        known = ((key, self.metadata.coordinator(kind, key)) for key in keys)
        nodes = {key: node_id for key, node_id in known if node_id is not None}
        unknown = [key for key in keys if key not in nodes]
        if not unknown:
            return nodes
        retry = self.retry(deadline)

        def find() -> dict[str, int]:
            asked = self.resolve(ANY, retry.deadline).node_id
            batched = self.supports(asked, FindCoordinatorRequest, _FIRST_BATCHED_FIND, deadline=retry.deadline)
            while wanted := [key for key in keys if key not in nodes][: _MAX_FOUND if batched else 1]:
                nodes.update(self._find_coordinators(asked, kind, wanted, batched, retry.deadline))
            return nodes

        return retry.run(find, f"finding the coordinator of {unknown[0]!r}")

    def _find_coordinators(
        self, asked: int, kind: CoordinatorKind, keys: Sequence[str], batched: bool, deadline: Deadline
    ) -> dict[str, int]:
        """Return the coordinators of all these keys, by one request to one broker."""
        if batched:
            request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=list(keys))
        else:
            request = FindCoordinatorRequest(key=keys[0], key_type=int(kind))
        pending = self.send(asked, request, deadline=deadline)
        response = pending.result(deadline.at_most_ms(self.settings.request_timeout_ms), deadline)
        place = _place(asked, pending)
        entries: Sequence[FoundCoordinator | FindCoordinatorResponse] = response.coordinators if batched else [response]
        coordinators: dict[str, int] = {}
        for entry in entries:
            key = entry.key if isinstance(entry, FoundCoordinator) else keys[0]
            if key not in keys:
                continue
            if entry.error_code:
                raise broker_error(entry.error_code, detail=f"(for {key!r})", **place)
            self.metadata.keep_coordinator(kind, key, entry.node_id, entry.host, entry.port)
            coordinators[key] = entry.node_id
            logger.debug(
                "broker %d (%s:%d) coordinates %s %r", coordinators[key], entry.host, entry.port, kind.name.lower(), key
            )
        left_out = [key for key in keys if key not in coordinators]
        if left_out:
            raise ProtocolError(f"the response names no coordinator of {left_out[0]!r}", **place)
        return coordinators

    def finalized_feature(self, name: str) -> int:
        """Return the level at which the cluster has finalized a feature (KIP-584), 0 where it has not."""
        retry = self.retry()

        def level() -> int:
            connection = self._connection(self.resolve(ANY, retry.deadline), GENERAL, retry.deadline)
            return connection.state_machine.finalized_features.get(name, 0)

        return retry.run(level, f"asking for the feature {name}")

    # --- routing ------------------------------------------------------------------------------------------------------

    def resolve(self, node_id: int, deadline: Deadline) -> Broker:
        """Return the broker of a node id, of :data:`ANY` or of the :data:`CONTROLLER`."""
        if node_id >= 0:
            return self.metadata.broker(node_id, deadline=deadline)
        if node_id == CONTROLLER and (controller := self.metadata.controller(deadline=deadline)) is not None:
            return controller
        first = self._connections.in_order(self.metadata.brokers(deadline=deadline).values())[0]
        if self._connections.is_out_of_reach(first):
            # So are all others: the brokers may have moved, and the bootstrap servers may know where they are now.
            first = self._connections.in_order(self.metadata.brokers(refresh=True, deadline=deadline).values())[0]
        return first

    def _connection(self, broker: Broker, purpose: str, deadline: Deadline) -> Connection:
        try:
            return self._connections.get(broker, purpose, deadline.at_most_ms(self.settings.request_timeout_ms))
        except TransportError as error:
            self.metadata.invalidate_broker(broker.node_id)
            error.remedy = error.remedy or (
                "The broker advertises this address: check its advertised.listeners, and the network between this machine and it."
            )
            raise


def _place(node_id: int, pending: ResponseFuture[Any]) -> Place:
    return {"broker": node_id, "api": pending.sent.request.name, "version": pending.version}


def _portions(node_ids: Mapping[KeyT, int]) -> Iterator[list[tuple[KeyT, int]]]:
    """Yield keys with their brokers, so many at a time that the connections' buffers hold their requests."""
    by_node: dict[int, list[tuple[KeyT, int]]] = {}
    for key, node_id in node_ids.items():
        by_node.setdefault(node_id, []).append((key, node_id))
    size = _BULK_CONNECTIONS * _BULK_IN_FLIGHT
    for start in range(0, max(map(len, by_node.values()), default=0), size):
        yield [key for keys in by_node.values() for key in keys[start : start + size]]


def _group_by_node(leaders: Mapping[TopicPartition, tuple[int, int]]) -> dict[int, list[TopicPartition]]:
    """Return topic-partitions by the node id of their leader."""
    by_node: dict[int, list[TopicPartition]] = {}
    for tp, (node, _) in leaders.items():
        by_node.setdefault(node, []).append(tp)
    return by_node
