"""A snapshot of the logs that a streaming query reads: what brokers are asked before a micro-batch is planned.

Owns the requests, and repeats them where an answer looks like a loss, or a topic vanishes between two requests. What the
answers mean for the query is :mod:`~pykafka_wire.source.planning.micro_batch`'s to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from pykafka_wire.checkpoint_offsets import QueryOffsets
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.planning.micro_batch import LogSnapshot, known_offsets, shortened_logs, truncated_logs
from pykafka_wire.source.planning.offset_lookups import earliest_offsets, latest_offsets, topic_partitions
from pykafka_wire.source.planning.subscribed_topics import TOPIC_DENIED, FoundTopics, SubscribedTopics, topic_ids_of
from pykafka_wire.source.planning.trigger_limits import Offsets
from pykafka_wire.wire.cluster.admin import ListedOffset, offsets_for_leader_epoch
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.cluster.metadata_view import TopicMetadata
from pykafka_wire.wire.errors import BrokerError, UnknownTopicError
from pykafka_wire.wire.topic_partitions import TopicPartition

ResultT = TypeVar("ResultT")

#: A topic may vanish, or be recreated, between two requests: then all of them are repeated, with fresh metadata. Two topics may
#: vanish one after the other.
_ATTEMPTS: Final = 3


class LogSnapshots:
    """Takes snapshots of all logs of one query's subscription."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._topics = SubscribedTopics(cluster, options.subscription, fail_on_data_loss=options.fail_on_data_loss)
        #: (leader epoch in the checkpoint, leader epoch now) of logs that were found not to be truncated.
        self._intact: dict[TopicPartition, tuple[int, int]] = {}

    def ask(
        self,
        question: Callable[[Mapping[str, TopicMetadata], list[TopicPartition]], ResultT],
        *,
        may_be_missing: bool = False,
    ) -> ResultT:
        """The answer to a question about the topics and topic-partitions that the query reads; asked again where a topic
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

    def last_offsets(self) -> dict[TopicPartition, int]:
        """The end of each log now: where an AvailableNow query ends."""
        isolation_level = self._options.client.isolation_level

        def question(_: object, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {
                tp: found.offset for tp, found in latest_offsets(self._cluster, partitions, isolation_level).items()
            }

        # Not known yet: whether the query is new. A missing topic is reported when the first micro-batch is planned.
        return self.ask(question, may_be_missing=True)

    def take(self, checkpoint: QueryOffsets) -> LogSnapshot:
        """A snapshot of the logs, for a query at ``checkpoint``.

        Raises:
            UnknownTopicError: a topic that a new query names does not exist.
            BrokerError: a topic may not be described.
        """
        unknown: set[str] = set()
        unseen: set[TopicPartition] = set()
        for attempt in range(_ATTEMPTS):
            fresh = attempt > 0
            found = self._topics.find_for(checkpoint, fresh=fresh, unknown_to_leaders=unknown)
            partitions = topic_partitions(self._options.subscription, found.topics)
            known = known_offsets(checkpoint, topic_ids_of(found.topics))
            try:
                snapshot = self._look_up(checkpoint, found, partitions, known)
            except UnknownTopicError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise
                self._topics.set_missing(error)
                unknown.add(error.topic or "")
                unseen.update(tp for tp in partitions if tp not in known)
                continue
            except BrokerError as error:
                # The metadata are older than the loss of a permission: fresh ones leave the topic out.
                if not (self._topics.may_hide and error.name == TOPIC_DENIED) or attempt + 1 == _ATTEMPTS:
                    raise
                continue
            if fresh or not shortened_logs(known, snapshot):
                return replace(snapshot, vanished=tuple(sorted(unseen - snapshot.latest.keys())))
        raise AssertionError("unreachable")

    def _look_up(
        self,
        checkpoint: QueryOffsets,
        found: FoundTopics,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, int],
    ) -> LogSnapshot:
        latest = latest_offsets(self._cluster, partitions, self._options.client.isolation_level)
        added = [tp for tp in partitions if tp not in known]
        snapshot = LogSnapshot(
            latest=latest,
            topic_ids=topic_ids_of(found.topics),
            earliest=earliest_offsets(self._cluster, added) if added else {},
            epoch_ends=self._epoch_ends(checkpoint, known, latest),
            hidden=found.hidden,
        )
        self._remember_intact(checkpoint, known, snapshot)
        if self._options.client.isolation_level != "read_committed":
            return snapshot
        # Read beyond the last stable offset, before the query was read_committed: is there still what was read?
        truncated = truncated_logs(known, snapshot)
        held = [tp for tp in shortened_logs(known, snapshot) if tp not in truncated]
        if not held:
            return snapshot
        written = latest_offsets(self._cluster, held, "read_uncommitted")
        return replace(snapshot, high_watermarks={tp: each.offset for tp, each in written.items()})

    def _epoch_ends(
        self, checkpoint: QueryOffsets, known: Offsets, latest: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, int]:
        """Where the present leaders' logs end for the leader epochs in the checkpoint, where another one leads (KIP-320)."""
        asked = {
            tp: epoch
            for tp, epoch in checkpoint.epochs.items()
            if tp in latest and tp in known and known[tp] == checkpoint.offsets.get(tp)
            and latest[tp].leader_epoch not in (-1, epoch)
            and self._intact.get(tp) != (epoch, latest[tp].leader_epoch)
        }  # fmt: skip
        if not asked:
            return {}
        return {tp: end for tp, (_, end) in offsets_for_leader_epoch(self._cluster, asked).items()}

    def _remember_intact(self, checkpoint: QueryOffsets, known: Offsets, snapshot: LogSnapshot) -> None:
        truncated = truncated_logs(known, snapshot)
        for tp in snapshot.epoch_ends:
            if tp not in truncated:
                self._intact[tp] = (checkpoint.epochs[tp], snapshot.latest[tp].leader_epoch)
