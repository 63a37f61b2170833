"""A Kafka cluster as one client sees it: how to reach it, who leads what, and what to do when a broker says no.

Owns bootstrap, metadata, routing and retries: every retry of a whole request happens here, driven by the table in
:mod:`~pykafka_wire.wire.errors`. (The fetcher and the producer retry what only they can: positions and sequences.)

The life of it, as Kafka's guide to clients tells it: try the bootstrap servers in turn, each name's every address too, until
one answers; ask it for metadata; route each request to the leader or coordinator that it concerns; on an error refresh the
metadata and try again, with growing pauses, until a deadline. https://kafka.apache.org/protocol#protocol_partitioning
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from pykafka_wire.wire.deadline import Backoff, Deadline
from pykafka_wire.wire.errors import (
    Action,
    BrokerError,
    DeadlineExceededError,
    NoBrokerAvailableError,
    TransportError,
    WireError,
    broker_error,
    error_info,
)
from pykafka_wire.wire.messages.find_coordinator import FindCoordinatorRequest
from pykafka_wire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykafka_wire.wire.metadata import Node, PartitionMetadata, TopicMetadata, brokers_of, topic_of
from pykafka_wire.wire.schema import Message, Request
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topics import ZERO_UUID, TopicPartition
from pykafka_wire.wire.trace import Trace
from pykafka_wire.wire.transport import Channel, Pending

__all__ = ["ANY", "CONTROLLER", "Backoff", "Cluster", "CoordinatorKind", "Deadline", "Pending", "shared_cluster"]

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Message)
ValueT = TypeVar("ValueT")

#: In place of a node id: whichever broker answers; the controller.
ANY: Final = -1
CONTROLLER: Final = -2
#: A broker answers the requests of one connection in order: what waits in a long poll must not hold up commits.
COORDINATOR_LANE: Final = "coordinator"
#: A cluster that never answered is given up after this long: a wrong address must not cost a minute.
_FIRST_CONTACT_MS: Final = 6_000
#: A topic that was just made may be unknown to some brokers for a moment; one that never was must fail soon.
_UNKNOWN_TOPIC_GRACE_MS: Final = 3_000


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates, as FindCoordinator's ``key_type`` says it."""

    GROUP = 0
    TRANSACTION = 1


class Cluster:
    """One client of one cluster. Opens connections when they are first needed; threads may share it.

    After a fork the child opens connections of its own.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._trace = Trace(settings.trace)
        self._backoff = Backoff(settings)
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._channels: dict[tuple[int, str], Channel] = {}
        self._seed: Channel | None = None
        self._nodes: dict[int, Node] = {}
        self._controller = -1
        self._topics: dict[str, TopicMetadata] = {}
        self._refreshed_at: dict[str, float] = {}
        self._all_refreshed_at = float("-inf")
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._stale: set[str] = set()
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._answered = False

    def close(self) -> None:
        """Close every connection; the next request opens what it needs."""
        with self._lock:
            for channel in [*self._channels.values(), *([self._seed] if self._seed else [])]:
                channel.close()
            self._forget()

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
        wanted = None if names is None else list(dict.fromkeys(names))
        with self._lock:
            self._check_fork()
            oldest = time.monotonic() - max_age_ms / 1000
            if wanted is None:
                if self._all_refreshed_at < oldest or self._stale:
                    self._refresh(None, deadline or self._total())
                return dict(self._topics)
            missing = [
                name for name in wanted if self._refreshed_at.get(name, float("-inf")) < oldest or name in self._stale
            ]
            if missing:
                self._refresh(missing, deadline or self._total())
            return {name: self._topics[name] for name in wanted}

    def brokers(self) -> dict[int, Node]:
        """The brokers that the last metadata named, by node id; asks where none is known yet."""
        with self._lock:
            self._check_fork()
            if not self._nodes:
                self._refresh([], self._total())
            return dict(self._nodes)

    def leader(self, tp: TopicPartition, *, deadline: Deadline | None = None) -> tuple[int, int]:
        """Node id and leader epoch (-1 if unknown) of a topic-partition's leader; waits for one to be elected.

        Raises:
            UnknownTopicError: there is no such topic or partition.
            DeadlineExceededError: it has no leader.
        """
        with self._lock:
            self._check_fork()
            if tp in self._leaders and tp.topic not in self._stale:
                return self._leaders[tp]
            deadline = deadline or self._total()
            for _ in self._tries(deadline):
                self._refresh([tp.topic], deadline)
                if tp in self._leaders:
                    return self._leaders[tp]
                if tp.partition not in self._topics[tp.topic].partitions:
                    raise broker_error(
                        3, topic=tp.topic, partition=tp.partition, detail="The topic has no such partition."
                    )
            raise DeadlineExceededError(
                "the partition has no leader",
                topic=tp.topic,
                partition=tp.partition,
                remedy="Its replicas are offline: check the brokers.",
            )

    def invalidate(self, where: TopicPartition | str) -> None:
        """What is known of a topic's leaders is out of date: ask before the next use."""
        with self._lock:
            self._stale.add(where.topic if isinstance(where, TopicPartition) else where)

    def update_leader(
        self, tp: TopicPartition, node_id: int, epoch: int, endpoint: tuple[str, int] | None = None
    ) -> None:
        """A hint from a response (KIP-951): it counts only with a newer epoch, and where the node can be reached."""
        with self._lock:
            known = self._leaders.get(tp, (-1, -1))
            if epoch <= known[1]:
                return
            if endpoint is not None:
                old = self._nodes.get(node_id)
                self._nodes[node_id] = Node(node_id, *endpoint, rack=old.rack if old else None)
            if node_id in self._nodes:
                self._leaders[tp] = (node_id, epoch)
                self._stale.discard(tp.topic)

    def topic_id(self, topic: str) -> uuid.UUID:
        """The id of a topic, :data:`~pykafka_wire.wire.topics.ZERO_UUID` where brokers have none."""
        return self.topics([topic], max_age_ms=self.settings.metadata_max_age_ms)[topic].topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic whose id is known from metadata."""
        with self._lock:
            found = (name for name, topic in self._topics.items() if topic.topic_id == topic_id != ZERO_UUID)
            return next(found, None)

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(
        self, node_id: int, request: Request[ResponseT], *, lane: str = "main", version_cap: int | None = None
    ) -> Pending[ResponseT]:
        """Send one request to one broker and do not wait; nothing is retried.

        Args:
            lane: a connection of its own to that broker. A broker answers the requests of one connection in order, so
                what may wait for long must not stand before what may not.

        Raises:
            TransportError: the broker cannot be reached.
            UnsupportedVersionError, ProtocolError: the request cannot be expressed for it.
        """
        channel = self._channel(node_id, lane, Deadline.after_ms(self.settings.request_timeout_ms))
        # Produce with acks=0 is the one request without an answer.
        answered = getattr(request, "acks", None) != 0
        pending: Pending[ResponseT] = channel.send(request, cap=version_cap, answered=answered)
        return pending

    def request(
        self,
        node_id: int,
        request: Request[ResponseT],
        *,
        deadline: Deadline | None = None,
        lane: str = "main",
        version_cap: int | None = None,
    ) -> ResponseT:
        """The response of one broker, of :data:`ANY`, or of the :data:`CONTROLLER`. The request must bear repetition.

        Broken connections and retriable top-level errors are retried until ``deadline`` (``default.api.timeout.ms``);
        any other error code is left in the response for the caller.

        Raises:
            DeadlineExceededError: chained to the last failure.
        """
        deadline = deadline or self._total()
        for attempt in self._tries(deadline):
            with attempt:
                node = self._resolve(node_id, deadline)
                pending = self.send(node, request, lane=lane, version_cap=version_cap)
                response = pending.result(deadline.sooner(self.settings.request_timeout_ms))
                code = getattr(response, "error_code", 0)
                if code and error_info(code).action in (Action.RETRY, Action.REFRESH_METADATA):
                    self._controller = -1
                    raise broker_error(code, broker=node, api=type(request).name, version=pending.version)
                return response
        raise attempt.gave_up(type(request).name)

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
        last: WireError | None = None
        graces: dict[int, Deadline] = {}
        self._learn_leaders({tp.topic for tp in remaining}, deadline)
        for attempt in self._tries(deadline):
            flights: list[tuple[int, list[TopicPartition], Pending[ResponseT]]] = []
            groups: dict[int, list[TopicPartition]] = {}
            for tp in remaining:
                groups.setdefault(self.leader(tp, deadline=deadline)[0], []).append(tp)
            for node, group in groups.items():
                with attempt:
                    try:
                        flights.append((node, group, self.send(node, build(group), version_cap=version_cap)))
                    except TransportError as error:
                        last = self._unreachable(group, error)
            for node, group, pending in flights:
                try:
                    response = pending.result(deadline.sooner(self.settings.request_timeout_ms))
                except TransportError as error:
                    last = self._unreachable(group, error)
                    continue
                for tp, code, value in results(response):
                    if tp not in remaining:
                        continue
                    if code == 0:
                        found[tp] = value
                        del remaining[tp]
                        continue
                    info = error_info(code)
                    failure = broker_error(
                        code,
                        topic=tp.topic,
                        partition=tp.partition,
                        broker=node,
                        version=pending.version,
                    )
                    if info.action not in (Action.RETRY, Action.REFRESH_METADATA):
                        raise failure
                    grace = graces.setdefault(code, Deadline.after_ms(info.grace_ms or 10**9))
                    if grace.expired:
                        raise failure
                    last = failure
                    if info.action is Action.REFRESH_METADATA:
                        self.invalidate(tp)
            if not remaining:
                return found
        tp = next(iter(remaining))
        raise DeadlineExceededError(
            f"{len(remaining)} topic-partitions did not answer in time", topic=tp.topic, partition=tp.partition
        ) from last

    def coordinator(self, kind: CoordinatorKind, key: str, *, deadline: Deadline | None = None) -> int:
        """Node id of the broker that coordinates a group or a transactional id; remembered until it is forgotten.

        Raises:
            BrokerError: it may not be asked for, or none is available until the deadline.
        """
        deadline = deadline or self._total()
        with self._lock:
            self._check_fork()
            if (kind, key) in self._coordinators:
                return self._coordinators[kind, key]
        for attempt in self._tries(deadline):
            with attempt:
                asked = self._resolve(ANY, deadline)
                if self.supports(asked, FindCoordinatorRequest, 4):
                    request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=[key])
                else:
                    request = FindCoordinatorRequest(key=key, key_type=int(kind))
                response = self.request(asked, request, deadline=deadline)
                if response.coordinators:
                    answer = response.coordinators[0]
                    code, node = answer.error_code, Node(answer.node_id, answer.host, answer.port)
                else:
                    code, node = response.error_code, Node(response.node_id, response.host, response.port)
                if code:
                    failure = broker_error(code, api="FindCoordinator", detail=f"(for {key!r})")
                    if error_info(code).action is Action.FATAL:
                        raise attempt.fatal(failure)
                    raise failure
                with self._lock:
                    self._nodes.setdefault(node.node_id, node)
                    self._coordinators[kind, key] = node.node_id
                return node.node_id
        raise attempt.gave_up("FindCoordinator")

    def coordinator_request(
        self,
        kind: CoordinatorKind,
        key: str,
        build: Callable[[int], Request[ResponseT]],
        error_codes: Callable[[ResponseT], Iterable[int]],
        *,
        deadline: Deadline | None = None,
        version_cap: int | None = None,
    ) -> ResponseT:
        """The response of a coordinator, on a connection of its own. Retried while it moves or loads (fault 3).

        Args:
            build: makes the request for a coordinator's node id (what it can say may depend on the broker's versions).
            error_codes: the codes in a response; retriable ones are retried, others left to the caller.
        """
        deadline = deadline or self._total()
        for attempt in self._tries(deadline):
            with attempt:
                node = self.coordinator(kind, key, deadline=deadline)
                try:
                    request = build(node)
                    pending = self.send(node, request, lane=COORDINATOR_LANE, version_cap=version_cap)
                    response = pending.result(deadline.sooner(self.settings.request_timeout_ms))
                except TransportError:
                    self.forget_coordinator(kind, key)
                    raise
                for code in error_codes(response):
                    action = error_info(code).action if code else Action.SUCCESS
                    if action is Action.FIND_COORDINATOR:
                        self.forget_coordinator(kind, key)
                    if action in (Action.FIND_COORDINATOR, Action.RETRY, Action.REFRESH_METADATA):
                        raise broker_error(code, broker=node, api=type(request).name, version=pending.version)
                return response
        raise attempt.gave_up(f"a request to the coordinator of {key!r}")

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """A coordinator has moved: find it anew before the next use."""
        with self._lock:
            self._coordinators.pop((kind, key), None)

    def supports(self, node_id: int, request: type[Request[Any]], version: int, *, lane: str = "main") -> bool:
        """Whether a broker and this client both speak a version of an API."""
        deadline = Deadline.after_ms(self.settings.request_timeout_ms)
        return self._channel(self._resolve(node_id, deadline), lane, deadline).protocol.supports(request, version)

    def finalized_feature(self, name: str) -> int:
        """The level at which the cluster has finalized a feature (KIP-584), 0 where it has not."""
        deadline = self._total()
        channel = self._channel(self._resolve(ANY, deadline), "main", deadline)
        return channel.protocol.finalized_features.get(name, 0)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _total(self) -> Deadline:
        return Deadline.after_ms(self.settings.default_api_timeout_ms)

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            # The sockets are the parent's: close our copies, without a word on them.
            self.close()

    def _tries(self, deadline: Deadline) -> Iterator[_Attempt]:
        """Attempts with growing pauses until the deadline; at least one."""
        n_failures = 0
        while True:
            yield _Attempt()
            n_failures += 1
            pause_ms = self._backoff.delay_ms(n_failures)
            if deadline.remaining_ms() <= pause_ms:
                return
            time.sleep(pause_ms / 1000)

    def _resolve(self, node_id: int, deadline: Deadline) -> int:
        with self._lock:
            self._check_fork()
            if node_id >= 0:
                return node_id
            if node_id == CONTROLLER:
                if self._controller not in self._nodes:
                    self._refresh([], deadline)
                if self._controller in self._nodes:
                    return self._controller
            if not self._nodes:
                self._refresh([], deadline)
            open_ones = [node for (node, lane), channel in self._channels.items() if lane == "main" and channel.usable]
            # Any of them, and not always the same one: it may be dead, and another try then finds another.
            return open_ones[0] if open_ones else random.choice(list(self._nodes))

    def _channel(self, node_id: int, lane: str, deadline: Deadline) -> Channel:
        with self._lock:
            self._check_fork()
            key = (node_id, lane)
            channel = self._channels.get(key)
            if channel is not None:
                if channel.session_ends:
                    channel.drain(deadline)
                if channel.usable:
                    return channel
                del self._channels[key]
                channel.close()
            node = self._nodes.get(node_id)
            if node is None:
                self._refresh([], deadline)
                node = self._nodes.get(node_id)
            if node is None:
                raise TransportError(f"no broker has node id {node_id} now", broker=node_id)
            channel = Channel(node.host, node.port, self.settings, self._trace, str(node))
            try:
                channel.open(deadline)
            except TransportError:
                self._stale.update(tp.topic for tp, (leader, _) in self._leaders.items() if leader == node_id)
                raise
            self._channels[key] = channel
            return channel

    def _learn_leaders(self, topics: set[str], deadline: Deadline) -> None:
        """One Metadata request for every topic that needs one, rather than one each."""
        with self._lock:
            self._check_fork()
            unknown = [topic for topic in topics if topic not in self._topics or topic in self._stale]
            if unknown:
                self._refresh(unknown, deadline)

    def _unreachable(self, group: Sequence[TopicPartition], error: TransportError) -> TransportError:
        for topic in {tp.topic for tp in group}:
            self.invalidate(topic)
        return error

    def _refresh(self, names: Sequence[str] | None, deadline: Deadline) -> None:
        """Ask for metadata until every named topic is there, or known not to be."""
        grace = deadline.sooner(_UNKNOWN_TOPIC_GRACE_MS)
        for _ in self._tries(deadline):
            failure = self._refresh_once(names, deadline)
            if failure is None:
                return
            info = error_info(failure.code)
            if not info.retriable or grace.expired:
                raise failure
        assert failure is not None
        raise failure

    def _refresh_once(self, names: Sequence[str] | None, deadline: Deadline) -> BrokerError | None:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        response, version = self._ask_anyone(request, deadline)
        if response.error_code:
            # REBOOTSTRAP_REQUIRED (KIP-1102): the brokers we know are no longer the cluster's.
            logger.info("the cluster asks for a new bootstrap (error %d)", response.error_code)
            self.close()
            return broker_error(response.error_code, api="Metadata", version=version)
        now = time.monotonic()
        self._answered = True
        self._nodes = brokers_of(response)
        self._controller = response.controller_id
        failure = None
        if names is None:
            self._topics.clear()
            self._leaders.clear()
            self._stale.clear()
            self._all_refreshed_at = now
        for entry in response.topics:
            name = entry.name or ""
            if entry.error_code and not (entry.error_code == 5 and entry.partitions):
                self._drop(name)
                if names is not None:
                    failure = failure or broker_error(entry.error_code, topic=name, api="Metadata", version=version)
                continue
            self._keep(topic_of(entry, version), now)
        return failure

    def _drop(self, name: str) -> None:
        old = self._topics.pop(name, None)
        self._refreshed_at.pop(name, None)
        self._stale.discard(name)
        for partition in old.partitions if old else ():
            self._leaders.pop(TopicPartition(name, partition), None)

    def _keep(self, topic: TopicMetadata, now: float) -> None:
        old = self._topics.get(topic.name)
        recreated = old is not None and old.topic_id != topic.topic_id
        self._topics[topic.name] = topic
        self._refreshed_at[topic.name] = now
        self._stale.discard(topic.name)
        for partition, metadata in topic.partitions.items():
            tp = TopicPartition(topic.name, partition)
            self._keep_leader(tp, metadata, recreated)

    def _keep_leader(self, tp: TopicPartition, metadata: PartitionMetadata, recreated: bool) -> None:
        known = self._leaders.get(tp)
        if metadata.leader < 0 or metadata.leader not in self._nodes:
            self._leaders.pop(tp, None)
        elif known is None or recreated or metadata.leader_epoch < 0 or metadata.leader_epoch >= known[1]:
            # A broker that lags behind must not send us back to an old leader (KIP-320).
            self._leaders[tp] = (metadata.leader, metadata.leader_epoch)

    def _ask_anyone(self, request: MetadataRequest, deadline: Deadline) -> tuple[Any, int]:
        """The first answer of any broker: one that is connected, another that is known, else a bootstrap server."""
        first_contact = deadline if self._answered else deadline.sooner(_FIRST_CONTACT_MS)
        attempts: list[tuple[str, str]] = []
        for _ in self._tries(first_contact):
            attempts.clear()
            for channel in self._candidates(first_contact, attempts):
                try:
                    pending = channel.send(request)
                    patience_ms = min(self.settings.request_timeout_ms, self._patience_ms)
                    return pending.result(first_contact.sooner(patience_ms)), pending.version
                except TransportError as error:
                    attempts.append((channel.address, error.message))
        raise NoBrokerAvailableError(attempts=tuple(attempts))

    @property
    def _patience_ms(self) -> float:
        # A broker that accepts connections and answers nothing (stopped, not dead) must not hold up the others.
        return self.settings.socket_connection_setup_timeout_ms

    def _candidates(self, deadline: Deadline, attempts: list[tuple[str, str]]) -> Iterator[Channel]:
        """Open channels one by one, the most promising first; failures to open go into ``attempts``."""
        connected = [n for (n, lane), channel in self._channels.items() if lane == "main" and channel.usable]
        for node_id in dict.fromkeys([*connected, *self._nodes]):
            node = self._nodes.get(node_id)
            if node is None:
                continue
            try:
                yield self._channel(node_id, "main", deadline)
            except TransportError as error:
                attempts.append((f"{node.host}:{node.port}", error.message))
        for host, port in self.settings.bootstrap_servers:
            if any((node.host, node.port) == (host, port) for node in self._nodes.values()):
                continue
            seed = Channel(host, port, self.settings, self._trace, f"{host}:{port}")
            try:
                seed.open(deadline)
            except TransportError as error:
                attempts.append((f"{host}:{port}", error.message))
                continue
            try:
                yield seed
            finally:
                seed.close()


class _Attempt(contextlib.AbstractContextManager["_Attempt"]):
    """One try: swallows what another try may mend, and keeps it for the error at the end."""

    def __init__(self) -> None:
        self.error: WireError | None = None
        self._is_fatal = False

    def fatal(self, error: WireError) -> WireError:
        """Mark an error as one that no further try can mend."""
        self._is_fatal = True
        return error

    def gave_up(self, api: str) -> WireError:
        """The error for a deadline that passed."""
        error = DeadlineExceededError(f"{api} did not succeed in time: {self.error}", api=api)
        error.__cause__ = self.error
        return error

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._is_fatal or not isinstance(error, TransportError | BrokerError):
            return False
        if isinstance(error, NoBrokerAvailableError | DeadlineExceededError) and error.__cause__ is not None:
            return False
        if isinstance(error, NoBrokerAvailableError):
            return False
        if isinstance(error, BrokerError) and not error.retriable:
            return False
        self.error = error
        return True


#: Clusters by (pid, settings): the documented per-process cache. Spark reuses its Python workers, so connections live on
#: from task to task. A forked child has another pid and starts afresh.
_shared: dict[tuple[int, ClientSettings], Cluster] = {}
_shared_lock = threading.Lock()


def shared_cluster(settings: ClientSettings) -> Cluster:
    """This process's cluster for ``settings``, credentials included; made on first use, never closed."""
    key = (os.getpid(), settings)
    with _shared_lock:
        cluster = _shared.get(key)
        if cluster is None:
            for old in [k for k in _shared if k[0] != key[0]]:
                del _shared[old]
            cluster = _shared[key] = Cluster(settings)
        return cluster


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partition numbers grouped by topic, as requests want them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
