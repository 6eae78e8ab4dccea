"""A span for each request of pages and API, if spans are sent."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponseBase

from apps.accounts.telemetry.log_context import read_context
from apps.accounts.telemetry.spans import SILENT, current_tracer, fail, named

PROBES = frozenset({"/healthz", "/readyz"})


class RequestSpanMiddleware:
    """Open a span for each request. Behind a trusted proxy, it continues the trace of the `traceparent` header."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        if current_tracer() is None:
            raise MiddlewareNotUsed("No spans are sent.")
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer(request)
        if request.path in PROBES:
            response: HttpResponseBase = self.get_response(request)
            return response
        with _open_span(request) as span:
            response = self.get_response(request)
            _describe(span, request, response)
        return response

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        if request.path in PROBES:
            answer: HttpResponseBase = await self.get_response(request)
            return answer
        with _open_span(request) as span:
            response: HttpResponseBase = await self.get_response(request)
            _describe(span, request, response)
        return response


def _open_span(request: HttpRequest) -> AbstractContextManager[Any]:
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = None
    if settings.TRUSTED_PROXIES and "traceparent" in request.headers:
        parent = TraceContextTextMapPropagator().extract({"traceparent": request.headers["traceparent"]})
    tracer = current_tracer()
    assert tracer is not None
    return tracer.start_as_current_span(request.method or "", context=parent, kind=SpanKind.SERVER, **SILENT)


def _describe(span: Any, request: HttpRequest, response: HttpResponseBase) -> None:
    """Name the route, not the path: the path of a sign-in link is a secret."""
    route = request.resolver_match.route if request.resolver_match else ""
    if route:
        span.update_name(f"{request.method} /{route}")
        span.set_attribute("http.route", f"/{route}")
    span.set_attributes(
        {
            "http.request.method": request.method or "",
            "http.response.status_code": response.status_code,
            **named(read_context(request)),
        }
    )
    if response.status_code >= 500:
        fail(span, str(response.status_code))
