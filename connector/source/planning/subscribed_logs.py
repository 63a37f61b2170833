"""The logs of a query's subscription: what brokers are asked when it starts, and before each micro-batch is planned.

Owns the requests, and repeats them where a response looks like a loss, or a topic vanishes between two requests. What the responses
mean for the query is :mod:`~pykafka_wire.source.planning.log_snapshot`'s and
:mod:`~pykafka_wire.source.planning.micro_batch`'s to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from pykafka_wire.checkpoints.query_offsets import QueryOffsets
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.planning.log_snapshot import ComparedLogs, LogSnapshot, compare_logs, known_offsets
from pykafka_wire.source.planning.offset_lookups import (
    earliest_offsets,
    latest_offsets,
    resolve_offsets,
    topic_partitions,
)
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


class SubscribedLogs:
    """Looks up the logs of one query's subscription."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._topics = SubscribedTopics(cluster, options.subscription, fail_on_data_loss=options.fail_on_data_loss)
        #: (leader epoch in the checkpoint, leader epoch now) of logs that were found not to be truncated.
        self._intact: dict[TopicPartition, tuple[int, int]] = {}

    def _ask(
        self,
        question: Callable[[Mapping[str, TopicMetadata], list[TopicPartition]], ResultT],
        *,
        may_be_missing: bool = False,
    ) -> ResultT:
        """The response to a question about the topics and topic-partitions that the query reads; asked again where a topic
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
        """Where a new query starts.

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
            found = resolve_offsets(
                cluster, options.starting_offsets, partitions,
                option="startingOffsets", isolation_level=options.client.isolation_level, group=options.group_id,
            )  # fmt: skip
            return QueryOffsets(offsets=found, topic_ids=topic_ids_of(topics))

        return self._ask(question)

    def last_offsets(self) -> dict[TopicPartition, int]:
        """The end of each log now: where an AvailableNow query ends."""
        isolation_level = self._options.client.isolation_level

        def question(_: object, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {
                tp: found.offset for tp, found in latest_offsets(self._cluster, partitions, isolation_level).items()
            }

        # Not known yet: whether the query is new. A missing topic is reported when the first micro-batch is planned.
        return self._ask(question, may_be_missing=True)

    def look_up(self, checkpoint: QueryOffsets) -> ComparedLogs:
        """A snapshot of the logs, compared with the ``checkpoint`` of the query.

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
                logs = self._look_up_once(checkpoint, found, partitions, known, unseen)
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
            if fresh or not logs.shortened:
                return logs
        raise AssertionError("unreachable")

    def _look_up_once(
        self,
        checkpoint: QueryOffsets,
        found: FoundTopics,
        partitions: Collection[TopicPartition],
        known: Offsets,
        unseen: Collection[TopicPartition],
    ) -> ComparedLogs:
        latest = latest_offsets(self._cluster, partitions, self._options.client.isolation_level)
        added = [tp for tp in partitions if tp not in known]
        snapshot = LogSnapshot(
            latest=latest,
            topic_ids=topic_ids_of(found.topics),
            earliest=earliest_offsets(self._cluster, added) if added else {},
            epoch_ends=self._epoch_ends(checkpoint, known, latest),
            hidden=found.hidden,
            vanished=tuple(sorted(tp for tp in unseen if tp not in latest)),
        )
        logs = compare_logs(known, snapshot)
        for tp in snapshot.epoch_ends.keys() - logs.truncated.keys():
            self._intact[tp] = (checkpoint.epochs[tp], latest[tp].leader_epoch)
        if self._options.client.isolation_level != "read_committed":
            return logs
        # Read beyond the last stable offset, before the query was read_committed: is there still what was read?
        held = logs.shortened.keys() - logs.truncated.keys()
        if not held:
            return logs
        written = latest_offsets(self._cluster, held, "read_uncommitted")
        return compare_logs(known, replace(snapshot, high_watermarks={tp: each.offset for tp, each in written.items()}))

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
