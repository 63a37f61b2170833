"""A Kafka cluster as one client sees it: how to reach it, who leads what, and what to do when a broker says no.

Owns bootstrap, routing and retries: every retry of a whole request happens here, driven by the table in
:mod:`~pykafka_wire.wire.errors`. (The fetcher and the producer retry what only they can: positions and sequences.)

The life of it, as Kafka's guide to clients tells it: try the bootstrap servers in turn, each name's every address too, until
one answers; ask it for metadata; route each request to the leader or coordinator that it concerns; on an error refresh the
metadata and try again, with growing pauses, until a deadline. https://kafka.apache.org/protocol#protocol_partitioning
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, TypeVar

from pykafka_wire.wire.bootstrap import MetadataSource
from pykafka_wire.wire.connections import MAIN_LANE, Connections
from pykafka_wire.wire.deadline import Backoff, Deadline
from pykafka_wire.wire.errors import (
    Action,
    BrokerError,
    DeadlineExceededError,
    TransportError,
    WireError,
    broker_error,
    error_info,
)
from pykafka_wire.wire.messages.find_coordinator import FindCoordinatorRequest
from pykafka_wire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykafka_wire.wire.metadata import MetadataView, Node, TopicMetadata
from pykafka_wire.wire.retries import Attempt, Graces, tries
from pykafka_wire.wire.schema import Message, Request
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topics import TopicPartition
from pykafka_wire.wire.trace import Trace
from pykafka_wire.wire.transport import Channel, Pending

__all__ = ["ANY", "CONTROLLER", "Backoff", "Cluster", "CoordinatorKind", "Deadline", "Pending"]

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)
ValueT = TypeVar("ValueT")

#: In place of a node id: whichever broker answers; the controller.
ANY: Final = -1
CONTROLLER: Final = -2
COORDINATOR_LANE: Final = "coordinator"
#: Topics that one Metadata request asks for on top of the one that is needed, because they are out of date as well.
_MAX_MORE_TOPICS: Final = 1_000
_UNKNOWN_TOPIC: Final = 3
_FIRST_BATCHED_FIND: Final = 4
_RETRIED: Final = (Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR)


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates, as FindCoordinator's ``key_type`` says it."""

    GROUP = 0
    TRANSACTION = 1


class Cluster:
    """One client of one cluster. Opens connections when they are first needed; threads may share it.

    After a fork the child keeps what is known of the cluster and opens connections of its own.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        for warning in settings.warnings:
            logger.warning("%s", warning)
        self._trace = Trace(settings.trace)
        self._backoff = Backoff(settings)
        self._pid = os.getpid()
        #: Guards the view and the coordinators, never a wait.
        self._lock = threading.RLock()
        self._view = MetadataView()
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._connections = Connections(settings, self._trace)
        self._source = MetadataSource(settings, self._connections, self._backoff)
        #: Since when metadata was asked for and not had, None when the last answer came.
        self._unanswered_since: float | None = None

    def close(self) -> None:
        """Close every connection; the next request opens what it needs."""
        self._check_fork()
        self._connections.close()
        self._trace.close()
        with self._lock:
            self._view = MetadataView()
            self._coordinators.clear()

    def at_exit(self) -> None:
        """Close what is open, without waiting for a thread that uses it: the process ends."""
        self._connections.abandon()
        self._trace.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- metadata -----------------------------------------------------------------------------------------------------

    def topics(
        self, names: Iterable[str] | None, *, max_age_ms: float = 0, deadline: Deadline | None = None
    ) -> dict[str, TopicMetadata]:
        """Metadata of topics by name; of all topics for None. Never creates a topic.

        Args:
            max_age_ms: what was learnt not longer ago is not asked for again.

        Raises:
            UnknownTopicError: a topic does not exist (said so for some seconds).
            BrokerError: a topic may not be described, or its name is impossible.
            NoBrokerAvailableError: nobody answers.
        """
        self._check_fork()
        oldest = time.monotonic() - max_age_ms / 1000
        wanted = None if names is None else list(dict.fromkeys(names))
        with self._lock:
            if wanted is None:
                missing: list[str] | None = [] if self._view.all_fresh(oldest) else None
            else:
                missing = [name for name in wanted if not self._view.is_fresh(name, oldest)]
        if missing != []:
            self._refresh(missing, deadline or self._total())
        with self._lock:
            if wanted is None:
                return dict(self._view.topics)
            for name in wanted:
                if name not in self._view.topics:  # an answer that leaves it out, or another thread's news
                    raise broker_error(_UNKNOWN_TOPIC, topic=name, api="Metadata")
            return {name: self._view.topics[name] for name in wanted}

    def brokers(self) -> dict[int, Node]:
        """The brokers that the last metadata named, by node id; asks where none is known yet."""
        return self._nodes(self._total())

    def controller(self) -> int:
        """Node id of the controller, or of a broker that stands in for it (KRaft brokers forward what is for it)."""
        return self._resolve(CONTROLLER, self._total()).node_id

    def leader(self, tp: TopicPartition, *, deadline: Deadline | None = None) -> tuple[int, int]:
        """Node id and leader epoch (-1 if unknown) of a topic-partition's leader; waits for one to be elected.

        Raises:
            UnknownTopicError: there is no such topic or partition (said so for some seconds).
            DeadlineExceededError: it has no leader.
        """
        self._check_fork()
        with self._lock:
            found = self._view.leader(tp, time.monotonic() - self.settings.metadata_max_age_ms / 1000)
        if found is not None:
            return found
        deadline = deadline or self._total()
        attempt = None
        answered = False
        for attempt in tries(self._backoff, deadline):
            try:
                self._refresh([tp.topic], deadline)
            except TransportError:
                if answered and deadline.expired:
                    break  # brokers did answer: what is missing is a leader
                raise
            answered = True
            with self._lock:
                found = self._view.leader(tp)
                topic = self._view.topics.get(tp.topic)
            if found is not None:
                return found
            with attempt:
                partitions = topic.partitions if topic is not None else {}
                if tp.partition not in partitions:
                    # A broker may not have heard of new partitions yet.
                    raise broker_error(
                        _UNKNOWN_TOPIC,
                        topic=tp.topic,
                        partition=tp.partition,
                        detail=f"The topic has {len(partitions)} partitions.",
                    )
        raise DeadlineExceededError(
            "the partition has no leader",
            topic=tp.topic,
            partition=tp.partition,
            remedy="Its replicas are offline: check the brokers.",
        ) from (attempt.error if attempt is not None else None)

    def invalidate(self, where: TopicPartition | str) -> None:
        """What is known of a leader, or of a whole topic, is out of date: ask before the next use."""
        with self._lock:
            if isinstance(where, TopicPartition):
                self._view.invalidate(where.topic, where.partition)
            else:
                self._view.invalidate(where)

    def update_leader(
        self, tp: TopicPartition, node_id: int, epoch: int, endpoint: tuple[str, int] | None = None
    ) -> None:
        """A hint from a response (KIP-951): it counts only with a newer epoch, and where the node can be reached."""
        with self._lock:
            if self._view.update_leader(tp, node_id, epoch, endpoint):
                logger.debug("%s: broker %d leads in epoch %d", tp, node_id, epoch)

    def topic_id(self, topic: str) -> uuid.UUID:
        """The id of a topic, :data:`~pykafka_wire.wire.topics.ZERO_UUID` where brokers have none."""
        return self.topics([topic], max_age_ms=self.settings.metadata_max_age_ms)[topic].topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic whose id is known from metadata."""
        with self._lock:
            return self._view.topic_name(topic_id)

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(
        self,
        node_id: int,
        request: Request[ResponseT],
        *,
        lane: str = MAIN_LANE,
        version_cap: int | None = None,
        deadline: Deadline | None = None,
    ) -> Pending[ResponseT]:
        """Send one request to one broker and do not wait for the answer; nothing is retried.

        Args:
            lane: a connection of its own to that broker. A broker answers the requests of one connection in order, so
                what may wait for long must not stand before what may not.
            deadline: for connecting (at most ``request.timeout.ms``) and for waiting while the broker throttles us.

        Raises:
            TransportError: the broker cannot be reached.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed for it.
        """
        deadline = deadline or self._total()
        channel = self._channel(self._node(node_id, deadline), lane, deadline)
        # Produce with acks=0 is the one request without an answer.
        answered = getattr(request, "acks", None) != 0
        pending: Pending[ResponseT] = channel.send(request, cap=version_cap, answered=answered, deadline=deadline)
        return pending

    def request(
        self,
        node_id: int,
        request: Request[ResponseT],
        *,
        deadline: Deadline | None = None,
        lane: str = MAIN_LANE,
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
        for attempt in tries(self._backoff, deadline):
            with attempt:
                node = self._resolve(node_id, deadline)
                pending = self.send(node.node_id, request, lane=lane, version_cap=version_cap, deadline=deadline)
                response = self._result(pending, deadline)
                codes = error_codes(response) if error_codes else [getattr(response, "error_code", 0)]
                for code in codes:
                    if code and error_info(code).action in _RETRIED:
                        if node_id == CONTROLLER:
                            with self._lock:
                                self._view.controller = -1
                        raise broker_error(code, broker=node.node_id, api=type(request).name, version=pending.version)
                return response
        raise _gave_up(attempt, type(request).name)

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
        for _ in tries(self._backoff, deadline):
            flights: list[tuple[int, list[TopicPartition], Pending[ResponseT]]] = []
            for node, group in self._by_leader(remaining, deadline).items():
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
                    if last is None or not deadline.expired:  # what a broker did say tells more than a cut-off wait
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
            f"{len(remaining)} topic-partitions did not answer in time" + (f": {last.message}" if last else ""),
            topic=tp.topic,
            partition=tp.partition,
            broker=last.broker if last else None,
            remedy=last.remedy if last else "",
        ) from last

    def coordinator(self, kind: CoordinatorKind, key: str, *, deadline: Deadline | None = None) -> int:
        """Node id of the broker that coordinates a group or a transactional id; remembered until it is forgotten.

        Raises:
            BrokerError: it may not be asked for.
            DeadlineExceededError: none is available until the deadline.
        """
        deadline = deadline or self._total()
        self._check_fork()
        with self._lock:
            if (kind, key) in self._coordinators:
                return self._coordinators[kind, key]
        attempt = None
        for attempt in tries(self._backoff, deadline):
            with attempt:
                asked = self._resolve(ANY, deadline).node_id
                if self.supports(asked, FindCoordinatorRequest, _FIRST_BATCHED_FIND):
                    request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=[key])
                else:
                    request = FindCoordinatorRequest(key=key, key_type=int(kind))
                pending = self.send(asked, request, deadline=deadline)
                response = self._result(pending, deadline)
                answer = response.coordinators[0] if response.coordinators else response
                if answer.error_code:
                    raise broker_error(
                        answer.error_code,
                        broker=asked,
                        api="FindCoordinator",
                        version=pending.version,
                        detail=f"(for {key!r})",
                    )
                with self._lock:
                    node = Node(answer.node_id, answer.host, answer.port)
                    self._view.nodes.setdefault(node.node_id, node)
                    self._coordinators[kind, key] = node.node_id
                logger.debug("broker %s coordinates %s %r", node, kind.name.lower(), key)
                return node.node_id
        raise _gave_up(attempt, f"finding the coordinator of {key!r}")

    def coordinator_request(
        self,
        kind: CoordinatorKind,
        key: str,
        build: Callable[[int], Request[ResponseT]],
        error_codes: Callable[[ResponseT], Iterable[int]],
        *,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
        lane: str = COORDINATOR_LANE,
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
        for attempt in tries(self._backoff, deadline):
            with attempt:
                node = self.coordinator(kind, key, deadline=deadline)
                try:
                    request = build(node)
                    pending = self.send(node, request, lane=lane, version_cap=version_cap, deadline=deadline)
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
        raise _gave_up(attempt, f"a request to the coordinator of {key!r}")

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """A coordinator has moved: find it anew before the next use."""
        with self._lock:
            self._coordinators.pop((kind, key), None)

    def supports(self, node_id: int, request: type[Request[Any]], version: int, *, lane: str = MAIN_LANE) -> bool:
        """Whether a broker and this client both speak a version of an API."""
        deadline = self._total()
        return self._channel(self._resolve(node_id, deadline), lane, deadline).protocol.supports(request, version)

    def finalized_feature(self, name: str) -> int:
        """The level at which the cluster has finalized a feature (KIP-584), 0 where it has not."""
        deadline = self._total()
        channel = self._channel(self._resolve(ANY, deadline), MAIN_LANE, deadline)
        return channel.protocol.finalized_features.get(name, 0)

    # --- routing ------------------------------------------------------------------------------------------------------

    def _total(self) -> Deadline:
        return Deadline.after_ms(self.settings.default_api_timeout_ms)

    def _result(self, pending: Pending[ResponseT], deadline: Deadline, timeout_ms: int | None = None) -> ResponseT:
        return pending.result(deadline.sooner(timeout_ms or self.settings.request_timeout_ms), deadline)

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: the sockets are the parent's, and a thread that the child lacks may have held a lock."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._trace.after_fork()
        self._connections.abandon()

    def _nodes(self, deadline: Deadline, having: int | None = None) -> dict[int, Node]:
        """The brokers; asks where none is known yet, or not the one that is needed."""
        self._check_fork()
        for is_last in (False, True):
            with self._lock:
                nodes = dict(self._view.nodes)
            if is_last or (nodes and (having is None or having in nodes)):
                break
            self._refresh([], deadline)
        return nodes

    def _node(self, node_id: int, deadline: Deadline) -> Node:
        node = self._nodes(deadline, node_id).get(node_id)
        if node is None:
            raise TransportError(f"the cluster has no broker {node_id} now", broker=node_id)
        return node

    def _resolve(self, node_id: int, deadline: Deadline) -> Node:
        """The broker of a node id, of :data:`ANY` or of the :data:`CONTROLLER`."""
        if node_id >= 0:
            return self._node(node_id, deadline)
        nodes = self._nodes(deadline)
        if node_id == CONTROLLER:
            if self._view.controller not in nodes:
                self._refresh([], deadline)
                nodes = self._nodes(deadline)
            if self._view.controller in nodes:
                return nodes[self._view.controller]
        return self._connections.in_order(nodes.values())[0]

    def _channel(self, node: Node, lane: str, deadline: Deadline) -> Channel:
        try:
            return self._connections.get(node, lane, deadline.sooner(self.settings.request_timeout_ms))
        except TransportError as error:
            with self._lock:
                self._view.invalidate_node(node.node_id)
            error.remedy = error.remedy or (
                "That is where the broker tells clients to come: see its advertised.listeners, and the network from here."
            )
            raise

    def _by_leader(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> dict[int, list[TopicPartition]]:
        """Partitions by leader, after one Metadata request for every topic that needs one, rather than one each."""
        partitions = list(partitions)
        self.topics({tp.topic for tp in partitions}, max_age_ms=self.settings.metadata_max_age_ms, deadline=deadline)
        groups: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            groups.setdefault(self.leader(tp, deadline=deadline)[0], []).append(tp)
        return groups

    def _retriable(
        self, tp: TopicPartition, code: int, node_id: int, pending: Pending[Any], graces: Graces
    ) -> BrokerError:
        """The error for a partition that another try may mend; raises it where none will."""
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

    # --- refresh ------------------------------------------------------------------------------------------------------

    def _refresh(self, names: Sequence[str] | None, deadline: Deadline) -> None:
        """Ask for metadata until every named topic is there, or known not to be."""
        attempt = None
        for attempt in tries(self._backoff, deadline):
            with attempt:
                failures = self._refresh_once(names, deadline)
                for name in names or ():
                    if name in failures:
                        raise broker_error(failures[name], topic=name, api="Metadata")
                return
        if attempt is not None and isinstance(attempt.error, BrokerError):
            raise attempt.error
        raise _gave_up(attempt, "Metadata")

    def _refresh_once(self, names: Sequence[str] | None, deadline: Deadline) -> dict[str, int]:
        """One Metadata request; the topics that have an error code in its answer."""
        self._check_fork()
        self._rebootstrap_if_due()
        with self._lock:
            nodes = list(self._view.nodes.values())
            more = self._view.stale_topics()[:_MAX_MORE_TOPICS] if names else []
        wanted = None if names is None else dict.fromkeys([*names, *more])
        request = MetadataRequest(
            topics=None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted],
            allow_auto_topic_creation=False,
        )
        response, version = self._source.ask(request, nodes, deadline)
        self._unanswered_since = None
        if response.error_code and self.settings.metadata_recovery_strategy != "none":
            # REBOOTSTRAP_REQUIRED (KIP-1102): the brokers we know are no longer the cluster's.
            self._rebootstrap(f"a broker asked for it (error {response.error_code})")
            raise TransportError("the cluster asks for a new bootstrap", api="Metadata", version=version)
        with self._lock:
            return self._view.apply(response, version, time.monotonic(), everything=names is None)

    def _rebootstrap_if_due(self) -> None:
        """Forget brokers that have given no metadata for long: they may be another cluster's by now (KIP-1102)."""
        now = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = now
        silent_ms = (now - self._unanswered_since) * 1000
        if (
            self.settings.metadata_recovery_strategy != "none"
            and self._view.nodes
            and silent_ms > self.settings.metadata_recovery_rebootstrap_trigger_ms
        ):
            self._rebootstrap(f"no metadata for {silent_ms / 1000:.0f} s")

    def _rebootstrap(self, why: str) -> None:
        logger.info("starting over from the bootstrap servers: %s", why)
        with self._lock:
            self._view = MetadataView()
            self._coordinators.clear()
        self._unanswered_since = None
        self._connections.close()


def _gave_up(attempt: Attempt | None, what: str) -> WireError:
    assert attempt is not None  # there is always a first one
    return attempt.gave_up(what)


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partition numbers grouped by topic, as requests want them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
