"""A span for each micro-batch as OpenTelemetry has it, by its API: its plan, its tasks and its commit are spans within it.

Spark reports a micro-batch once it is over, with its start and the durations of its phases, and no times between them. So they
are laid one after the other, in Spark's order. No context reaches a task: Spark passes none to a Python source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from opentelemetry.trace import SpanKind, Tracer, TracerProvider, get_tracer, set_span_in_context

from pykafka_wire.lag_listener import LagListener, source_reports

#: The spans of a micro-batch, and the durations of Spark's progress that each is made of.
_PHASES: Final = (
    ("plan", ("latestOffset", "getBatch", "queryPlanning", "walCommit")),
    ("tasks", ("addBatch",)),
    ("commit", ("commitOffsets", "commitBatch")),
)
_WHOLE: Final = "triggerExecution"


class SpanListener(LagListener):
    """Makes the spans of every query that reads with ``pykafka-wire``; micro-batches without rows have none."""

    def __init__(self, tracer_provider: TracerProvider | None) -> None:
        from pykafka_wire import __version__

        super().__init__(lambda lag: None)
        self._tracer: Tracer = get_tracer("pykafka_wire", __version__, tracer_provider)

    def onQueryProgress(self, event: Any) -> None:  # Any: Spark's events, which differ between classic and Connect
        """Make the spans of a finished micro-batch."""
        super().onQueryProgress(event)
        progress = event.progress
        reports = list(source_reports(progress))
        durations = {name: int(ms) for name, ms in progress.durationMs.items()}
        if not reports or not progress.numInputRows or _WHOLE not in durations:
            return
        started_ns = _nanoseconds(progress.timestamp)
        label = progress.name or str(progress.id)
        ends = [json.loads(progress.sources[index].endOffset or "{}") for index, _ in reports]
        span = self._tracer.start_span(
            f"micro-batch {label}",
            kind=SpanKind.CONSUMER,
            start_time=started_ns,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": ",".join(sorted({t for end in ends for t in end.get("offsets", {})})),
                "messaging.consumer.group.name": ",".join(sorted({report["group"] for _, report in reports})),
                "messaging.batch.message_count": sum(progress.sources[index].numInputRows for index, _ in reports),
                "pykafka_wire.query": label,
                "pykafka_wire.query_id": str(progress.id),
                "pykafka_wire.run_id": str(progress.runId),
                "pykafka_wire.batch_id": progress.batchId,
                "pykafka_wire.offsets_behind_latest": sum(report["totalOffsetsBehindLatest"] for _, report in reports),
            },
        )
        at_ns = started_ns
        for name, parts in _PHASES:
            ends_ns = at_ns + _sum_ns(durations, parts)
            phase = self._tracer.start_span(name, context=set_span_in_context(span), start_time=at_ns)
            phase.end(ends_ns)
            at_ns = ends_ns
        span.end(max(at_ns, started_ns + _sum_ns(durations, [_WHOLE])))


def _sum_ns(durations: Mapping[str, int], names: Iterable[str]) -> int:
    return sum(durations.get(name, 0) for name in names) * 1_000_000


def _nanoseconds(timestamp: str) -> int:
    """Return the nanoseconds since the epoch, of a time such as ``2026-11-24T06:00:00.123Z``."""
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1_000) * 1_000_000
