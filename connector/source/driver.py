"""The planning of one streaming query, in Spark's driver: its start, the next micro-batch, its tasks, its progress told.

Owns the query's state there and how much a micro-batch takes (trigger limits). Where the logs stand is
:mod:`~pykafka_wire.source.progress.logs`'s; what Spark wants to hear is :mod:`~pykafka_wire.source.stream`'s.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from pykafka_wire.errors import Loss, OffsetsError, OptionError
from pykafka_wire.offsets import QueryOffsets, nest_by_topic
from pykafka_wire.options.parsing import log_warnings
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.batch import plan_input_partitions, skip_aged_out
from pykafka_wire.source.planning.admission import AdmissionControl, reads_all_available
from pykafka_wire.source.planning.plan import share_bytes, share_offsets
from pykafka_wire.source.planning.record_size_estimates import ASSUMED_BYTES, BytesPerOffset
from pykafka_wire.source.planning.resolve import latest_offsets, resolve
from pykafka_wire.source.progress.commit import GroupCommitter
from pykafka_wire.source.progress.data_loss import Losses
from pykafka_wire.source.progress.hanging_transactions import StallWatch
from pykafka_wire.source.progress.logs import Ahead, Logs, topic_ids
from pykafka_wire.source.progress.member import StaticMember
from pykafka_wire.wire.cluster.cluster import Cluster
from pykafka_wire.wire.cluster.process_clients import shared_cluster
from pykafka_wire.wire.errors import TransportError, UnknownTopicError
from pykafka_wire.wire.topics import ZERO_UUID, OffsetRange, TopicPartition

_log = logging.getLogger(__name__)

#: Where records become larger within a batch that a limit in bytes allows, it is halved so often at most: a look each.
_HALVINGS = 6


class QueryDriver:
    """What one query knows between its micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        log_warnings(options.warnings)  # this process lives as long as the query; others build a reader, too
        self._options = options
        self._cluster: Cluster = shared_cluster(options.client)
        member = StaticMember(self._cluster, options.client) if options.static_membership else None
        self._committer = GroupCommitter(self._cluster, member=member)
        self._admission = AdmissionControl(
            min_offsets=options.min_offsets_per_trigger, max_delay_ms=options.max_trigger_delay_ms
        )
        self._sizes = BytesPerOffset(self._cluster)
        self._losses = Losses(options)
        self._logs = Logs(self._cluster, options, self._losses)
        self._stalls = StallWatch(self._cluster) if options.client.isolation_level == "read_committed" else None
        self._initial: QueryOffsets | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._unresolved: Exception | None = None
        self._known: tuple[dict[str, Any], QueryOffsets] | None = None
        self._ahead: Ahead | None = None
        self._planned: QueryOffsets | None = None
        #: The end of the batch that Spark planned last, or of the checkpoint it went on from.
        self._reached: dict[str, Any] | None = None

    def initial(self) -> QueryOffsets:
        if self._initial is None:
            query = str(uuid.uuid4())
            self._initial = QueryOffsets(
                offsets={},
                query=query,
                group=self._options.group_id or f"{self._options.group_id_prefix}-{query}",
                initial=True,
            )
            try:
                topics, partitions = self._logs.subscribed()
                found = resolve(
                    self._cluster, self._options.starting_offsets, partitions,
                    option="startingOffsets", isolation_level=self._options.client.isolation_level,
                    group=self._options.group_id,
                )  # fmt: skip
            except (OptionError, OffsetsError, UnknownTopicError) as error:
                # Spark asks for the start of a batch 0 that is replayed, too, which is in its end: only a new query fails.
                self._unresolved = error
            else:
                self._initial = replace(self._initial, offsets=found, topic_ids=topic_ids(topics))
        return self._initial

    def latest(self, start_json: dict[str, Any], limit: Any) -> dict[str, Any]:
        start = self._parsed(start_json)
        if start.initial and self._unresolved is not None:
            raise self._unresolved
        self._committer.attend(start)
        self.commit(start)
        end = self._next(start, limit)
        if end is None and start.initial:
            # Spark runs batch 0 even over nothing, and logs this offset: its replay must find its start in it, too.
            end = replace(start, starts=start.offsets, initial=False)
        self._planned = end or start
        return start_json if end is None else end.to_json()

    def latest_without_start(self) -> dict[str, Any]:
        return self.latest(self._reached or self.initial().to_json(), limit=None)

    def pin_target(self) -> None:
        # Spark has not said yet whether the query is new: what is missing is told of when it has.
        _, partitions = self._logs.subscribed(may_be_missing=True)
        latest = latest_offsets(self._cluster, partitions, self._options.client.isolation_level)
        self._target = {tp: found.offset for tp, found in latest.items()}

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
        starts = end.starts
        ranges, shrunk = [], []
        for tp, end_offset in end.offsets.items():
            start_offset = starts.get(tp, start.offsets.get(tp, 0))
            if start_offset > end_offset:
                shrunk.append((tp, end_offset, start_offset))
                continue
            ranges.append(
                OffsetRange(
                    topic=tp.topic,
                    partition=tp.partition,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    leader_epoch=end.epochs.get(tp, -1),
                    topic_id=end.topic_ids.get(tp.topic, ZERO_UUID),
                )
            )
        self._losses.report(Loss.OFFSETS_CHANGED, shrunk, query=end.query, topic_ids=end.topic_ids)
        try:
            ranges = skip_aged_out(self._cluster, ranges, self._losses, query=end.query)
        except (UnknownTopicError, TransportError) as error:
            _log.debug("What has aged out is left to the tasks to find: %s", error)
        planned = plan_input_partitions(self._cluster, self._options, ranges, self._sizes, end.query)
        _log.info("Planned %d input partitions over %d ranges", len(planned), sum(r.n_offsets > 0 for r in ranges))
        return planned

    def commit(self, progress: QueryOffsets) -> None:
        if self._options.commit_offsets and not progress.initial:
            self._committer.commit(progress)

    def report(self) -> dict[str, Any] | None:
        if self._ahead is None or not self._ahead.latest:
            return None
        latest = {tp: found.offset for tp, found in self._ahead.latest.items()}
        report: dict[str, Any] = {"offsets": nest_by_topic(latest)}
        # Spark asks right after `latest`, for the progress of the batch that this planned.
        progress = self._planned
        if progress is not None:
            # A new topic-partition of which nothing was planned yet is at its beginning.
            reached = {**self._ahead.begins, **progress.offsets}
            behind = [max(0, offset - reached.get(tp, 0)) for tp, offset in latest.items()]
            report["minOffsetsBehindLatest"] = min(behind)
            report["maxOffsetsBehindLatest"] = max(behind)
            report["avgOffsetsBehindLatest"] = sum(behind) / len(behind)
            report["totalOffsetsBehindLatest"] = sum(behind)
            report["estimatedBytesBehindLatest"] = self._bytes_behind(reached, latest)
            report["group"] = progress.group
        report["commitSuccesses"] = self._committer.successes
        report["commitFailures"] = self._committer.failures
        report["lostRanges"] = self._losses.n_ranges
        report["lostOffsets"] = self._losses.n_offsets
        return report

    def _bytes_behind(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
        """About how many bytes of the logs lie between two offsets; None where no record could be looked at."""
        ranges = _ranges(begins, ends)
        self._sizes.observe(ranges)
        found = [(r.n_offsets, self._sizes.known(r.topic)) for r in ranges if r.n_offsets]
        if any(size is None for _, size in found):
            return None
        return round(sum(n * (size or 0.0) for n, size in found))

    def close(self) -> None:
        self._committer.close()
        self._cluster.close()

    def _parsed(self, offset_json: dict[str, Any]) -> QueryOffsets:
        # An idle query asks with the same start many times a second.
        if self._known is None or self._known[0] != offset_json:
            self._known = (offset_json, QueryOffsets.from_json(offset_json))
        return self._known[1]

    def _next(self, start: QueryOffsets, limit: Any) -> QueryOffsets | None:
        """Offsets of the next batch, None where nothing is new."""
        ahead = self._ahead = self._logs.look(start)
        begins, ends = ahead.begins, ahead.ends
        if self._target is not None:
            ends = {tp: max(begins[tp], min(end, self._target.get(tp, 0))) for tp, end in ends.items()}
        if ends == begins and self._stalls is not None:
            self._stalls.look(ahead.latest)
        ends = self._admit(begins, ends, limit)
        if ends == begins and not ahead.cut:  # a cut is remembered at once: the log may grow past it again
            return None
        offsets = {tp: end for tp, end in ends.items() if tp in start.offsets or end > begins[tp]}
        return QueryOffsets(
            offsets=offsets,
            epochs={tp: ahead.latest[tp].leader_epoch for tp in offsets if ahead.latest[tp].leader_epoch >= 0},
            topic_ids=ahead.topic_ids,
            starts={tp: min(offset, offsets[tp]) for tp, offset in ahead.starts.items() if tp in offsets},
            query=start.query,
            group=self._options.group_id or start.group,
        )

    def _admit(
        self, begins: Mapping[TopicPartition, int], ends: dict[TopicPartition, int], limit: Any
    ) -> dict[TopicPartition, int]:
        """Ends under the trigger limits; ``limit`` is Spark's, and ReadAllAvailable beats our own."""
        max_bytes = self._options.max_bytes_per_trigger
        limited = self._options.max_offsets_per_trigger is not None or max_bytes is not None
        if limit is None or (reads_all_available(limit) and limited):
            return ends
        n_new = sum(end - begins[tp] for tp, end in ends.items())
        if self._target is None and not self._admission.admits(n_new):
            return dict(begins)
        max_rows = getattr(limit, "max_rows", None)
        if max_rows is not None:
            ends = share_offsets(begins, ends, max_rows)
        if max_bytes is not None and n_new:
            ends = self._fit(begins, ends, max_bytes)
        return ends

    def _fit(
        self, begins: Mapping[TopicPartition, int], ends: dict[TopicPartition, int], max_bytes: int
    ) -> dict[TopicPartition, int]:
        """Ends of about ``max_bytes``, by the size of the first records; where the last ones turn out to be larger, of half as
        many, as long as that helps."""
        self._sizes.observe(_ranges(begins, ends), afresh=True)
        known = {tp.topic: self._sizes.known(tp.topic) or ASSUMED_BYTES for tp in ends}
        ends = share_bytes(begins, ends, max_bytes, known.__getitem__)
        for _ in range(_HALVINGS):
            fitting = share_bytes(
                begins, ends, max_bytes, {**known, **self._sizes.observe_ends(_ranges(begins, ends))}.__getitem__
            )
            halves = {tp: begins[tp] + (end - begins[tp]) // 2 for tp, end in ends.items()}
            if all(fitting[tp] >= half for tp, half in halves.items()):
                return fitting
            ends = {tp: max(fitting[tp], half) for tp, half in halves.items()}
        return fitting


def _ranges(begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    return [
        OffsetRange(topic=tp.topic, partition=tp.partition, start_offset=begins.get(tp, 0), end_offset=end)
        for tp, end in ends.items()
    ]
