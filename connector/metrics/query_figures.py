"""Keeps the figures of streaming queries, from what Spark's listeners receive. Knows no exporter, and asks no broker.

A counter goes on over a query's restarts in the same application, as Prometheus and OpenTelemetry expect of a process. The gauges
of a query that has ended are gone, because a lag that is no longer measured would look current.
"""

from __future__ import annotations

import bisect
import json
import math
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pykafka_wire.lag_listener import source_reports
from pykafka_wire.metrics.definitions import (
    ACTIVE,
    BY_NAME,
    DURATION,
    DURATION_BUCKETS,
    GROUP_LAG,
    GROUP_OFFSET,
    LAST_BATCH,
    LAST_PROGRESS,
    LOG_END,
    METRICS,
    PHASES,
    PROCESS,
    Metric,
)

#: Queries that have ended and whose counters are kept. A query without a name has a label of its own for each checkpoint.
_KEPT_QUERIES: Final = 100

#: In a progress' durations, that of the whole micro-batch.
_WHOLE: Final = "triggerExecution"

#: Label values, in the order of the metric's labels.
Labels = tuple[str, ...]


@dataclass(slots=True)
class Durations:
    """The durations of a query's micro-batches, as a histogram: counts of each bucket alone, the last one without an end."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(DURATION_BUCKETS, seconds)] += 1
        self.sum_s += seconds


class _Query:
    """What is known of the queries with one label."""

    def __init__(self) -> None:
        self.counters: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        self.gauges: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        self.durations = Durations()
        self.run = ""
        #: The counts of the present run at its last progress, by metric and labels.
        self._seen: dict[tuple[str, Labels], float] = {}

    def begin(self, run: str) -> None:
        """Begin the gauges anew: a run has started or made progress."""
        self.gauges.clear()
        if run != self.run:
            self.run = run
            self._seen.clear()

    def add(self, name: str, labels: Labels, value: float) -> None:
        self.counters[name][labels] = self.counters[name].get(labels, 0.0) + value

    def add_total(self, name: str, labels: Labels, total: float) -> None:
        """Add what a count of the present run has grown by."""
        self.add(name, labels, max(0.0, total - self._seen.get((name, labels), 0.0)))
        self._seen[name, labels] = total


class QueryFigures:
    """The figures of all queries that read with ``pykafka-wire``. Threads may share it.

    Args:
        per_partition: also the lag and the offsets of each topic-partition.
    """

    def __init__(self, *, per_partition: bool = True) -> None:
        self._per_partition = per_partition
        self._lock = threading.Lock()
        #: By label, the one that was changed last at the end.
        self._queries: OrderedDict[str, _Query] = OrderedDict()
        self._labels: dict[str, str] = {}
        self._others: list[Callable[[str], Mapping[Labels, float]]] = []

    def include(self, values: Callable[[str], Mapping[Labels, float]]) -> None:
        """Add figures that are not in a query's progress, those of an ingest's tables: ``figures.include(ingest.figures)``.

        Args:
            values: those of a metric, by labels; it is called whenever they are asked for.
        """
        self._others.append(values)

    def progress(
        self, progress: Any
    ) -> tuple[str, float] | None:  # Any: a StreamingQueryProgress of either kind of session
        """Take up a micro-batch's progress; the query's label and the duration in seconds, None where the query is not ours."""
        reports = list(source_reports(progress))
        if not reports:
            return None
        label = progress.name or str(progress.id)
        durations = {phase: ms / 1000 for phase, ms in progress.durationMs.items()}
        with self._lock:
            self._labels[str(progress.runId)] = label
            query = self._queries.setdefault(label, _Query())
            self._queries.move_to_end(label)
            query.begin(str(progress.runId))
            query.gauges[ACTIVE][(label,)] = 1.0
            query.gauges[LAST_BATCH][(label,)] = float(progress.batchId)
            query.gauges[LAST_PROGRESS][(label,)] = time.time()
            for index, report in reports:
                self._add_source(query, (label, str(index)), progress.sources[index], report)
            duration = durations.pop(_WHOLE, sum(durations.values()))  # no phase: a sum over all would count it twice
            for phase, seconds in durations.items():
                query.add(PHASES, (label, phase), seconds)
            query.durations.add(duration)
        return label, duration

    def begin(self, run_id: str, label: str) -> None:
        """Note that a query's run has begun. A restarted query may find nothing to read for long, and runs nevertheless."""
        with self._lock:
            query = self._queries.get(label)
            if query is None:
                return
            self._labels[run_id] = label
            query.begin(run_id)
            query.gauges[ACTIVE][(label,)] = 1.0
            query.gauges[LAST_PROGRESS][(label,)] = time.time()

    def note_idle(self, run_id: str) -> None:
        """Note that a query has nothing to read: it is alive."""
        with self._lock:
            label = self._labels.get(run_id)
            if label is not None:
                self._queries[label].gauges[LAST_PROGRESS][(label,)] = time.time()

    def end(self, run_id: str) -> None:
        """Note that a query's run has ended: its gauges go, its counters stay."""
        with self._lock:
            label = self._labels.pop(run_id, None)
            if label is None or self._queries[label].run != run_id:
                return
            self._queries[label].gauges.clear()
            self._queries[label].gauges[ACTIVE][(label,)] = 0.0
            ended = [query for query in self._queries if query not in self._labels.values()]
            for query in ended[: max(0, len(ended) - _KEPT_QUERIES)]:
                del self._queries[query]

    def samples(self) -> dict[str, dict[Labels, float]]:
        """Return the values of all counters and gauges, by metric."""
        return {name: self.values(name) for name in BY_NAME if name != DURATION}

    def values(self, metric: str) -> dict[Labels, float]:
        """Return the values of one counter or gauge. Where two queries have the same one, such as the end of a log that both
        read, the larger value counts."""
        largest: dict[Labels, float] = {}
        with self._lock:
            for query in self._queries.values():
                values = (query.counters if BY_NAME[metric].kind == "counter" else query.gauges).get(metric, {})
                for labels, value in values.items():
                    largest[labels] = max(value, largest.get(labels, value))
        for others in self._others:
            largest.update(others(metric))
        return largest

    def durations(self) -> Iterator[tuple[str, Durations]]:
        """Yield the histogram of each query's micro-batches, by label."""
        with self._lock:
            copied = [
                (label, Durations(list(q.durations.counts), q.durations.sum_s)) for label, q in self._queries.items()
            ]
        yield from copied

    def _add_source(self, query: _Query, labels: Labels, source: Any, report: Mapping[str, Any]) -> None:
        gauges = query.gauges
        processes = {(*labels, "driver"): report.get("client"), (*labels, "tasks"): report.get("tasks")}
        for metric in METRICS:
            for at_labels, figures in (processes if metric.labels == PROCESS else {labels: report}).items():
                value = _figure(metric, figures)
                if value is not None and metric.kind == "gauge":
                    gauges[metric.name][at_labels] = value
                elif value is not None:
                    query.add_total(metric.name, at_labels, value)
        gauges["pykafka_wire_input_rows_per_second"][labels] = _rate(source.inputRowsPerSecond)
        gauges["pykafka_wire_processed_rows_per_second"][labels] = _rate(source.processedRowsPerSecond)
        query.add("pykafka_wire_input_rows_total", labels, float(source.numInputRows))
        if self._per_partition:
            _add_partitions(gauges, source, report)


def _figure(metric: Metric, report: Mapping[str, Any] | None) -> float | None:
    """Return a metric's figure in a report; None where that has none."""
    amounts = []
    for where, _, key in (key.rpartition(".") for key in metric.keys):
        figures = report.get(where) if report is not None and where else report
        value = None if figures is None else figures.get(key, 0 if metric.kind == "counter" else None)
        if value is not None:
            amounts.append(value / (1000 if key.endswith("Ms") else 1))
    return float(sum(amounts)) if amounts else None


def _add_partitions(gauges: Mapping[str, dict[Labels, float]], source: Any, report: Mapping[str, Any]) -> None:
    """Add the lag and the offsets of each topic-partition."""
    reached = json.loads(source.endOffset or "{}").get("offsets", {})
    for topic, partitions in report["offsets"].items():
        for partition, latest in partitions.items():
            gauges[LOG_END][topic, partition] = float(latest)
            offset = reached.get(topic, {}).get(partition)
            if offset is not None:
                where = (report["group"], topic, partition)
                gauges[GROUP_OFFSET][where] = float(offset)
                gauges[GROUP_LAG][where] = float(max(0, latest - offset))


def _rate(value: float) -> float:
    """Return a rate as Spark has it; 0 where it is no number, as in a query's first micro-batch."""
    return value if math.isfinite(value) else 0.0
