"""Metrics of streaming queries for Prometheus and OpenTelemetry, with one line on the driver::

    from pykafka_wire import metrics

    metrics.serve_prometheus(spark, port=9464)

The figures come from the queries' progress (Spark 4.2+), in classic and in Spark Connect sessions; no broker is asked. Queries that
start after the call are included, and so are those that run already. docs/metrics.md lists all metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykafka_wire.metrics.listener import MetricsListener
from pykafka_wire.metrics.query_figures import QueryFigures

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

    from pykafka_wire.metrics.prometheus import PrometheusServer
    from pykafka_wire.metrics.spans import SpanListener

__all__ = [
    "MetricsListener",
    "QueryFigures",
    "export_opentelemetry",
    "register_prometheus",
    "serve_prometheus",
    "trace_opentelemetry",
]


def serve_prometheus(
    spark: SparkSession,
    port: int = 9464,
    addr: str = "127.0.0.1",
    *,
    registry: CollectorRegistry | None = None,
    per_partition: bool = True,
) -> PrometheusServer:
    """Serve the metrics of a session's queries to Prometheus, over HTTP at ``/metrics``.

    Args:
        port: 0 for a free one, which the result has.
        addr: the address to listen on; by default this machine alone reaches it. Metrics have the names of topics, groups and
            queries: for a Prometheus elsewhere choose an address that only it reaches. ``0.0.0.0`` is every one.
        registry: serve what this registry has as well; by default these metrics alone.
        per_partition: also the lag and the offsets of each topic-partition, three series for each.

    Raises:
        ImportError: prometheus_client is not installed.
        OSError: the port is in use.
        ValueError: the registry has these metrics already.
    """
    _require("prometheus_client", "prometheus")
    from pykafka_wire.metrics.prometheus import serve

    server = serve(MetricsListener(QueryFigures(per_partition=per_partition)), port, addr, registry)
    try:
        spark.streams.addListener(server.listener)
    except BaseException:
        server.close()
        raise
    return server


def register_prometheus(
    spark: SparkSession,
    registry: CollectorRegistry | None = None,
    *,
    per_partition: bool = True,
) -> MetricsListener:
    """Add the metrics of a session's queries to a registry that your program serves or pushes, by default the global one.

    Once for each registry: add the result to further sessions by ``spark.streams.addListener(listener)``.

    Raises:
        ImportError: prometheus_client is not installed.
        ValueError: the registry has these metrics already.
    """
    _require("prometheus_client", "prometheus")
    from pykafka_wire.metrics.prometheus import register

    listener = register(MetricsListener(QueryFigures(per_partition=per_partition)), registry)
    spark.streams.addListener(listener)
    return listener


def export_opentelemetry(
    spark: SparkSession,
    meter_provider: MeterProvider | None = None,
    *,
    per_partition: bool = True,
) -> MetricsListener:
    """Give the metrics of a session's queries to OpenTelemetry, whose SDK your program has set up.

    Once for each provider: add the result to further sessions by ``spark.streams.addListener(listener)``.

    Args:
        meter_provider: by default the global one.

    Raises:
        ImportError: opentelemetry-api is not installed.
        ValueError: the provider has these metrics already.
    """
    _require("opentelemetry.metrics", "opentelemetry")
    from pykafka_wire.metrics.opentelemetry import export

    listener = export(MetricsListener(QueryFigures(per_partition=per_partition)), meter_provider)
    spark.streams.addListener(listener)
    return listener


def trace_opentelemetry(
    spark: SparkSession,
    tracer_provider: TracerProvider | None = None,
) -> SpanListener:
    """Give a span for each micro-batch of a session's queries, with its plan, tasks and commit, to OpenTelemetry, whose SDK your
    program has set up. Add the result to further sessions by ``spark.streams.addListener(listener)``.

    Args:
        tracer_provider: by default the global one.

    Raises:
        ImportError: opentelemetry-api is not installed.
    """
    _require("opentelemetry.trace", "opentelemetry")
    from pykafka_wire.metrics.spans import SpanListener

    listener = SpanListener(tracer_provider)
    spark.streams.addListener(listener)
    return listener


def _require(module: str, extra: str) -> None:
    """Import a library before anything else is done; the error names the extra."""
    import importlib

    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"[PYKAFKA_WIRE_NOT_INSTALLED] {module} cannot be imported ({error}): pip install 'pykafka-wire[{extra}]' for the "
            "Python of your program."
        ) from error
