"""Start and stop sending spans and metrics of this process. OpenTelemetry's SDK reads its own variables."""

import atexit
import logging
import os
import socket
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.conf import settings

from apps.accounts.telemetry.spans import set_tracer

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)

MISSING = "The packages of requirements-otel.txt are not installed, so GymWeb sends neither traces nor metrics."
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class _Started:
    """The exporters of this process."""

    stops: list[Callable[[], None]] = []


def is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:
        return False


def read_process_metrics() -> "Iterable[Metric]":
    """Return the metrics of this process: memory, CPU, files."""
    # Imported lazily: most workers send no metrics.
    from prometheus_client import REGISTRY

    return REGISTRY.collect()


def start_telemetry(process: str, read_metrics: "Callable[[], Iterable[Metric]]" = read_process_metrics) -> None:
    """Send spans, and the metrics that `read_metrics` returns, if the settings say so.

    `process` is `web` or `worker`. Call it before other modules ask for a tracer.
    """
    if not (settings.SEND_SPANS or settings.SEND_METRICS):
        return
    if not is_installed():
        logger.warning(MISSING)
        return
    resource = _describe_process(process)
    if settings.SEND_SPANS:
        _start_spans(resource)
    if settings.SEND_METRICS:
        # Imported here, because it needs OpenTelemetry.
        from apps.accounts.telemetry.metric_export import MetricExport

        export = MetricExport(resource, read_metrics, seconds=settings.METRIC_SECONDS)
        export.start()
        _Started.stops.append(export.stop)
    atexit.register(stop_telemetry)


def stop_telemetry() -> None:
    """Send the remaining spans and metrics, for at most the time limit of the exporter, and stop."""
    set_tracer(None)
    while _Started.stops:
        _Started.stops.pop()()


def _describe_process(process: str) -> Any:
    """Return the resource. Attributes of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {
        "service.name": "gymweb",
        "service.version": settings.VERSION,
        "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        "gymweb.process": process,
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


def _start_spans(resource: Any) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    set_tracer(provider.get_tracer("gymweb", settings.VERSION))
    _Started.stops.append(provider.shutdown)
