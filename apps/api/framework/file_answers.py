"""Conditional responses (ETag, If-Match, If-None-Match), and streamed files, which do not support ranges."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.middleware.http import ConditionalGetMiddleware
from django.utils.cache import get_conditional_response
from django.utils.decorators import decorator_from_middleware
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from apps.api.framework.problems import problem_response


class NdjsonRenderer(JSONRenderer):
    """Allow `Accept: application/x-ndjson`. The view writes the lines."""

    media_type = "application/x-ndjson"
    format = "ndjson"


class CsvRenderer(JSONRenderer):
    """Allow `Accept: text/csv`. The view writes the lines."""

    media_type = "text/csv"
    format = "csv"


TABLE_RENDERERS = [JSONRenderer, NdjsonRenderer, CsvRenderer]
TABLE_FILE: dict[str, Any] = {
    "responses": {(200, "application/x-ndjson"): OpenApiTypes.BINARY, (200, "text/csv"): OpenApiTypes.BINARY},
    "parameters": [OpenApiParameter("format", str, enum=["csv", "ndjson"], default="ndjson")],
}
"""Schema of the responses of an operation that streams a table."""

_FAILED_PRECONDITIONS = {
    HTTPStatus.PRECONDITION_FAILED: ("precondition-failed", "The file changed: its `ETag` differs from `If-Match`."),
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: (
        "range",
        "The range is outside the file; `Content-Range` has its size.",
    ),
}
_KEPT_HEADERS = ("Content-Range", "Accept-Ranges", "ETag", "Last-Modified", "Cache-Control", "X-Content-Type-Options")


class _ConditionalResponses(ConditionalGetMiddleware):
    """Return failed preconditions as problem documents."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        answer: HttpResponseBase = super().process_response(request, response)
        if answer.status_code not in _FAILED_PRECONDITIONS:
            return answer
        kind, detail = _FAILED_PRECONDITIONS[HTTPStatus(answer.status_code)]
        problem = problem_response(request, answer.status_code, kind, detail)
        for name in _KEPT_HEADERS:
            if answer.has_header(name):
                problem[name] = answer.headers[name]
        return problem


conditional = decorator_from_middleware(_ConditionalResponses)
"""Add an ETag to GET responses, and answer 304 to If-None-Match if nothing changed."""


def stream_rows(
    request: Request, rows: AsyncIterator[bytes], *, etag: str, filename: str, content_type: str
) -> HttpResponseBase:
    """Return a streamed attachment for GET or HEAD.

    `etag` includes the quotes. Without a body, `rows` is not started.
    """
    given = request._request
    unchanged = get_conditional_response(given, etag=etag)
    response: HttpResponseBase
    if unchanged is not None and unchanged.status_code == HTTPStatus.NOT_MODIFIED:
        response = unchanged
    elif given.method == "HEAD":
        response = HttpResponse(content_type=content_type)
        # The length is unknown.
        del response["Content-Length"]
    else:
        response = StreamingHttpResponse(rows, content_type=content_type)
    if response.status_code == HTTPStatus.OK:
        response["Content-Disposition"] = content_disposition_header(True, filename) or "attachment"
    response["ETag"] = etag
    # The length is known only after reading, so ranges are not supported.
    response["Accept-Ranges"] = "none"
    response["Cache-Control"] = "private, no-cache"
    response["X-Content-Type-Options"] = "nosniff"
    return response
