"""The figures of queries as OpenTelemetry instruments, by its API. Nothing else of the package imports that library.

Which exporter sends them where, and how often, is for the SDK to say, which the user's program sets up. An instrument's name is the
metric's without the suffixes that Prometheus exporters add by themselves: ``_total``, and the unit.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation, get_meter, get_meter_provider

from pykafka_wire.metrics.definitions import DURATION_BUCKETS, METRICS, Metric
from pykafka_wire.metrics.listener import MetricsListener
from pykafka_wire.metrics.query_figures import QueryFigures

_SECONDS: Final = "_seconds"

#: Providers that have the instruments. An SDK ignores the callbacks of a second instrument of the same name.
_exported_to: Final[weakref.WeakSet[MeterProvider]] = weakref.WeakSet()


def instrument_name(metric: Metric) -> tuple[str, str]:
    """Name and unit of a metric's instrument."""
    name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
    return name.removesuffix(_SECONDS), "s" if name.endswith(_SECONDS) else ""


def export(listener: MetricsListener, meter_provider: MeterProvider | None) -> MetricsListener:
    """Make the instruments; they read the figures whenever the SDK collects.

    Raises:
        ValueError: the provider has them already.
    """
    from pykafka_wire import __version__

    meter_provider = meter_provider if meter_provider is not None else get_meter_provider()
    if meter_provider in _exported_to:
        raise ValueError(
            "This meter provider has these metrics already: add the listener that the first export_opentelemetry returned to each "
            "further session, by spark.streams.addListener(listener)."
        )
    _exported_to.add(meter_provider)
    meter = get_meter("pykafka_wire", __version__, meter_provider)
    for metric in METRICS:
        name, unit = instrument_name(metric)
        described, observe = f"{metric.meaning}.", [_observe(listener.figures, metric)]
        if metric.kind == "counter":
            meter.create_observable_counter(name, observe, unit, described)
        elif metric.kind == "gauge":
            meter.create_observable_gauge(name, observe, unit, described)
        else:
            bounds = DURATION_BUCKETS
            histogram = meter.create_histogram(name, unit, described, explicit_bucket_boundaries_advisory=bounds)
            listener.on_duration = partial(_record, histogram)
    return listener


def _record(histogram: Histogram, query: str, seconds: float) -> None:
    histogram.record(seconds, {"query": query})


def _observe(figures: QueryFigures, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for labels, value in figures.values(metric.name).items():
            yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

    return observe
