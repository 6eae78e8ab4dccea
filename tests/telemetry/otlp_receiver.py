"""An OTLP/HTTP receiver on loopback that decodes what it gets with OpenTelemetry's own package."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class ReceivedSpan(NamedTuple):
    """A span as a receiver stores it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    seconds: float
    began: float
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    failed: bool
    resource: dict[str, Any]


@dataclass
class Inbox:
    """What the receiver got. `answer` returns status, headers and body of the response to each request of traces."""

    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    answer: Callable[[int], tuple[int, dict[str, str], bytes]] = lambda number: (200, {}, b"")
    requests: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def spans(self) -> list[ReceivedSpan]:
        return [span for request in self.traces for span in read_spans(request)]

    def wait_until(self, condition: Callable[[], object], *, seconds: float) -> bool:
        with self.changed:
            return bool(self.changed.wait_for(condition, timeout=seconds))


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes_of(given: Any) -> dict[str, Any]:
    return {one.key: value_of(one.value) for one in given}


def read_spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    span.start_time_unix_nano / 1e9,
                    attributes_of(span.attributes),
                    [(event.name, attributes_of(event.attributes)) for event in span.events],
                    span.status.code == 2,
                    attributes_of(resource.resource.attributes),
                )


def rejecting(spans: int, message: str) -> bytes:
    """The body of a response that accepts a part of the request."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = spans
    response.partial_success.error_message = message
    return bytes(response.SerializeToString())


@contextmanager
def receive(port: int = 0) -> Iterator[Inbox]:
    """Yield the inbox of a running receiver."""
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status, headers, reply = self._take(body)
            self.send_response(status)
            for name, value in {"Content-Type": "application/x-protobuf", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def _take(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            with inbox.changed:
                inbox.changed.notify_all()
                if self.path.endswith("/v1/metrics"):
                    inbox.metrics.append(ExportMetricsServiceRequest.FromString(body))
                    return 200, {}, b""
                inbox.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, headers, reply = inbox.answer(inbox.requests)
                inbox.requests += 1
                if status == 200:
                    inbox.traces.append(ExportTraceServiceRequest.FromString(body))
                return status, headers, reply

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    inbox.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
