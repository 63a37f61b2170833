"""What is known of a cluster: its brokers, topics and leaders, learnt when first needed and again when out of date.

Owns when to make a Metadata request (https://kafka.apache.org/protocol#The_Messages_Metadata), for which topics, and what threads
share of what is known. Whom to ask is :mod:`~pykafka_wire.wire.cluster.metadata_source`'s, what a response says
:mod:`~pykafka_wire.wire.cluster.metadata_cache`'s; it makes no other request.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pykafka_wire.wire.cluster.connection_pool import ConnectionPool
from pykafka_wire.wire.cluster.metadata_cache import Broker, MetadataCache, TopicMetadata
from pykafka_wire.wire.cluster.metadata_source import MetadataSource
from pykafka_wire.wire.cluster.retries import Backoff, Retry
from pykafka_wire.wire.connection.counters import ClientCounters
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import (
    BrokerError,
    DeadlineExceededError,
    TransportError,
    UnknownTopicError,
    WireError,
    broker_error,
)
from pykafka_wire.wire.protocol.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from pykafka_wire.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykafka_wire.wire.settings import ClientSettings
from pykafka_wire.wire.topic_partitions import TopicPartition, similar_names

logger = logging.getLogger(__name__)

#: Topics that one Metadata request asks for on top of the one that is needed, because they are out of date as well.
_MAX_MORE_TOPICS: Final = 1_000
#: For listing all topics, only to suggest one in an error.
_SUGGESTIONS_MS: Final = 3_000


class LeaderLookup(NamedTuple):
    """What is known of the leaders of some topic-partitions.

    Attributes:
        leaders: (node id, leader epoch) of each that has a leader.
        topic_ids: the id of each topic that stands in ``leaders``,
            :data:`~pykafka_wire.wire.topic_partitions.ZERO_UUID` if it has none.
        errors: why each of the others has none now.
    """

    leaders: dict[TopicPartition, tuple[int, int]]
    topic_ids: dict[str, uuid.UUID]
    errors: dict[TopicPartition, WireError]


class Metadata:
    """What a client knows of its cluster. Threads may share it; a forked child keeps what is known."""

    def __init__(self, settings: ClientSettings, connections: ConnectionPool, counters: ClientCounters) -> None:
        self._settings = settings
        self._connections = connections
        self._counters = counters
        self._backoff = Backoff(settings)
        self._source = MetadataSource(settings, connections, self._backoff)
        # KIP-1242: what is known of the cluster is out of date, or leads to another cluster. All connections are closed, as by the
        # Java client (NetworkClient.handleApiVersionsResponse): any of them may be another cluster's.
        connections.on_misrouted = lambda error: self._rebootstrap(error.text)
        #: Guards the cache, never a wait.
        self._lock = threading.Lock()
        self._cache = MetadataCache()

    def forget(self) -> None:
        """Forget all that is known of the cluster."""
        with self._lock:
            self._cache = MetadataCache()

    def after_fork(self) -> None:
        """Begin anew in a forked child: a thread that it does not have may have held the lock, with a response half taken in."""
        if self._lock.locked():
            self._cache = MetadataCache()
        self._lock = threading.Lock()

    def topics(
        self, names: Iterable[str] | None, *, max_age_ms: float = 0, deadline: Deadline | None = None
    ) -> dict[str, TopicMetadata]:
        """Return metadata of topics by name; of all topics for None. Never creates a topic.

        Args:
            max_age_ms: what was learnt not longer ago is not asked for again.

        Raises:
            UnknownTopicError: a topic does not exist (said so for some seconds).
            BrokerError: a topic may not be described, or its name is impossible.
            NoBrokerAvailableError: no broker responds.
        """
        oldest = time.monotonic() - max_age_ms / 1000
        wanted = None if names is None else list(dict.fromkeys(names))
        with self._lock:
            cache = self._cache
            if wanted is None:
                missing: list[str] | None = [] if cache.all_fresh(oldest) else None
            else:
                missing = [name for name in wanted if not cache.is_fresh(name, oldest)]
        for _ in range(2):  # a new bootstrap forgets what was fresh
            if missing != []:
                try:
                    cache = self._refresh(missing, deadline or Deadline.of_call(self._settings))
                except UnknownTopicError as error:
                    self._suggest_topics(error)
                    raise
            with self._lock:
                if wanted is None:
                    return dict(cache.topics)
                missing = [name for name in wanted if name not in cache.topics]
                if not missing:
                    return {name: cache.topics[name] for name in wanted}
        # The responses leave it out.
        raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=next(iter(missing or ()), None), api="Metadata")

    def existing_topics(self, names: Iterable[str], *, deadline: Deadline) -> dict[str, TopicMetadata]:
        """Return those of the topics that exist, as a broker describes them now; waits for no other to be created.

        Raises:
            NoBrokerAvailableError: no broker responds.
        """
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        retry = Retry(self._backoff, deadline, self._counters)
        cache, failures = retry.run(lambda: self._refresh_once(wanted, deadline), "Metadata")
        with self._lock:
            return {name: cache.topics[name] for name in wanted if name not in failures and name in cache.topics}

    def _suggest_topics(self, error: UnknownTopicError) -> None:
        """Name topics that are called nearly like the unknown one, in the error's remedy; a typing error is the likely cause."""
        try:
            every = self.topics(None, deadline=Deadline.after_ms(_SUGGESTIONS_MS))
        except WireError as other:
            logger.debug("no topics to suggest: %s", other)
            return
        near = similar_names(error.topic or "", every)
        if near:
            error.remedy = f"Did you mean {' or '.join(near)}? {error.remedy}"

    def brokers(self, *, refresh: bool = False, deadline: Deadline | None = None) -> dict[int, Broker]:
        """Return the brokers of the last metadata by node id, never none; asks where none is known yet, or to ``refresh`` them."""
        with self._lock:
            brokers = {} if refresh else dict(self._cache.nodes)
        if not brokers:
            cache = self._refresh([], deadline or Deadline.of_call(self._settings))
            with self._lock:
                brokers = dict(cache.nodes)
        return brokers

    def broker(self, node_id: int, *, deadline: Deadline | None = None) -> Broker:
        """Return a broker; asks where it is not known yet.

        Raises:
            TransportError: the cluster has no such broker.
        """
        broker = self.known_broker(node_id) or self.brokers(refresh=True, deadline=deadline).get(node_id)
        if broker is None:
            raise TransportError(f"the cluster has no broker {node_id} now", broker=node_id)
        return broker

    def known_broker(self, node_id: int) -> Broker | None:
        """Return a broker, None where it is not known. Never asks."""
        with self._lock:
            return self._cache.nodes.get(node_id)

    def controller(self, *, deadline: Deadline | None = None) -> Broker | None:
        """Return the controller, or the broker that stands in for it (KRaft brokers forward what is for it); None while there
        is none.
        """
        for is_last in (False, True):
            with self._lock:
                broker = self._cache.nodes.get(self._cache.controller)
            if broker is not None or is_last:
                break
            self._refresh([], deadline or Deadline.of_call(self._settings))
        return broker

    def forget_controller(self) -> None:
        """Forget that a broker is the controller: ask before the next use."""
        with self._lock:
            self._cache.controller = -1

    def leader(self, tp: TopicPartition, *, deadline: Deadline | None = None) -> tuple[int, int]:
        """Return broker id and leader epoch (-1 if unknown) of a topic-partition's leader; waits for one to be elected.

        Raises:
            UnknownTopicError: there is no such topic or partition (said so for some seconds).
            DeadlineExceededError: it has no leader.
        """
        with self._lock:
            leader = self._cache.leader(tp, time.monotonic() - self._settings.metadata_max_age_ms / 1000)
        if leader is not None:
            return leader
        deadline = deadline or Deadline.of_call(self._settings)
        retry = Retry(self._backoff, deadline, self._counters)

        def look_up() -> tuple[int, int]:
            lookup = self.leaders([tp], deadline=deadline)
            if tp in lookup.errors:
                raise lookup.errors[tp]
            return lookup.leaders[tp]

        try:
            return retry.run(look_up, f"finding the leader of {tp}")
        except DeadlineExceededError as error:
            if isinstance(retry.last, UnknownTopicError):
                raise retry.last from None
            if isinstance(retry.last, BrokerError):  # brokers did respond: what is missing is a leader
                error.remedy = "Its replicas are offline: check the brokers."
            raise

    def leaders(self, partitions: Iterable[TopicPartition], *, deadline: Deadline | None = None) -> LeaderLookup:
        """Return the leaders of topic-partitions, after at most one Metadata request for all that are unknown (two if a new
        bootstrap comes in between).

        Does not wait for elections: a partition without a leader is one of the errors, and delays no other partition. A
        topic is asked for at most once in half of ``retry.backoff.ms``, however many of its partitions have no leader.

        Args:
            deadline: for the response to the Metadata request.

        Raises:
            AuthenticationError, SettingsError: no request can succeed.
        """
        partitions = list(partitions)
        now = time.monotonic()
        oldest = now - self._settings.metadata_max_age_ms / 1000
        failure: WireError | None = None
        # A new bootstrap forgets what was fresh: then a second request asks for it.
        for is_last in (False, False, True):
            with self._lock:
                # All at once: a response may contradict what was known before, and another thread's request too.
                leaders, unknown = self._cache.leaders(partitions, oldest)
                # Half of the pause, because jitter shortens the pauses of those who ask again.
                due = self._cache.topics_described_before(
                    {tp.topic for tp in unknown}, now - self._backoff.first_ms / 2000
                )
                if is_last or not due or failure is not None:
                    errors = {tp: failure or self._cache.leader_error(tp) for tp in unknown}
                    topic_ids = {tp.topic: self._cache.topics[tp.topic].topic_id for tp in leaders}
                    break
            try:
                self._refresh_once(due, deadline or Deadline.of_call(self._settings))
            except TransportError as error:
                failure = error
        return LeaderLookup(leaders, topic_ids, errors)

    def invalidate(self, where: TopicPartition | str) -> None:
        """Note that what is known of a leader, or of a whole topic, is out of date: ask before the next use."""
        with self._lock:
            if isinstance(where, TopicPartition):
                self._cache.invalidate(where.topic, where.partition)
            else:
                self._cache.invalidate(where)

    def invalidate_broker(self, node_id: int) -> None:
        """Note that a broker cannot be reached: whatever it leads may have another leader by now."""
        with self._lock:
            self._cache.invalidate_node(node_id)

    def coordinator(self, kind: int, key: str) -> int | None:
        """Return node id of a coordinator as it was found, None where none was. Never asks."""
        with self._lock:
            return self._cache.coordinators.get((kind, key))

    def keep_coordinator(self, kind: int, key: str, node_id: int, host: str, port: int) -> None:
        """Keep where a coordinator was found: it may have moved since the last metadata."""
        with self._lock:
            self._cache.coordinators[kind, key] = self._cache.update_node(node_id, host, port).node_id

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Forget a coordinator, which has moved: find it anew before the next use."""
        with self._lock:
            self._cache.coordinators.pop((kind, key), None)

    def redirect(
        self,
        tp: TopicPartition,
        refused_by: int,
        *,
        epoch: int = -1,
        hint: tuple[int, int] = (-1, -1),
        endpoint: tuple[str, int] | None = None,
    ) -> bool:
        """Note that a broker has responded that it does not lead a topic-partition; return whether another leader is known now.

        If so, from its hint (KIP-951) or from an earlier response, the request may go there at once. If not, the leader is
        looked up before the next use, and a retry must pause first. A hint counts only with a newer epoch than the
        known one: two brokers that name each other would be asked without end.

        Args:
            refused_by: the broker's node id.
            epoch: the leader epoch that the request carried, -1 if none.
            hint: node id and epoch of the leader that the broker names, node id -1 for none.
            endpoint: host and port of that leader, where the response has them.
        """
        with self._lock:
            if hint[0] >= 0 and self._cache.update_leader(tp, *hint, endpoint):
                logger.debug("%s: broker %d leads in epoch %d", tp, *hint)
            known = self._cache.leader(tp)
            if known is not None and (known[0] != refused_by or known[1] > epoch >= 0):
                return True
            self._cache.invalidate(tp.topic, tp.partition)
            return False

    def follow_hint(
        self,
        tp: TopicPartition,
        refused_by: int,
        leader: LeaderIdAndEpoch,
        endpoints: Iterable[NodeEndpoint],
        *,
        epoch: int = -1,
    ) -> bool:
        """Return what :meth:`redirect` does, with the leader and the endpoints that the response to a Fetch or Produce names
        (KIP-951)."""
        where = next(((end.host, end.port) for end in endpoints if end.node_id == leader.leader_id), None)
        hint = leader.leader_id, leader.leader_epoch
        return self.redirect(tp, refused_by, epoch=epoch, hint=hint, endpoint=where)

    def topic_id(self, topic: str) -> uuid.UUID:
        """Return the id of a topic, :data:`~pykafka_wire.wire.topic_partitions.ZERO_UUID` where brokers have none."""
        return self.topics([topic], max_age_ms=self._settings.metadata_max_age_ms)[topic].topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name of a topic whose id is known from metadata."""
        with self._lock:
            return self._cache.topic_name(topic_id)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _refresh(self, names: Sequence[str] | None, deadline: Deadline) -> MetadataCache:
        """Ask for metadata until every named topic is there, or known not to be; the cache that has the response."""
        retry = Retry(self._backoff, deadline, self._counters)

        def ask() -> MetadataCache:
            cache, failures = self._refresh_once(names, deadline)
            for name in names or ():
                if name in failures:
                    raise broker_error(failures[name], topic=name, api="Metadata")
            return cache

        try:
            return retry.run(ask, "Metadata")
        except DeadlineExceededError:
            if isinstance(retry.last, BrokerError):
                raise retry.last from None
            raise

    def _refresh_once(self, names: Sequence[str] | None, deadline: Deadline) -> tuple[MetadataCache, dict[str, int]]:
        """Send one Metadata request; return the cache that has its response, and the topics with an error code in it."""
        self._rebootstrap_if_due()
        with self._lock:
            nodes = list(self._cache.nodes.values())
            more = self._cache.stale_topics()[:_MAX_MORE_TOPICS] if names else []
        wanted = None if names is None else dict.fromkeys([*names, *more])
        request = MetadataRequest(
            topics=None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted],
            allow_auto_topic_creation=False,
        )
        response, version = self._source.ask(request, nodes, deadline)
        if response.error_code and self._settings.metadata_recovery_strategy != "none":
            # REBOOTSTRAP_REQUIRED (KIP-1102): the brokers we know are no longer the cluster's.
            self._rebootstrap(f"a broker asked for it (error {response.error_code})")
            raise TransportError("the cluster asks for a new bootstrap", api="Metadata", version=version)
        with self._lock:
            self._connections.cluster_id = response.cluster_id
            return self._cache, self._cache.apply(response, version, time.monotonic(), everything=names is None)

    def _rebootstrap_if_due(self) -> None:
        """Forget brokers that have given no metadata for long: they may be another cluster's by now (KIP-1102)."""
        silent_ms = self._source.silence.seconds() * 1000
        if (
            self._settings.metadata_recovery_strategy != "none"
            and self._cache.nodes
            and silent_ms > self._settings.metadata_recovery_rebootstrap_trigger_ms
        ):
            self._rebootstrap(f"no metadata for {silent_ms / 1000:.0f} s")

    def _rebootstrap(self, why: str) -> None:
        logger.info("starting over from the bootstrap servers: %s", why)
        self.forget()
        self._connections.cluster_id = None
        self._source.silence.forget()
        self._connections.close()
