"""Files that are written while they are read: with a tag that says when nothing has changed, and without ranges."""

from collections.abc import AsyncIterator
from http import HTTPStatus

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header
from rest_framework.request import Request


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
