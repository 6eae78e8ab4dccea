"""Answers with a tag that says when nothing has changed; among them files that are written while they are read, which
take no ranges."""

from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.middleware.http import ConditionalGetMiddleware
from django.utils.cache import get_conditional_response
from django.utils.decorators import decorator_from_middleware
from django.utils.http import content_disposition_header
from rest_framework.request import Request

from apps.api.framework.problems import problem_response

_REFUSALS = {
    HTTPStatus.PRECONDITION_FAILED: ("precondition-failed", "This is no longer what `If-Match` names."),
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: (
        "range",
        "The file has no such bytes; `Content-Range` tells its size.",
    ),
}
_KEPT = ("Content-Range", "Accept-Ranges", "ETag", "Last-Modified", "Cache-Control", "X-Content-Type-Options")


class _ConditionalAnswers(ConditionalGetMiddleware):
    """Refuses with a problem document, as everything below /api/ does."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        answer: HttpResponseBase = super().process_response(request, response)
        if answer.status_code not in _REFUSALS:
            return answer
        kind, detail = _REFUSALS[HTTPStatus(answer.status_code)]
        problem = problem_response(request, answer.status_code, kind, detail)
        for name in _KEPT:
            if answer.has_header(name):
                problem[name] = answer.headers[name]
        return problem


conditional = decorator_from_middleware(_ConditionalAnswers)
"""A tag of each answer to GET: whoever sends it back as If-None-Match is told 304 while nothing has changed."""


def stream_rows(
    request: Request, rows: AsyncIterator[bytes], *, etag: str, filename: str, content_type: str
) -> HttpResponseBase:
    """An attachment for GET and HEAD. `etag` is quoted; `rows` is not begun where the answer has no body."""
    given = request._request
    unchanged = get_conditional_response(given, etag=etag)
    response: HttpResponseBase
    if unchanged is not None and unchanged.status_code == HTTPStatus.NOT_MODIFIED:
        response = unchanged
    elif given.method == "HEAD":
        response = HttpResponse(content_type=content_type)
        # Nobody has counted the bytes.
        del response["Content-Length"]
    else:
        response = StreamingHttpResponse(rows, content_type=content_type)
    if response.status_code == HTTPStatus.OK:
        response["Content-Disposition"] = content_disposition_header(True, filename) or "attachment"
    response["ETag"] = etag
    # How long the file is, is known when it has been read: a part of it could not say where it stands in the whole.
    response["Accept-Ranges"] = "none"
    response["Cache-Control"] = "private, no-cache"
    response["X-Content-Type-Options"] = "nosniff"
    return response


async def one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same pieces, each made in the thread that has the request's database connection."""

    def make() -> bytes:
        return next(pieces, b"")

    while piece := await sync_to_async(make, thread_sensitive=True)():
        yield piece
