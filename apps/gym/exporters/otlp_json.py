"""Spans in OTLP/JSON: hexadecimal ids, and 64-bit integers as text."""

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

Span = dict[str, Any]

INTERNAL, CLIENT = 1, 3
"""Kinds of spans."""
ERROR = 2
"""Status code of a span that failed."""
_MAX_INT = 2**63 - 1


class TraceWriter:
    """Collects the spans of one trace. `began` is its start in seconds since 1970.

    All ids are derived from `identity`, so a trace that is sent again replaces the earlier one.
    """

    def __init__(self, identity: list[Any], *, began: float) -> None:
        self.trace_id = blake2b(orjson.dumps(identity), digest_size=16, person=b"gymweb trace").hexdigest()
        self.spans: list[Span] = []
        self._began = began

    def span_id(self, name: str) -> str:
        """Return the id of the span with this name, which is unique in the trace."""
        return blake2b(f"{self.trace_id} {name}".encode(), digest_size=8, person=b"gymweb span").hexdigest()

    def add(
        self,
        span_id: str,
        title: str,
        attributes: Mapping[str, Any],
        *,
        parent: str = "",
        kind: int = INTERNAL,
        at: float,
        duration: float,
        problem: str = "",
    ) -> Span:
        """Add a span. `at` is in seconds from the start of the trace. `problem` marks it as failed."""
        span: Span = {
            "traceId": self.trace_id,
            "spanId": span_id,
            **({"parentSpanId": parent} if parent else {}),
            "name": title,
            "kind": kind,
            "startTimeUnixNano": self.nanoseconds(at),
            "endTimeUnixNano": self.nanoseconds(at + max(0.0, duration)),
            "attributes": encode_attributes(attributes),
            **({"status": {"code": ERROR, "message": problem}} if problem else {}),
        }
        self.spans.append(span)
        return span

    def nanoseconds(self, at: float) -> str:
        """Return a time of the trace in nanoseconds since 1970, as text."""
        return str(max(0, round((self._began + at) * 1e9)))

    def as_request(self, resource: Mapping[str, Any], *, scope: str) -> dict[str, Any]:
        """Return the trace as the body of an OTLP/HTTP request."""
        spans = [{"scope": {"name": scope}, "spans": self.spans}]
        return {"resourceSpans": [{"resource": {"attributes": encode_attributes(resource)}, "scopeSpans": spans}]}


def encode_attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes without None and empty values."""
    kept = {name: value for name, value in attributes.items() if value not in (None, "", [])}
    return [{"key": name, "value": _encode(value)} for name, value in kept.items()]


def _encode(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and abs(value) <= _MAX_INT:
        return {"intValue": str(value)}
    if isinstance(value, float) and math.isfinite(value):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_encode(one) for one in value]}}
    return {"stringValue": str(value)}
