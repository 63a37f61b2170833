"""The topics that a streaming query reads, and a second broker's response before one of them counts as lost.

Owns the age of this knowledge and the comparison of brokers. A single metadata response is no proof of a loss: a broker that lags
behind lacks a topic or its new partitions, and a moment without the Describe permission hides it.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.options.source import Subscription
from pykafka_wire.source.planning.offset_lookups import find_topics
from pykafka_wire.wire.cluster.cluster import Cluster, Deadline
from pykafka_wire.wire.cluster.describe import topics_by_broker
from pykafka_wire.wire.cluster.metadata_view import TopicMetadata
from pykafka_wire.wire.errors import BrokerError, TransportError, UnknownTopicError
from pykafka_wire.wire.topic_partitions import ZERO_UUID

_log = logging.getLogger(__name__)

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
#: The error of a topic that may not be described, or read.
TOPIC_DENIED: Final = "TOPIC_AUTHORIZATION_FAILED"


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

    def __init__(self, cluster: Cluster, subscription: Subscription, *, fail_on_data_loss: bool) -> None:
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
        """Topics by name, from metadata of the last moment or ``fresh`` ones.

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
            self._found_at, self._max_age_ms = started, max(_METADATA_AGE_MS, took_ms * _METADATA_COST_FACTOR)
        return topics

    def set_missing(self, error: UnknownTopicError) -> None:
        """Remember that a named topic does not exist. From now on all topics are listed: asking by name waits for a missing one."""
        if not self._subscription.pattern:
            self._missing = error

    def find_for(
        self, checkpoint: QueryOffsets, *, fresh: bool = False, unknown_to_leaders: Collection[str] = ()
    ) -> FoundTopics:
        """Topics for a query at ``checkpoint``. Other brokers are asked before one of the checkpoint is left out or changed.

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
            agreed = all(len(each) in (0, len(responses)) for each in agreeing.values())
            if silence.expired or (enough and (agreed or agreement.expired)):
                break
            time.sleep(_PAUSE_S)
        now = time.monotonic()
        for name, kept in agreeing.items():
            denied = [
                error
                for response in responses
                if isinstance(error := response.get(name), BrokerError) and error.name == TOPIC_DENIED
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
        """Whether the query goes on without a topic that may not be described for a while."""
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


def topic_ids_of(topics: Mapping[str, TopicMetadata]) -> dict[str, uuid.UUID]:
    """Ids of topics by name; old brokers have none."""
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id != ZERO_UUID}


def _partitions_by_topic(checkpoint: QueryOffsets) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for topic, partition in checkpoint.offsets:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in found.items()}


def _agrees(topic: TopicMetadata | None, topic_id: uuid.UUID | None, partitions: frozenset[int]) -> bool:
    """Whether a response has a topic as the checkpoint knows it."""
    if topic is None or not topic.partitions.keys() >= partitions:
        return False
    return topic_id is None or topic.topic_id in (topic_id, ZERO_UUID)


def _identity(topic: TopicMetadata | None) -> tuple[uuid.UUID, frozenset[int]] | None:
    return None if topic is None else (topic.topic_id, frozenset(topic.partitions))
