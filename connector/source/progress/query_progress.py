"""What others see of a query: its offsets in the consumer group, its report to Spark, a warning of what holds it back.

Owns which offsets are committed, what the report has, and which open transactions hang: why a ``read_committed`` query finds
nothing new. The keys of the report are read by :mod:`pykafka_wire.metrics.query_figures`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pykafka_wire.checkpoints.query_offsets import QueryOffsets, nest_by_topic
from pykafka_wire.options.source import SourceOptions
from pykafka_wire.source.data_loss import DataLossReporter
from pykafka_wire.source.input_partition import KafkaInputPartition
from pykafka_wire.source.planning.micro_batch import LogSnapshot
from pykafka_wire.source.planning.record_size_estimates import RecordSizes, ranges_between
from pykafka_wire.source.progress.group_commits import COMMIT_DEADLINE_MS, GroupCommitter
from pykafka_wire.source.progress.static_member import StaticMember
from pykafka_wire.task_metrics import TaskFiguresReceiver, camel_case
from pykafka_wire.wire.background_call import BackgroundCall
from pykafka_wire.wire.cluster import Cluster
from pykafka_wire.wire.cluster.admin import LATEST, ListedOffset, list_offsets
from pykafka_wire.wire.cluster.describe import open_transactions
from pykafka_wire.wire.deadline import Deadline
from pykafka_wire.wire.errors import WireError
from pykafka_wire.wire.topic_partitions import TopicPartition

_log = logging.getLogger(__name__)

#: A transaction that holds a query back for so long is warned of. Kafka's own limit for one is 15 minutes by default, a producer's
#: is 1 (transaction.max.timeout.ms, transaction.timeout.ms).
_HANGING_S = 60.0
#: How long the check may wait for the ends of the logs, and for the transactions' names.
_ENDS_MS: Final = 5_000
_NAMES_MS: Final = 5_000


class HangingTransactionWatch:
    """Checks now and then for transactions that hold a query back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._checked_at = self._tried_at = 0.0
        self._held: dict[TopicPartition, int] = {}

    def check(self, stable: Mapping[TopicPartition, ListedOffset]) -> None:
        """Warn of open transactions that have kept the last ``stable`` offsets where they were at the last check.

        A check that fails is skipped, as where a topic vanishes in that moment: the query's next snapshot of the logs finds
        what is wrong.
        """
        now = time.monotonic()
        if now - self._tried_at < _HANGING_S:
            return
        self._tried_at = now
        try:
            high_watermarks = list_offsets(
                self._cluster, dict.fromkeys(stable, LATEST), deadline=Deadline.after_ms(_ENDS_MS)
            )
        except WireError as error:
            _log.debug("No check for hanging transactions: %s", error)
            return
        held = {tp: listed.offset for tp, listed in stable.items() if listed.offset < high_watermarks[tp].offset}
        hanging = {tp: offset for tp, offset in held.items() if self._held.get(tp) == offset}
        if hanging:
            named = open_transactions(self._cluster, hanging, deadline=Deadline.after_ms(_NAMES_MS))
            _log.warning(
                "Open transactions have held up the query for %.0f s: %s. Their coordinators abort them after their "
                "transaction.timeout.ms; those of an exactly-once query end when it starts again. If one stays open, run "
                "pykafka-wire transactions: it shows those that no coordinator knows. Abort no other one in its partition: "
                "records that its producer commits would be lost",
                now - self._checked_at,
                "; ".join((named or [f"{tp} at {offset}" for tp, offset in hanging.items()])[:20]),
            )
        self._held, self._checked_at = held, now


class QueryProgress:
    """The progress of one query, in its process on the driver."""

    def __init__(self, cluster: Cluster, options: SourceOptions, losses: DataLossReporter, sizes: RecordSizes) -> None:
        self._cluster = cluster
        self._commits = options.commit_offsets
        member = StaticMember(cluster, options.client) if options.static_membership else None
        self._committer = GroupCommitter(cluster, member=member)
        self._commit: BackgroundCall[None] | None = None
        reads_committed = options.client.isolation_level == "read_committed"
        self._hanging = HangingTransactionWatch(cluster) if reads_committed else None
        self._losses = losses
        self._sizes = sizes
        self._task_figures = TaskFiguresReceiver() if options.task_metrics == "driver" else None
        self._n_tasks = 0

    def join_group(self, start: QueryOffsets, snapshot: LogSnapshot) -> None:
        """Join the group early, where the query is to be a member."""
        self._committer.join_group(_existing(start, snapshot))

    def begin_commit(self, progress: QueryOffsets, snapshot: LogSnapshot | None) -> None:
        """Do as :meth:`commit`, without waiting for it: the next micro-batch is planned meanwhile. One at a time."""
        self.end_commit()
        existing = _existing(progress, snapshot)
        if self._commits and not progress.initial and self._committer.is_due(existing):
            self._commit = BackgroundCall(
                lambda _: self._committer.commit(existing),
                deadline=Deadline.after_ms(COMMIT_DEADLINE_MS),
                name="pykafka-wire commit",
            )

    def end_commit(self) -> None:
        """Wait for the commit that was begun, if there is one; it has a deadline of its own."""
        commit, self._commit = self._commit, None
        if commit is not None and commit.wait(Deadline.after_ms(2 * COMMIT_DEADLINE_MS)):
            commit.result()

    def commit(self, progress: QueryOffsets, snapshot: LogSnapshot | None, *, is_last: bool = False) -> None:
        """Commit what of ``progress`` is in the last snapshot, unless it is where a new query starts."""
        self.end_commit()
        if self._commits and not progress.initial:
            self._committer.commit(_existing(progress, snapshot), is_last=is_last)

    def check_for_hanging_transactions(self, snapshot: LogSnapshot) -> None:
        """Warn of transactions that hold the query back, now and then."""
        if self._hanging is not None:
            self._hanging.check(snapshot.latest)

    def add_tasks(self, planned: Sequence[KafkaInputPartition]) -> None:
        """Count tasks, and tell them where they report."""
        self._n_tasks += len(planned)
        if self._task_figures is not None:
            for offset_range in planned:
                offset_range.receiver = self._task_figures.address

    def report(
        self, snapshot: LogSnapshot, start_offsets: Mapping[TopicPartition, int], progress: QueryOffsets | None
    ) -> dict[str, Any] | None:
        """Return the ends of all logs, and how far ``progress`` is behind them; None where the query reads no log.

        Args:
            start_offsets: where a topic-partition begins of which nothing was planned yet.
        """
        if not snapshot.latest:
            return None
        latest = {tp: listed.offset for tp, listed in snapshot.latest.items()}
        report: dict[str, Any] = {"offsets": nest_by_topic(latest)}
        if progress is not None:
            reached = {**start_offsets, **progress.offsets}
            behind = [max(0, offset - reached.get(tp, 0)) for tp, offset in latest.items()]
            report["minOffsetsBehindLatest"] = min(behind)
            report["maxOffsetsBehindLatest"] = max(behind)
            report["avgOffsetsBehindLatest"] = sum(behind) / len(behind)
            report["totalOffsetsBehindLatest"] = sum(behind)
            report["estimatedTotalBytesBehindLatest"] = self._bytes_behind(reached, latest)
            report["group"] = progress.group
        report["commitSuccesses"] = self._committer.successes
        report["commitFailures"] = self._committer.failures
        report["lostRanges"] = self._losses.n_ranges
        report["lostOffsets"] = self._losses.n_offsets
        report["client"] = camel_case(self._cluster.counters.totals())
        report["plannedTasks"] = self._n_tasks
        if self._task_figures is not None:
            report["tasks"] = camel_case(self._task_figures.total())
        return report

    def close(self) -> None:
        """Leave the group; call it before the cluster is closed."""
        if self._task_figures is not None:
            self._task_figures.close()
        self.end_commit()
        self._committer.close()

    def _bytes_behind(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
        """Return about how many bytes of the logs lie between two offsets; None where no record could be sampled."""
        ranges = ranges_between(starts, ends)
        self._sizes.sample(ranges)
        counts = [(r.n_offsets, self._sizes.known(r.topic)) for r in ranges if r.n_offsets]
        if any(size is None for _, size in counts):
            return None
        return round(sum(n * (size or 0.0) for n, size in counts))


def _existing(progress: QueryOffsets, snapshot: LogSnapshot | None) -> QueryOffsets:
    """Return ``progress`` without topic-partitions that the snapshot lacks: a coordinator retries a commit of a topic that
    was deleted."""
    if snapshot is None or progress.offsets.keys() <= snapshot.latest.keys():
        return progress
    return replace(progress, offsets={tp: offset for tp, offset in progress.offsets.items() if tp in snapshot.latest})
