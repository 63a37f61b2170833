"""A streaming read: what is new is planned on the driver, micro-batch by micro-batch, and read by the tasks.

One reader lives in one Python process on the driver for a query's whole life. Spark's contract for it is subtle; the
rules that shape this module (see DESIGN.md, "Non-obvious"):

- an offset equal to the start, as JSON text, means "nothing new": the start is returned as it came;
- only ends of batches are logged, so a batch's own starts travel inside its end (``starts``);
- ``commit(end)`` of a batch comes only with the next one; ``latestOffset(start)`` tells earlier that ``start`` is done.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pykafka_wire.errors import DataLossError, Loss, OffsetsError, OptionError
from pykafka_wire.offsets import QueryOffsets, nest_by_topic
from pykafka_wire.options import SourceOptions
from pykafka_wire.schema import arrow_schema, check_source_schema
from pykafka_wire.source.admission import AdmissionControl, AvailableNow, read_limit, reads_all_available
from pykafka_wire.source.batch import plan_input_partitions, skip_aged_out
from pykafka_wire.source.commit import GroupCommitter
from pykafka_wire.source.losses import Losses, LostRange
from pykafka_wire.source.member import StaticMember
from pykafka_wire.source.partition import KafkaInputPartition
from pykafka_wire.source.plan import share_bytes, share_offsets
from pykafka_wire.source.read import read_ranges
from pykafka_wire.source.resolve import earliest_offsets, find_topics, latest_offsets, resolve, topic_partitions
from pykafka_wire.source.sizing import ASSUMED_BYTES, BytesPerOffset
from pykafka_wire.wire.admin import ListedOffset, offsets_for_leader_epoch
from pykafka_wire.wire.cluster import Cluster, Deadline
from pykafka_wire.wire.describe import open_transactions
from pykafka_wire.wire.errors import TransportError, UnknownTopicError
from pykafka_wire.wire.shared import shared_cluster
from pykafka_wire.wire.topics import ZERO_UUID, OffsetRange, TopicPartition
from pykafka_wire.workers import SentToWorkers

_log = logging.getLogger(__name__)

#: New partitions and topics are looked for this often at most; a refresh that takes long is done less often still.
_METADATA_AGE_MS = 1_000
_METADATA_COST_FACTOR = 20
#: A transaction that holds a query up for so long is worth a word: Kafka's own limit for one is 15 minutes by default, a
#: producer's is 1 (transaction.max.timeout.ms, transaction.timeout.ms).
_STALL_S = 60.0
#: How long the warning may wait for brokers to name them.
_STALL_NAMES_MS = 5_000
#: Where records become larger within a batch that a limit in bytes allows, it is halved so often at most: a look each.
_HALVINGS = 6


class KafkaStreamReader(SentToWorkers, DataSourceStreamReader, AvailableNow):
    """Plans and reads micro-batches. Built without any I/O: Spark pickles it to the executors, to call ``read``."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_source_schema(schema)
        self._options = options
        self._schema = schema
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_driver": None}

    @property
    def _planner(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts, asked for before batch 0, maybe more than once: the answer stays the same."""
        return self._planner.initial().to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """The end of the next micro-batch, ``start`` itself where nothing is new. Commits ``start``: it is durable."""
        return self._planner.latest(start, limit)

    def getDefaultReadLimit(self) -> Any:
        """``maxOffsetsPerTrigger``, else ``maxBytesPerTrigger``, as Spark's read limit."""
        return read_limit(self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the ends of all logs: an AvailableNow query reads up to them and no further."""
        self._planner.pin_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of all logs and how far behind them the query is, for the query's progress."""
        return self._planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Input partitions of the micro-batch between two offsets, the same ranges whenever it is replayed."""
        return self._planner.input_partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: pyarrow has no types
        """Arrow record batches of one input partition; runs on an executor."""
        if isinstance(partition, KafkaInputPartition):
            yield from read_ranges(self._options, partition.ranges, arrow_schema(self._schema), partition.query)

    def commit(self, end: dict[str, Any]) -> None:
        """Batch up to ``end`` is done: tell the consumer group."""
        self._planner.commit(QueryOffsets.from_json(end))

    def stop(self) -> None:
        """Close connections; safe to call twice."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class KafkaStreamReaderWithoutLimits(KafkaStreamReader):
    """The reader for Spark 4.0 and 4.1, which know no admission control: ``latestOffset`` takes no arguments there, and
    Spark tells the versions apart by that. It asks for the next offset only when the batch planned last is done."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """The end of the next micro-batch: all that is there."""
        return self._planner.latest_without_start()


class _Driver:
    """The planning state of one query, in the driver's process."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster = shared_cluster(options.client)
        member = StaticMember(self._cluster, options.client) if options.static_membership else None
        self._committer = GroupCommitter(self._cluster, member=member)
        self._admission = AdmissionControl(
            min_offsets=options.min_offsets_per_trigger, max_delay_ms=options.max_trigger_delay_ms
        )
        self._sizes = BytesPerOffset(self._cluster)
        self._initial: QueryOffsets | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._unresolved: Exception | None = None
        self._known: tuple[dict[str, Any], QueryOffsets] | None = None
        #: When topics were looked for last, and how long that holds.
        self._looked_at, self._metadata_age_ms = float("-inf"), 0.0
        self._missing: UnknownTopicError | None = None
        self._last_latest: dict[TopicPartition, ListedOffset] = {}
        self._begins: Mapping[TopicPartition, int] = {}
        self._planned: QueryOffsets | None = None
        #: The end of the batch that Spark planned last, or of the checkpoint it went on from.
        self._reached: dict[str, Any] | None = None
        self._losses = Losses(options)
        self._stall_looked_at = 0.0
        self._held: dict[TopicPartition, int] = {}
        #: (leader epoch in the checkpoint, leader epoch now) of logs that were found whole.
        self._whole: dict[TopicPartition, tuple[int, int]] = {}

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
                topics, partitions = self._subscribed()
                found = resolve(
                    self._cluster, self._options.starting, partitions,
                    option="startingOffsets", isolation_level=self._options.client.isolation_level,
                    group=self._options.group_id,
                )  # fmt: skip
            except (OptionError, OffsetsError, UnknownTopicError) as error:
                # Spark asks for the start of a batch 0 that is replayed, too, which is in its end: only a new query fails.
                self._unresolved = error
            else:
                topic_ids = {name: t.topic_id for name, t in topics.items() if t.topic_id != ZERO_UUID}
                self._initial = replace(self._initial, offsets=found, topic_ids=topic_ids)
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
        _, partitions = self._subscribed(may_be_missing=True)
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
        if not self._last_latest:
            return None
        latest = {tp: found.offset for tp, found in self._last_latest.items()}
        report: dict[str, Any] = {"offsets": nest_by_topic(latest)}
        # Spark asks right after `latest`, for the progress of the batch that this planned.
        progress = self._planned
        if progress is not None:
            # A new topic-partition of which nothing was planned yet is at its beginning.
            reached = {**self._begins, **progress.offsets}
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

    def _subscribed(
        self, *, may_be_missing: bool = False, afresh: bool = False
    ) -> tuple[dict[str, Any], list[TopicPartition]]:
        """Topics and topic-partitions that the query reads, as known for a moment or ``afresh``.

        Raises:
            UnknownTopicError: a topic that was named does not exist, and none ``may_be_missing``.
        """
        started = time.monotonic()
        due = afresh or (started - self._looked_at) * 1000 >= self._metadata_age_ms
        try:
            topics = find_topics(
                self._cluster,
                self._options.subscription,
                max_age_ms=0 if due else self._metadata_age_ms,
                may_be_missing=self._missing is not None,
            )
        except UnknownTopicError as error:
            if not may_be_missing:
                raise
            # From now on one look at all topics: asking for a missing one waits some seconds, each time.
            self._missing = error
            return self._subscribed(may_be_missing=True, afresh=afresh)
        if self._missing is not None and self._missing.topic not in topics and not may_be_missing:
            raise self._missing
        if due:
            took_ms = (time.monotonic() - started) * 1000
            self._looked_at, self._metadata_age_ms = started, max(_METADATA_AGE_MS, took_ms * _METADATA_COST_FACTOR)
        return topics, topic_partitions(self._options.subscription, topics)

    def _parsed(self, offset_json: dict[str, Any]) -> QueryOffsets:
        # An idle query asks with the same start many times a second.
        if self._known is None or self._known[0] != offset_json:
            self._known = (offset_json, QueryOffsets.from_json(offset_json))
        return self._known[1]

    def _next(self, start: QueryOffsets, limit: Any, *, afresh: bool = False) -> QueryOffsets | None:
        """Offsets of the next batch, None where nothing is new.

        What looks like a loss is judged by metadata had ``afresh``: a topic may have gone, or be another one, since the last.
        """
        try:
            goes_on = not start.initial and not self._options.fail_on_data_loss
            topics, partitions = self._subscribed(may_be_missing=goes_on, afresh=afresh)
        except UnknownTopicError as error:
            gone = [(tp, offset, -1) for tp, offset in start.offsets.items() if tp.topic == error.topic]
            if start.initial or not gone:
                raise
            raise DataLossError(Loss.PARTITIONS_DELETED, gone, error.text) from error
        topic_ids = {name: t.topic_id for name, t in topics.items() if t.topic_id != ZERO_UUID}
        recreated = {t for t, known in start.topic_ids.items() if t in topic_ids and topic_ids[t] != known}
        begins = {tp: offset for tp, offset in start.offsets.items() if tp.topic not in recreated}
        current = set(partitions)

        def lost(loss: Loss, ranges: list[LostRange], detail: str = "") -> None:
            ids = topic_ids | dict(start.topic_ids)
            self._losses.report(loss, ranges, detail=detail, query=start.query, topic_ids=ids)

        lost(
            Loss.TOPIC_RECREATED, [(tp, start.offsets[tp], -1) for tp in sorted(start.offsets) if tp.topic in recreated]
        )
        strangers = ", ".join(sorted({tp.topic for tp in begins if tp.topic not in topics}))
        lost(
            Loss.PARTITIONS_DELETED,
            [(tp, begins[tp], -1) for tp in sorted(begins) if tp not in current],
            f"the query reads no topic {strangers} now; is it the checkpoint of another query?" if strangers else "",
        )
        begins = {tp: offset for tp, offset in begins.items() if tp in current}

        starts = dict(start.offsets) if start.initial else {}
        added = [tp for tp in partitions if tp not in begins]
        try:
            latest = latest_offsets(self._cluster, partitions, self._options.client.isolation_level)
            earliest = earliest_offsets(self._cluster, added)
        except UnknownTopicError as error:
            if afresh:
                raise
            lost(Loss.INITIAL_OFFSET_NOT_FOUND, [(tp, 0, -1) for tp in added if tp.topic == error.topic])
            if not self._options.subscription.pattern:
                self._missing = error  # its grace is over: from now on one look at all topics
            return self._next(start, limit, afresh=True)
        self._last_latest = latest
        if added:
            not_from_zero = [(tp, 0, earliest[tp]) for tp in added if earliest[tp] > 0 and tp.topic not in recreated]
            lost(Loss.ADDED_PARTITION_DOES_NOT_START_FROM_ZERO, not_from_zero)
            begins |= earliest
            starts |= earliest
        self._begins = begins
        cut = self._truncated(start, begins, latest)
        ends = {tp: latest[tp].offset for tp in partitions}
        ends |= self._open_transactions(
            {tp: begins[tp] for tp in partitions if ends[tp] < begins[tp] and tp not in cut}
        )
        shorter = {tp: end for tp, end in ends.items() if end < begins[tp] and tp not in cut}
        if (cut or shorter) and not afresh:
            return self._next(start, limit, afresh=True)
        lost(Loss.LOG_TRUNCATED, [(tp, end, begins[tp]) for tp, end in cut.items()])
        lost(Loss.OFFSETS_CHANGED, [(tp, end, begins[tp]) for tp, end in shorter.items()])
        if self._target is not None:
            ends = {tp: min(end, self._target.get(tp, begins[tp])) for tp, end in ends.items()}
        # A log that lost its end is read on from where it was cut; the loss was reported above.
        cut |= shorter
        starts |= cut
        begins = {tp: cut.get(tp, begins[tp]) for tp in partitions}
        ends = {tp: max(end, begins[tp]) for tp, end in ends.items()}
        if ends == begins:
            self._report_stall(latest)
        ends = self._admit(begins, ends, limit)
        if ends == begins and not cut:  # what was cut off is remembered at once: the log may grow past it again
            return None
        offsets = {tp: end for tp, end in ends.items() if tp in start.offsets or end > begins[tp]}
        return QueryOffsets(
            offsets=offsets,
            epochs={tp: latest[tp].leader_epoch for tp in offsets if latest[tp].leader_epoch >= 0},
            topic_ids=topic_ids,
            starts={tp: min(offset, offsets[tp]) for tp, offset in starts.items() if tp in offsets},
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

    def _truncated(
        self, start: QueryOffsets, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, int]:
        """Where logs were cut below what this query has read: their present leaders' logs part from it there (KIP-320)."""
        asked = {
            tp: epoch
            for tp, epoch in start.epochs.items()
            if tp in latest and begins.get(tp) == start.offsets.get(tp)
            and latest[tp].leader_epoch not in (-1, epoch)
            and self._whole.get(tp) != (epoch, latest[tp].leader_epoch)
        }  # fmt: skip
        cut = {}
        for tp, (_, end_offset) in (offsets_for_leader_epoch(self._cluster, asked) if asked else {}).items():
            if 0 <= end_offset < begins[tp]:
                cut[tp] = min(end_offset, latest[tp].offset)
            else:
                self._whole[tp] = (asked[tp], latest[tp].leader_epoch)
        return cut

    def _open_transactions(self, begins: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of topic-partitions that were read beyond their last stable offset, before the query was ``read_committed``,
        those whose logs hold what was read: nothing is lost, and nothing new."""
        if not begins or self._options.client.isolation_level != "read_committed":
            return {}
        written = latest_offsets(self._cluster, begins, "read_uncommitted")
        return {tp: offset for tp, offset in begins.items() if written[tp].offset >= offset}

    def _report_stall(self, latest: Mapping[TopicPartition, ListedOffset]) -> None:
        """Warn where an open transaction has kept a ``read_committed`` query from going on since the last look."""
        now = time.monotonic()
        if self._options.client.isolation_level != "read_committed" or now - self._stall_looked_at < _STALL_S:
            return
        written = latest_offsets(self._cluster, latest, "read_uncommitted")
        held = {tp: stable.offset for tp, stable in latest.items() if stable.offset < written[tp].offset}
        stalled = {tp: offset for tp, offset in held.items() if self._held.get(tp) == offset}
        if stalled:
            named = open_transactions(self._cluster, stalled, deadline=Deadline.after_ms(_STALL_NAMES_MS))
            _log.warning(
                "Open transactions have held up the query for %.0f s: %s. Wait for them to end; one whose producer is gone is "
                "aborted by kafka-transactions.sh abort.",
                now - self._stall_looked_at,
                "; ".join((named or [f"{tp} at {offset}" for tp, offset in stalled.items()])[:20]),
            )
        self._held, self._stall_looked_at = held, now


def _ranges(begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    return [
        OffsetRange(topic=tp.topic, partition=tp.partition, start_offset=begins.get(tp, 0), end_offset=end)
        for tp, end in ends.items()
    ]
