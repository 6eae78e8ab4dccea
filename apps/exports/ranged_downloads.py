"""Send files in constant memory, whole or in part (RFC 9110: ranges and conditional requests)."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header, http_date

from apps.exports.tar_archives import Archive, Part

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII)
_TAG = re.compile(r'(?:W/)?"[^"]*"')


def stream_file(
    request: HttpRequest,
    path: Path,
    *,
    filename: str,
    content_type: str = "application/octet-stream",
    sha256: str = "",
) -> HttpResponseBase:
    """Return an attachment for GET or HEAD. The ETag is the checksum if given, else from size and modification time.

    A single range is supported (200, 206, 416), subject to If-Range. For several ranges, the whole file is sent.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise Http404("the file was deleted") from None
    etag = sha256 or f"{stat.st_size:x}-{stat.st_mtime_ns:x}"
    content = Archive(stat.st_size, etag, stat.st_mtime, parts=[Part(stat.st_size, path=path)])
    return _stream(request, content, filename=filename, content_type=content_type)


def stream_archive(request: HttpRequest, archive: Archive, *, filename: str) -> HttpResponseBase:
    """Return an archive that is created while it is sent, like `stream_file`."""
    return _stream(request, archive, filename=filename, content_type="application/x-tar")


def _stream(request: HttpRequest, sent: Archive, *, filename: str, content_type: str) -> HttpResponseBase:
    response: HttpResponseBase
    etag, changed = f'"{sent.etag}"', http_date(sent.changed)
    start, length = 0, sent.size
    # If-None-Match compares weakly: a proxy may have made our ETag weak.
    known = request.headers.get("If-None-Match", "")
    if known.strip() == "*" or etag in (tag.removeprefix("W/") for tag in _TAG.findall(known)):
        response = HttpResponse(status=304)
    elif (wanted := _wanted_range(request, sent.size, etag, changed)) is None:
        response = _body(request, sent, start, length, status=200)
    elif not wanted:
        response = HttpResponse(status=416, content_type=content_type)
        response["Content-Range"] = f"bytes */{sent.size}"
        length = 0
    else:
        start, length = wanted.start, len(wanted)
        response = _body(request, sent, start, length, status=206)
        response["Content-Range"] = f"bytes {start}-{wanted.stop - 1}/{sent.size}"
    if response.status_code != 304:
        response["Content-Type"] = content_type
        response["Content-Length"] = str(length)
        response["Content-Disposition"] = content_disposition_header(True, filename) or "attachment"
    response["Accept-Ranges"] = "bytes"
    response["ETag"] = etag
    response["Last-Modified"] = changed
    response["Cache-Control"] = "private, no-cache"
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _wanted_range(request: HttpRequest, size: int, etag: str, changed: str) -> range | None:
    """Return the requested range of bytes: None for the whole file, empty if it cannot be satisfied."""
    if request.method != "GET" or request.headers.get("If-Range", etag) not in (etag, changed):
        return None
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    if not match or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(int(last) + 1 if last else size, size))


def _body(request: HttpRequest, sent: Archive, start: int, length: int, *, status: int) -> HttpResponseBase:
    if request.method == "HEAD":
        return HttpResponse(status=status)
    chunks = sent.read(start, length)
    # WSGI requests, as from Django's test client, cannot consume an asynchronous body.
    return StreamingHttpResponse(_in_thread(chunks) if isinstance(request, ASGIRequest) else chunks, status=status)


async def _in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks, reading them outside the event loop."""
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk
