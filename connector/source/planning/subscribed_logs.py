"""The topics and logs of a streaming query's subscription: what brokers are asked when it starts, and before each micro-batch.

Owns the requests, the age of what is known of the topics, and a second broker's response before one of them counts as lost. A
single metadata response is no proof of a loss: a broker that lags behind lacks a topic or its new partitions, and a moment
without the Describe permission hides it. Requests are repeated where a response looks like a loss, or a topic vanishes between
two of them. What the responses mean for the query is :mod:`~pykafka_wire.source.planning.micro_batch`'s to decide.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.options.source import SourceOptions, Subscription
from pykafka_wire.source.planning.micro_batch import (
    ComparedLogs,
    LogSnapshot,
    compare_logs,
    known_epochs,
    known_offsets,
)
from pykafka_wire.source.planning.offset_lookups import (
    earliest_offsets,
    epoch_ends,
    find_topics,
    latest_offsets,
    resolve_positions,
    topic_ids_of,
    topic_partitions,
)
from pykafka_wire.source.planning.trigger_limits import Offsets
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import ListedOffset
from pykafka_wire.wire.cluster.describe import topics_by_broker
from pykafka_wire.wire.cluster.metadata_cache import TopicMetadata
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.error_codes import ErrorCode
from pykafka_wire.wire.errors import BrokerError, TransportError, UnknownTopicError
from pykafka_wire.wire.topic_partitions import ZERO_UUID, TopicPartition

_log = logging.getLogger(__name__)

_NO_OFFSETS: Final[Offsets] = MappingProxyType({})

#: Metadata are refreshed this often at most, to find new partitions and topics; less often where a refresh takes long.
_METADATA_AGE_MS = 1_000
_METADATA_COST_FACTOR = 20
#: Brokers that are asked, at random, before a topic counts as lost: two of them have not given the first response.
_N_BROKERS: Final = 3
#: How many of them must respond, if the cluster has as many, unless the others do not respond.
_N_RESPONSES: Final = 2
#: How long they may take, each.
_BROKER_MS: Final = 2_000
#: How long to wait for brokers to agree: KRaft's brokers fetch metadata at least every 0.5 s (broker.heartbeat and
#: metadata.max.idle.interval.ms), so that one which is alive has caught up by then.
_AGREEMENT_MS: Final = 5_000
#: How long to wait for a second response: a broker that is silent for longer is no longer alive for the cluster
#: (broker.session.timeout.ms, 9 s by default), but a slow one may be the only one that does not lag behind.
_SILENCE_MS: Final = 15_000
_PAUSE_S: Final = 0.25
#: How long the other brokers' responses replace the first one. Longer where they still disagreed after the wait, or stayed silent:
#: the next wait would hold the query up again.
_VERDICT_S: Final = 1.0
_DISPUTED_VERDICT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopics:
    """Topics that the query reads, and those that may not be described now."""

    topics: Mapping[str, TopicMetadata]
    hidden: frozenset[str] = frozenset()


class _Verdict(NamedTuple):
    """The other brokers' responses about a topic whose first response contradicts the checkpoint.

    Attributes:
        first: the first response, None where it lacks the topic. The verdict holds for this response only.
        topic: the topic as the checkpoint has it, None where it is lost.
        until: when to ask again, a time of the monotonic clock.
    """

    first: tuple[uuid.UUID, frozenset[int]] | None
    topic: TopicMetadata | None
    hidden: bool
    until: float


class SubscribedTopics:
    """Finds the topics of one query's subscription."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        fail_on_data_loss: bool,
        max_age_ms: int | None = None,
    ) -> None:
        """Take ``max_age_ms``, for how long known topics are used; None for :data:`_METADATA_AGE_MS`, longer where a refresh
        is slow."""
        self._given_max_age_ms = max_age_ms
        self._cluster = cluster
        self._subscription = subscription
        self._fail_on_data_loss = fail_on_data_loss
        #: When metadata were refreshed last, and for how long they are used.
        self._found_at, self._max_age_ms = float("-inf"), 0.0
        self._missing: UnknownTopicError | None = None
        self._verdicts: dict[str, _Verdict] = {}
        #: The checkpoint that was seen last, and its partitions by topic: an idle query asks with the same one again and again.
        self._expected: tuple[QueryOffsets, dict[str, frozenset[int]]] | None = None
        self._warned: set[str] = set()

    def find(self, *, may_be_missing: bool = False, fresh: bool = False) -> dict[str, TopicMetadata]:
        """Return topics by name, from metadata of the last moment or ``fresh`` ones.

        Raises:
            UnknownTopicError: a topic that was named does not exist, and none ``may_be_missing``.
        """
        started = time.monotonic()
        due = fresh or (started - self._found_at) * 1000 >= self._max_age_ms
        try:
            topics = find_topics(
                self._cluster,
                self._subscription,
                max_age_ms=0 if due else self._max_age_ms,
                may_be_missing=self._missing is not None,
            )
        except UnknownTopicError as error:
            if not may_be_missing:
                raise
            self.set_missing(error)
            return self.find(may_be_missing=True, fresh=fresh)
        if self._missing is not None and self._missing.topic in topics:
            self._missing = None
        elif self._missing is not None and not may_be_missing:
            raise self._missing
        if due:
            took_ms = (time.monotonic() - started) * 1000
            usual_ms = max(_METADATA_AGE_MS, took_ms * _METADATA_COST_FACTOR)
            self._found_at = started
            self._max_age_ms = usual_ms if self._given_max_age_ms is None else self._given_max_age_ms
        return topics

    def set_missing(self, error: UnknownTopicError) -> None:
        """Remember that a named topic does not exist. From now on all topics are listed: asking by name waits for a missing one."""
        if not self._subscription.pattern:
            self._missing = error

    def find_for(
        self, checkpoint: QueryOffsets, *, fresh: bool = False, unknown_to_leaders: Collection[str] = ()
    ) -> FoundTopics:
        """Return topics for a query at ``checkpoint``. Other brokers are asked before one of the checkpoint is left out or
        changed.

        Args:
            unknown_to_leaders: topics that their leaders report as unknown.

        Raises:
            UnknownTopicError: a topic that a new query names does not exist; one that is not in the checkpoint does not, and
                ``failOnDataLoss`` is true.
            BrokerError: a topic may not be described, and it was named, or ``failOnDataLoss`` is true.
        """
        topics = self.find(may_be_missing=not checkpoint.initial, fresh=fresh)
        if self._expected is None or self._expected[0] is not checkpoint:
            self._expected = (checkpoint, _partitions_by_topic(checkpoint))
        expected = self._expected[1]
        if self._missing is not None and self._fail_on_data_loss and self._missing.topic not in expected:
            raise self._missing
        doubtful = {
            name: partitions
            for name, partitions in expected.items()
            if self._is_subscribed(name) and not _agrees(topics.get(name), checkpoint.topic_ids.get(name), partitions)
        }
        self._verdicts = {name: verdict for name, verdict in self._verdicts.items() if name in doubtful}
        if not doubtful:
            return FoundTopics(topics=topics)
        topics = dict(topics)
        now = time.monotonic()
        undecided = {
            name: partitions
            for name, partitions in doubtful.items()
            if (verdict := self._verdicts.get(name)) is None
            or verdict.first != _identity(topics.get(name))
            or verdict.until < now
            or name in unknown_to_leaders
        }
        if undecided:
            self._ask_other_brokers(topics, checkpoint.topic_ids, undecided, unknown_to_leaders)
        for name in doubtful:
            verdict = self._verdicts[name]
            if verdict.topic is not None:
                topics[name] = verdict.topic
        return FoundTopics(topics=topics, hidden=frozenset(name for name in doubtful if self._verdicts[name].hidden))

    def _ask_other_brokers(
        self,
        topics: Mapping[str, TopicMetadata],
        topic_ids: Mapping[str, uuid.UUID],
        doubtful: Mapping[str, frozenset[int]],
        unknown_to_leaders: Collection[str],
    ) -> None:
        """Fill ``_verdicts`` of the doubtful topics; waits for a while where brokers disagree, or do not respond.

        Raises:
            TransportError: no broker responds for as long as any other request may take.
        """
        agreement, silence = Deadline.after_ms(_AGREEMENT_MS), Deadline.after_ms(_SILENCE_MS)
        patience = Deadline.of_call(self._cluster.settings)
        while True:
            node_ids = list(self._cluster.metadata.brokers())
            asked = random.sample(node_ids, min(_N_BROKERS, len(node_ids)))
            try:
                responses = list(topics_by_broker(self._cluster, asked, doubtful, broker_ms=_BROKER_MS).values())
            except TransportError:
                if patience.expired:
                    raise
                time.sleep(_PAUSE_S)
                continue
            agreeing = {
                name: [
                    topic
                    for response in responses
                    if isinstance(topic := response.get(name), TopicMetadata)
                    and _agrees(topic, topic_ids.get(name), partitions)
                ]
                for name, partitions in doubtful.items()
            }
            enough = len(responses) >= min(_N_RESPONSES, len(asked))
            agreed = all(len(agreeing_brokers) in (0, len(responses)) for agreeing_brokers in agreeing.values())
            if silence.expired or (enough and (agreed or agreement.expired)):
                break
            time.sleep(_PAUSE_S)
        now = time.monotonic()
        for name, kept in agreeing.items():
            denied = [
                error
                for response in responses
                if isinstance(error := response.get(name), BrokerError)
                and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ]
            # A broker that still lists a topic which its leader no longer knows is the one that lags behind.
            stale = name in unknown_to_leaders and len(kept) < len(responses)
            topic = kept[0] if kept and not stale else None
            hidden = not kept and bool(denied)
            if hidden:
                self._set_hidden(name, denied[0])
            until = float("inf")
            if topic is not None or hidden:
                until = now + (_DISPUTED_VERDICT_S if 0 < len(kept) < len(responses) or not enough else _VERDICT_S)
            self._verdicts[name] = _Verdict(_identity(topics.get(name)), topic, hidden, until)
            _log.debug("%s: %d of %d brokers agree with the checkpoint", name, len(kept), len(responses))

    @property
    def may_hide(self) -> bool:
        """Return whether the query goes on without a topic that may not be described for a while."""
        return bool(self._subscription.pattern) and not self._fail_on_data_loss

    def _set_hidden(self, name: str, error: BrokerError) -> None:
        if not self.may_hide:
            raise error
        log = _log.debug if name in self._warned else _log.warning
        self._warned.add(name)
        log("Topic %s may not be described now: it is not read until the Describe permission is back. %s", name, error)

    def _is_subscribed(self, name: str) -> bool:
        if self._subscription.pattern:
            return self._subscription.matches(name)
        return name in self._subscription.topics or any(tp.topic == name for tp in self._subscription.assigned)


def _partitions_by_topic(checkpoint: QueryOffsets) -> dict[str, frozenset[int]]:
    by_topic: dict[str, set[int]] = {}
    for topic, partition in checkpoint.offsets:
        by_topic.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in by_topic.items()}


def _agrees(topic: TopicMetadata | None, topic_id: uuid.UUID | None, partitions: frozenset[int]) -> bool:
    """Return whether a response has a topic as the checkpoint knows it."""
    if topic is None or not topic.partitions.keys() >= partitions:
        return False
    return topic_id is None or topic.topic_id in (topic_id, ZERO_UUID)


def _identity(topic: TopicMetadata | None) -> tuple[uuid.UUID, frozenset[int]] | None:
    return None if topic is None else (topic.topic_id, frozenset(topic.partitions))


ResultT = TypeVar("ResultT")

#: A topic may vanish, or be recreated, between two requests: then all of them are repeated, with fresh metadata. Two topics may
#: vanish one after the other.
_ATTEMPTS: Final = 3


class SubscribedLogs:
    """Looks up the logs of one query's subscription."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._topics = SubscribedTopics(
            cluster,
            options.subscription,
            fail_on_data_loss=options.fail_on_data_loss,
            max_age_ms=options.topics_max_age_ms,
        )
        #: (leader epoch in the checkpoint, leader epoch now) of logs that were found not to be truncated.
        self._intact: dict[TopicPartition, tuple[int, int]] = {}

    def _ask(
        self,
        question: Callable[[Mapping[str, TopicMetadata], list[TopicPartition]], ResultT],
        *,
        may_be_missing: bool = False,
    ) -> ResultT:
        """Return the response to a question about the topics and topic-partitions that the query reads; asked again where a topic
        vanishes in that moment.

        Raises:
            UnknownTopicError: a topic that was named does not exist, and none ``may_be_missing``.
        """
        for attempt in range(_ATTEMPTS):
            topics = self._topics.find(may_be_missing=may_be_missing, fresh=attempt > 0)
            try:
                return question(topics, topic_partitions(self._options.subscription, topics))
            except UnknownTopicError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise
                self._topics.set_missing(error)
        raise AssertionError("unreachable")

    def starting_offsets(self) -> QueryOffsets:
        """Return where a new query starts.

        Raises:
            OptionError, OffsetsError: the starting offsets do not fit the topics, or there are none.
            UnknownTopicError: a topic that was named does not exist.
        """
        cluster, options = self._cluster, self._options

        def question(topics: Mapping[str, TopicMetadata], partitions: list[TopicPartition]) -> QueryOffsets:
            if options.starting_offsets.checkpoint is not None:
                from pykafka_wire.source.planning.checkpoint_reads import (
                    start_at_checkpoint,
                )  # hardly any query needs it

                return start_at_checkpoint(
                    cluster, options.starting_offsets.checkpoint, options.subscription, topics, partitions
                )
            positions = resolve_positions(
                cluster, options.starting_offsets, partitions,
                option="startingOffsets", isolation_level=options.client.isolation_level, group=options.group_id,
            )  # fmt: skip
            return QueryOffsets(
                offsets={tp: position.offset for tp, position in positions.items()},
                epochs={tp: position.leader_epoch for tp, position in positions.items() if position.leader_epoch >= 0},
                topic_ids=topic_ids_of(topics),
            )

        return self._ask(question)

    def last_offsets(self) -> dict[TopicPartition, int]:
        """Return the end of each log now: where an AvailableNow query ends."""
        isolation_level = self._options.client.isolation_level

        def question(_: object, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {
                tp: listed.offset for tp, listed in latest_offsets(self._cluster, partitions, isolation_level).items()
            }

        # Not known yet: whether the query is new. A missing topic is reported when the first micro-batch is planned.
        return self._ask(question, may_be_missing=True)

    def look_up(self, checkpoint: QueryOffsets, seen: Offsets = _NO_OFFSETS) -> ComparedLogs:
        """Return a snapshot of the logs, compared with the ``checkpoint`` of the query.

        Args:
            seen: offsets that logs have reached before. Where one ends earlier now, its topic may be another one, so metadata are
                asked for again.

        Raises:
            UnknownTopicError: a topic that a new query names does not exist.
            BrokerError: a topic may not be described.
        """
        unknown: set[str] = set()
        unseen: set[TopicPartition] = set()
        for attempt in range(_ATTEMPTS):
            fresh = attempt > 0
            subscribed = self._topics.find_for(checkpoint, fresh=fresh, unknown_to_leaders=unknown)
            partitions = topic_partitions(self._options.subscription, subscribed.topics)
            known = known_offsets(checkpoint, topic_ids_of(subscribed.topics))
            try:
                logs = self._look_up_once(checkpoint, subscribed, partitions, known, unseen)
            except UnknownTopicError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise
                self._topics.set_missing(error)
                unknown.add(error.topic or "")
                unseen.update(tp for tp in partitions if tp not in known)
                continue
            except BrokerError as error:
                # The metadata are older than the loss of a permission: fresh ones leave the topic out.
                if (
                    not (self._topics.may_hide and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    or attempt + 1 == _ATTEMPTS
                ):
                    raise
                continue
            ends = logs.snapshot.latest
            if fresh or not (logs.shortened or any(tp in ends and ends[tp].offset < end for tp, end in seen.items())):
                return logs
        raise AssertionError("unreachable")

    def _look_up_once(
        self,
        checkpoint: QueryOffsets,
        subscribed: FoundTopics,
        partitions: Collection[TopicPartition],
        known: Offsets,
        unseen: Collection[TopicPartition],
    ) -> ComparedLogs:
        latest = latest_offsets(self._cluster, partitions, self._options.client.isolation_level)
        epochs = known_epochs(checkpoint, topic_ids_of(subscribed.topics))
        added = [tp for tp in partitions if tp not in known]
        snapshot = LogSnapshot(
            latest=latest,
            topic_ids=topic_ids_of(subscribed.topics),
            earliest=earliest_offsets(self._cluster, added) if added else {},
            epoch_ends=self._epoch_ends(epochs, known, latest),
            hidden=subscribed.hidden,
            vanished=tuple(sorted(tp for tp in unseen if tp not in latest)),
        )
        logs = compare_logs(known, snapshot)
        for tp in snapshot.epoch_ends.keys() - logs.truncated.keys():
            self._intact[tp] = (epochs[tp], latest[tp].leader_epoch)
        if self._options.client.isolation_level != "read_committed":
            return logs
        # Read beyond the last stable offset, before the query was read_committed: is there still what was read?
        held = logs.shortened.keys() - logs.truncated.keys()
        if not held:
            return logs
        written = latest_offsets(self._cluster, held, "read_uncommitted")
        return compare_logs(
            known, replace(snapshot, high_watermarks={tp: listed.offset for tp, listed in written.items()})
        )

    def _epoch_ends(
        self,
        epochs: Mapping[TopicPartition, int],
        known: Offsets,
        latest: Mapping[TopicPartition, ListedOffset],
    ) -> dict[TopicPartition, int]:
        """Return where the present leaders' logs end for the leader epochs in the checkpoint, where another one leads (KIP-320)."""
        asked = {
            tp: epoch
            for tp, epoch in epochs.items()
            if tp in latest and tp in known and self._intact.get(tp) != (epoch, latest[tp].leader_epoch)
        }
        return epoch_ends(self._cluster, asked, latest)
