"""OTLP requests for traces in protobuf, as a receiver reads them. The optional package is imported at the first use."""

import base64
from importlib.util import find_spec
from typing import Any

_IDS = ("traceId", "spanId", "parentSpanId")


class NotOtlp(Exception):
    """Raised if a body is not a request for traces."""


def is_installed() -> bool:
    """Return True if requests can be decoded."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None


def read_request(body: bytes) -> dict[str, Any]:
    """Return a request as OTLP/JSON, with hexadecimal ids. Raises NotOtlp."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        row: dict[str, Any] = MessageToDict(ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True)
    except (DecodeError, ValueError) as error:
        raise NotOtlp(f"not valid protobuf: {error}") from None
    for resource in row.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                span |= {name: base64.b64decode(span[name]).hex() for name in _IDS if name in span}
    return row


def write_response(rejected: int, message: str) -> bytes:
    """Return the answer to a request, empty if nothing was rejected."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    response = ExportTraceServiceResponse()
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    return bytes(response.SerializeToString())
