"""The listener that takes up the figures of a session's queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykafka_wire.lag_listener import LagListener, QueryLag
from pykafka_wire.metrics.query_figures import QueryFigures


class MetricsListener(LagListener):
    """Keeps the figures of every query that reads with ``pykafka-wire``, and logs none of them.

    Attributes:
        figures: what exporters read.
        on_duration: is called with a query's label and the seconds of each of its micro-batches.
    """

    def __init__(self, figures: QueryFigures, on_lag: Callable[[QueryLag], None] | None = None) -> None:
        super().__init__(on_lag if on_lag is not None else lambda lag: None)  # the figures have the lag, too
        self.figures = figures
        self.on_duration: Callable[[str, float], None] | None = None

    def onQueryStarted(self, event: Any) -> None:  # Any: Spark's events, which differ between classic and Connect
        """Note that a known query runs again; a new one is known by its first progress."""
        self.figures.begin(str(event.runId), event.name or str(event.id))

    def onQueryProgress(self, event: Any) -> None:
        """Take up the figures of a finished micro-batch."""
        super().onQueryProgress(event)
        progress = self.figures.progress(event.progress)
        if progress is not None and self.on_duration is not None:
            self.on_duration(*progress)

    def onQueryIdle(self, event: Any) -> None:
        """Note that the query is alive."""
        self.figures.note_idle(str(event.runId))

    def onQueryTerminated(self, event: Any) -> None:
        """Remove the gauges of a query that has ended."""
        self.figures.end(str(event.runId))
        super().onQueryTerminated(event)
