"""Send metrics over OTLP. They are declared once, for Prometheus, and converted: names and labels are the same."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from django.db import connection
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from apps.accounts.outage_log import RetryLog

UNKNOWN_START = 0
"""Start of counters: a scrape does not know when each of them began."""
CUMULATIVE = AggregationTemporality.CUMULATIVE
Labels = tuple[tuple[str, str], ...]


class MetricExport:
    """A thread that sends all metrics every `seconds`, and once more at its end."""

    def __init__(self, resource: Resource, read: Callable[[], Iterable[Family]], *, seconds: float) -> None:
        self._resource, self._read, self._seconds = resource, read, seconds
        self._exporter = OTLPMetricExporter()
        self._stopping = threading.Event()
        self._log = RetryLog("sending metrics")
        self._thread = threading.Thread(target=self._run, name="metric-export", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._send()
        self._send()

    def _send(self) -> None:
        try:
            data = convert_metrics(self._read(), self._resource, now=time.time_ns())
            if self._exporter.export(data) is not MetricExportResult.SUCCESS:
                raise OSError("The receiver rejected the metrics.")
            self._log.works()
        except Exception as problem:
            # The database or the receiver may be unreachable.
            self._log.failed(problem)
        finally:
            connection.close()


def convert_metrics(families: Iterable[Family], resource: Resource, *, now: int) -> MetricsData:
    """Convert metrics of Prometheus to OpenTelemetry. `now` is in nanoseconds since 1970."""
    metrics = [found for family in families if (found := _convert(family, now)) is not None]
    scope = ScopeMetrics(InstrumentationScope("gymweb"), metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _convert(family: Family, now: int) -> Metric | None:
    data: Any
    if family.type == "histogram":
        data = Histogram(_histograms(family, now), CUMULATIVE)
    else:
        is_counter = family.type == "counter"
        # Counters export their start time as a separate sample.
        samples = [one for one in family.samples if not one.name.endswith("_created")]
        points = [NumberDataPoint(one.labels, UNKNOWN_START, now, one.value) for one in samples]
        data = Sum(points, CUMULATIVE, is_monotonic=True) if is_counter else Gauge(points)
    return Metric(family.name, family.documentation, None, data) if data.data_points else None


def _histograms(family: Family, now: int) -> list[HistogramDataPoint]:
    buckets: dict[Labels, dict[float, float]] = defaultdict(dict)
    sums: dict[Labels, float] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            buckets[labels][float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    return [_histogram(dict(labels), found, sums.get(labels, 0.0), now) for labels, found in buckets.items()]


def _histogram(labels: dict[str, str], cumulative: dict[float, float], total: float, now: int) -> HistogramDataPoint:
    bounds = sorted(cumulative)
    counts = [int(cumulative[bound]) for bound in bounds]
    each = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
    finite = [bound for bound in bounds if math.isfinite(bound)]
    # Smallest and largest values are unknown, and optional in OTLP.
    unknown: Any = None
    return HistogramDataPoint(labels, UNKNOWN_START, now, counts[-1], total, each, finite, unknown, unknown)
