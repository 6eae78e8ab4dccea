"""OTLP/HTTP requests in protobuf, which all receivers accept; some refuse JSON.

The packages of requirements-otel.txt are imported at the first use.
"""

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

_IDS = ("traceId", "spanId", "parentSpanId")
MISSING = "Sending traces needs the packages of requirements-otel.txt. Ask the operator to install them."


class Rejected(NamedTuple):
    """The part of a request that the receiver did not store."""

    spans: int
    message: str


def encode_request(traces: Iterable[dict[str, Any]]) -> bytes:
    """Return the body of one request with these traces, which are bodies in OTLP/JSON. Raise ValueError."""
    from google.protobuf.json_format import ParseDict, ParseError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans = [_with_base64_ids(one) for trace in traces for one in trace["resourceSpans"]]
    try:
        request = ParseDict({"resourceSpans": spans}, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except ParseError as problem:
        raise ValueError(f"A trace is not valid OTLP: {problem}") from None
    return bytes(request.SerializeToString())


def count_spans(trace: dict[str, Any]) -> int:
    return sum(len(scope["spans"]) for one in trace["resourceSpans"] for scope in one["scopeSpans"])


def read_response(body: bytes) -> Rejected:
    """Return the rejected spans. A body that is not an OTLP response means that the receiver accepted everything."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return Rejected(0, "")
    return Rejected(int(partial.rejected_spans), str(partial.error_message))


def _with_base64_ids(resource: dict[str, Any]) -> dict[str, Any]:
    """Return resource spans with ids as protobuf's own JSON writes bytes. OTLP/JSON has them in hexadecimal."""
    scopes = [{**scope, "spans": [_span(span) for span in scope["spans"]]} for scope in resource["scopeSpans"]]
    return {**resource, "scopeSpans": scopes}


def _span(span: dict[str, Any]) -> dict[str, Any]:
    ids = {name: base64.b64encode(bytes.fromhex(span[name])).decode() for name in _IDS if name in span}
    return {**span, **ids}
