"""Spans of GymWeb itself. Without a started exporter, all functions do nothing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class Silence(TypedDict):
    """Arguments that keep errors out of a span."""

    record_exception: bool
    set_status_on_exception: bool


# Messages of errors may quote traces.
SILENT: Silence = {"record_exception": False, "set_status_on_exception": False}


class _Process:
    """The tracer of this process, None while no spans are sent."""

    tracer: "Tracer | None" = None


def set_tracer(tracer: "Tracer | None") -> None:
    _Process.tracer = tracer


def current_tracer() -> "Tracer | None":
    """Return the tracer, or None if no spans are sent."""
    return _Process.tracer


def annotate(**attributes: Any) -> None:
    """Add attributes to the current span."""
    if _Process.tracer is not None:
        _current().set_attributes(named(attributes))


def mark_failed(problem: BaseException) -> None:
    """Mark the current span as failed. Only the type of the error is sent, because messages may quote traces."""
    if _Process.tracer is not None:
        fail(_current(), type(problem).__name__)


def fail(span: "Span", kind: str) -> None:
    """Mark a span as failed with this kind of error."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with the prefix `gymweb.`, without None and empty texts."""
    return {f"gymweb.{name}": value for name, value in attributes.items() if value is not None and value != ""}


def _current() -> "Span":
    from opentelemetry.trace import get_current_span

    return get_current_span()
