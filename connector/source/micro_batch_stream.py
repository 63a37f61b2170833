"""One streaming query in Spark's driver: its start, its micro-batches, the tasks of each, and its progress.

Owns what the query knows between two micro-batches, and the order of things: look up the logs
(:mod:`~pykafka_wire.source.planning.subscribed_logs`), commit, plan (:mod:`~pykafka_wire.source.planning.micro_batch`), report
losses. The methods' contracts with Spark are :mod:`~pykafka_wire.source.stream_reader`'s; what others see of the query is
:mod:`~pykafka_wire.source.progress.query_progress`'s.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from pykafka_wire.checkpoints.query_offsets import QueryOffsets, ranges_read
from pykafka_wire.errors import Loss, OffsetsError, OptionError
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.data_loss import DataLossReporter
from pykafka_wire.source.planning.batch_tasks import find_record_sizes, plan_input_partitions
from pykafka_wire.source.planning.micro_batch import ComparedLogs, MicroBatchPlan, plan_micro_batch
from pykafka_wire.source.planning.offset_lookups import diverging_offsets, skip_aged_out
from pykafka_wire.source.planning.record_size_estimates import RecordSizes, sizes_for_limit
from pykafka_wire.source.planning.subscribed_logs import SubscribedLogs
from pykafka_wire.source.planning.trigger_limits import Limits, MinimumOffsets, MinimumsOfTopics
from pykafka_wire.source.progress.query_progress import QueryProgress
from pykafka_wire.wire.cluster.admin import ListedOffset
from pykafka_wire.wire.errors import TransportError, UnknownTopicError
from pykafka_wire.wire.fetch.range_progress import Position
from pykafka_wire.wire.process_clients import shared_cluster
from pykafka_wire.wire.topic_partitions import ZERO_UUID, OffsetRange, TopicPartition

if TYPE_CHECKING:  # untyped queries need none of it
    from pykafka_wire.source.pinned_schemas import PinnedSchemas

_log = logging.getLogger(__name__)

#: How long the first offsets of the logs are taken for known: retention deletes seldom, and tasks detect what it deletes after
#: planning.
_LOG_STARTS_AGE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStart:
    """Where a query without a checkpoint starts.

    Attributes:
        error: why its offsets could not be resolved. Spark asks for the start of a micro-batch 0 that is replayed, too, which is in
            that one's end: so only the first micro-batch of a new query fails by it.
    """

    offsets: QueryOffsets
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What ``latestOffset`` has planned last.

    Attributes:
        end: of the micro-batch; its start, where nothing was new.
    """

    logs: ComparedLogs
    plan: MicroBatchPlan
    end: QueryOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLogStarts:
    """The topic-partitions whose first offsets were looked up last, and when, by the clock of :func:`time.monotonic`."""

    at: float = float("-inf")
    topic_partitions: Set[TopicPartition] = frozenset()

    def are_known(self, wanted: Set[TopicPartition], now: float) -> bool:
        return now - self.at < _LOG_STARTS_AGE_S and wanted <= self.topic_partitions


class MicroBatchStream:
    """A query's state between its micro-batches, as the JVM connector's class of this name.

    Which calls of Spark move it, and where to:

    ================  ===========================  =============================================================
    state             call                         next
    ================  ===========================  =============================================================
    new               ``initialOffset``            new, with its :class:`FirstStart`
    new, reached      ``latestOffset``             :class:`Planned`, beside what was reached
    any but the next  ``partitions(start, end)``   reached: ``end``; the first call of a restart replays a batch
    new, reached      ``partitions(end, end)``     reached: ``end``, as Spark before 4.2 shows a checkpoint's end
    planned, and      ``partitions(end, end)``     an error: records would be skipped or read twice
    nothing reached
    ================  ===========================  =============================================================
    """

    def __init__(self, options: SourceOptions, pinned_schemas: PinnedSchemas | None = None) -> None:
        """Take the ``pinned_schemas`` of typed columns, None where all are binary."""
        log_warnings(options.warnings)  # this process lives as long as the query; others build a reader, too
        self._options = options
        self._pinned_schemas = pinned_schemas
        self._cluster = shared_cluster(options.client)
        self._minimums_of_topics = MinimumsOfTopics(options.topic_minimums)
        self._minimum = MinimumOffsets(
            min_offsets=options.min_offsets_per_trigger, max_delay_ms=options.max_trigger_delay_ms
        )
        self._sizes = RecordSizes(self._cluster)
        self._losses = DataLossReporter(options)
        self._subscribed = SubscribedLogs(self._cluster, options)
        self._progress = QueryProgress(self._cluster, options, self._losses, self._sizes)
        self._first_start: FirstStart | None = None
        #: Where an AvailableNow run ends, None for other triggers.
        self._last_offsets: dict[TopicPartition, int] | None = None
        self._planned: Planned | None = None
        #: The end of the batch that Spark planned last, or of the checkpoint it went on from.
        self._reached: dict[str, Any] | None = None
        self._log_starts = CheckedLogStarts()
        #: A start as Spark gave it, and as it was parsed: an idle query asks with the same one many times a second.
        self._parsed: tuple[dict[str, Any], QueryOffsets] | None = None

    def initial_offset(self) -> QueryOffsets:
        if self._first_start is None:
            self._first_start = self._find_first_start()
        return self._first_start.offsets

    def _find_first_start(self) -> FirstStart:
        query = str(uuid.uuid4())
        group = self._options.group_id or f"{self._options.group_id_prefix}-{query}"
        try:
            offsets = self._subscribed.starting_offsets()
        except (OptionError, OffsetsError, UnknownTopicError) as error:
            return FirstStart(offsets=QueryOffsets(offsets={}, query=query, group=group, initial=True), error=error)
        return FirstStart(offsets=replace(offsets, query=query, group=group, initial=True))

    def latest_offset(self, start_json: dict[str, Any], *, max_offsets: int | None, reads_all: bool) -> dict[str, Any]:
        """Return the end of the next micro-batch, or the start.

        Args:
            max_offsets: Spark's limit.
            reads_all: Spark asks for everything whatever the options are, as Trigger.Once does.
        """
        start = self._parse(start_json)
        if start.initial and self._first_start is not None and self._first_start.error is not None:
            raise self._first_start.error
        # Before the commit: the coordinator retries one of a topic that was deleted.
        logs = self._subscribed.look_up(start, self._last_offsets or {})
        self._progress.join_group(start, logs.snapshot)
        self._progress.begin_commit(start, logs.snapshot)
        plan = self._plan_next(start, logs, self._limits(max_offsets, reads_all, logs.snapshot.latest))
        end = plan.end
        if end is not None:
            sizes = find_record_sizes(self._options, ranges_read(start, end), self._sizes)
            end = replace(end, record_sizes=sizes)
        if end is not None and self._pinned_schemas is not None:
            end = replace(end, reader_schemas=self._pinned_schemas.for_next(start.reader_schemas))
        self._planned = Planned(logs=logs, plan=plan, end=end or start)
        if end is None:  # there is time
            self.commit(start, is_last=self._last_offsets is not None)
        return start_json if end is None else end.to_json()

    def latest_offset_without_start(self) -> dict[str, Any]:
        return self.latest_offset(self._reached or self.initial_offset().to_json(), max_offsets=None, reads_all=True)

    def set_available_now(self) -> None:
        self._last_offsets = self._subscribed.last_offsets()

    def input_partitions(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> Sequence[InputPartition]:
        if start_json == end_json:
            # So Spark before 4.2 begins a query that is not new: it shows the offset that was logged last.
            if self._reached is None and self._planned is not None:
                raise OptionError(
                    "Spark has asked for the next end before it showed the checkpoint's, and records would be skipped or read "
                    "twice: set spark.sql.streaming.triggerAvailableNowWrapper.enabled to false, or use Spark 4.2 or newer."
                )
            self._reached = end_json
            return []
        self._reached = end_json
        start, end = QueryOffsets.from_json(start_json), QueryOffsets.from_json(end_json)
        every = ranges_read(start, end)
        ranges = [r for r in every if r.start_offset <= r.end_offset]
        shrunk = [(r.topic_partition, r.end_offset, r.start_offset) for r in every if r.start_offset > r.end_offset]
        self._losses.report(Loss.OFFSETS_CHANGED, shrunk, query=end.query, topic_ids=end.topic_ids)
        if self._planned is None:  # a replay: what was planned was so by an earlier process
            ranges = self._without_truncated(ranges, end.query)
        ranges = self._without_aged_out(ranges, end.query)
        readers = self._pinned_schemas.for_planned(end.reader_schemas) if self._pinned_schemas is not None else None
        # An end without them was logged by an earlier version, or was too small to need them.
        record_sizes = end.record_sizes or find_record_sizes(self._options, ranges, self._sizes)
        planned = plan_input_partitions(self._cluster, self._options, ranges, record_sizes, end.query, readers)
        self._progress.add_tasks(planned)
        _log.info("Planned %d input partitions over %d ranges", len(planned), sum(r.n_offsets > 0 for r in ranges))
        return planned

    def _without_truncated(self, ranges: list[OffsetRange], query: str) -> list[OffsetRange]:
        """Return ``ranges`` up to where their logs were truncated since they were planned: other records stand there now, which the
        next micro-batch reads."""
        try:
            ends = {
                r.topic_partition: Position(r.end_offset, r.leader_epoch)
                for r in ranges
                if r.n_offsets and r.topic_id in (ZERO_UUID, self._cluster.metadata.topic_id(r.topic))
            }
            diverging = diverging_offsets(self._cluster, ends)
        except (UnknownTopicError, TransportError) as error:
            _log.debug("Whether logs were truncated is left to the next micro-batch: %s", error)
            return ranges
        lost = [(tp, offset, ends[tp].offset) for tp, offset in sorted(diverging.items())]
        self._losses.report(Loss.LOG_TRUNCATED, lost, query=query, topic_ids={r.topic: r.topic_id for r in ranges})
        return [
            replace(r, end_offset=max(r.start_offset, diverging.get(r.topic_partition, r.end_offset))) for r in ranges
        ]

    def _without_aged_out(self, ranges: list[OffsetRange], query: str) -> list[OffsetRange]:
        """Return ``ranges`` without what retention has deleted, as far as the logs' first offsets were not looked up just
        before."""
        now, wanted = time.monotonic(), {r.topic_partition for r in ranges if r.n_offsets}
        if self._log_starts.are_known(wanted, now):
            return ranges
        try:
            kept = skip_aged_out(self._cluster, ranges, self._losses, query=query)
        except (UnknownTopicError, TransportError) as error:
            _log.debug("Expired records could not be looked up while planning, so tasks detect them: %s", error)
            return ranges
        self._log_starts = CheckedLogStarts(at=now, topic_partitions=wanted)
        return kept

    def commit(self, progress: QueryOffsets, *, is_last: bool = False) -> None:
        self._progress.commit(progress, None if self._planned is None else self._planned.logs.snapshot, is_last=is_last)

    def report(self) -> dict[str, Any] | None:
        if self._planned is None:
            return None
        # Spark asks right after `latest`, for the progress of the batch that this planned.
        planned = self._planned
        return self._progress.report(planned.logs.snapshot, planned.plan.start_offsets, planned.end)

    def close(self) -> None:
        self._progress.close()
        self._cluster.close()

    def _parse(self, offset_json: dict[str, Any]) -> QueryOffsets:
        if self._parsed is None or self._parsed[0] != offset_json:
            self._parsed = (offset_json, QueryOffsets.from_json(offset_json))
        return self._parsed[1]

    def _plan_next(self, start: QueryOffsets, logs: ComparedLogs, limits: Limits) -> MicroBatchPlan:
        """Plan the next micro-batch; its end is None where nothing is new.

        Raises:
            DataLossError: records are lost, and ``failOnDataLoss`` is true.
        """
        snapshot = logs.snapshot
        if self._last_offsets is not None:
            # A topic of the checkpoint that was out of sight when the run began: it ends where it is seen first.
            for tp in start.offsets.keys() & snapshot.latest.keys() - self._last_offsets.keys():
                self._last_offsets[tp] = snapshot.latest[tp].offset
        plan = plan_micro_batch(start, logs, limits, group=self._options.group_id)
        if limits.max_bytes is not None and plan.end_offsets != plan.start_offsets:
            sizes = sizes_for_limit(self._sizes, plan.start_offsets, plan.end_offsets, limits.max_bytes)
            limits = replace(limits, bytes_per_offset=sizes)
            plan = plan_micro_batch(start, logs, limits, group=self._options.group_id)
        if plan.end_offsets != plan.start_offsets:
            self._minimum.restart()
        self._minimums_of_topics.remember(plan.waiting_topics)
        topic_ids = {**snapshot.topic_ids, **start.topic_ids}
        for loss, lost, detail in plan.losses:
            self._losses.report(loss, lost, detail=detail, query=start.query, topic_ids=topic_ids)
        resumed = frozenset() if self._planned is None else self._planned.plan.resumed
        for topic in sorted(plan.resumed - resumed):
            _log.warning(
                "Topic %s is back under the same topic id: reading continues at the offset where it stopped.", topic
            )
        if plan.is_waiting:
            self._progress.check_for_hanging_transactions(snapshot)
        return plan

    def _limits(
        self, max_offsets: int | None, reads_all: bool, latest: Mapping[TopicPartition, ListedOffset]
    ) -> Limits:
        """Return the trigger limits. That Spark reads all goes before the options' limits."""
        options = self._options
        if reads_all and (options.max_offsets_per_trigger, options.max_bytes_per_trigger) != (None, None):
            return Limits(last_offsets=self._last_offsets)
        waits = options.topic_minimums and self._last_offsets is None
        ends = {tp: end.offset for tp, end in latest.items()} if waits else {}
        return Limits(
            last_offsets=self._last_offsets,
            min_offsets=self._minimum.required() if self._last_offsets is None else 0,
            min_by_topic=self._minimums_of_topics.required(ends),
            max_offsets=max_offsets,
            max_bytes=options.max_bytes_per_trigger,
        )
