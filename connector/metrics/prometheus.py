"""The figures of queries in Prometheus' text format, by prometheus_client. Nothing else of the package imports that library."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Iterable
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pykafka_wire.metrics.definitions import BY_NAME, DURATION, DURATION_BUCKETS, METRICS
from pykafka_wire.metrics.listener import MetricsListener
from pykafka_wire.metrics.query_figures import QueryFigures


class QueryCollector(Collector):
    """Makes metric families of the figures whenever Prometheus asks."""

    def __init__(self, figures: QueryFigures) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        """Yield all families without values: by their names a registry detects that it has them already."""
        for metric in METRICS:
            yield Metric(metric.name.removesuffix("_total"), f"{metric.meaning}.", metric.kind)

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        """Yield the families that have values."""
        for name, values in self._figures.samples().items():
            metric = BY_NAME[name]
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(name, f"{metric.meaning}.", labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            if values:
                yield family
        histogram = HistogramMetricFamily(DURATION, f"{BY_NAME[DURATION].meaning}.", labels=BY_NAME[DURATION].labels)
        bounds = [*map(str, DURATION_BUCKETS), "+Inf"]
        for query, durations in self._figures.durations():
            counts = map(float, itertools.accumulate(durations.counts))  # cumulative, as the format has them
            histogram.add_metric([query], list(zip(bounds, counts, strict=True)), durations.sum_s)
        if histogram.samples:
            yield histogram


class PrometheusServer:
    """Serves metrics until :meth:`close`, or until the program ends.

    Attributes:
        port: where it listens.
        listener: takes up the figures; ``listener.wait_for_end(query)`` waits until a query's end has reached it.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread, listener: MetricsListener) -> None:
        self._server = server
        self._thread = thread
        self.port: int = server.server_port
        self.listener = listener

    def close(self) -> None:
        """Stop serving. The listener stays until ``spark.streams.removeListener(server.listener)``."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def register(listener: MetricsListener, registry: CollectorRegistry | None) -> MetricsListener:
    """Add a listener's figures to a registry, by default the global one.

    Raises:
        ValueError: the registry has such figures already.
    """
    try:
        (registry if registry is not None else REGISTRY).register(QueryCollector(listener.figures))
    except ValueError as error:
        raise ValueError(
            "This registry has metrics of these names already. If they are those of an earlier call, add the listener that it "
            "returned to each further session, by spark.streams.addListener(listener); else give another registry."
        ) from error
    return listener


def serve(listener: MetricsListener, port: int, addr: str, registry: CollectorRegistry | None) -> PrometheusServer:
    """Serve a listener's figures, and whatever else is in ``registry``.

    Raises:
        OSError: the port is in use.
        ValueError: the registry has such figures already.
    """
    registry = registry if registry is not None else CollectorRegistry()
    try:
        server = PrometheusServer(*start_http_server(port, addr, registry), listener)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(
            error.errno,
            f"Port {port} of {addr} is in use, by another program or by an earlier serve_prometheus in this one: close() that "
            "server, or give another port, 0 for a free one",
        ) from error
    try:
        register(listener, registry)
    except BaseException:
        server.close()
        raise
    return server
