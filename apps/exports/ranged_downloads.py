"""Send a file in constant memory, whole or from the middle (RFC 9110: ranges and conditional requests)."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header, http_date

from apps.exports.tar_archives import CHUNK_BYTES, Archive

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII)
_TAG = re.compile(r'(?:W/)?"[^"]*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """What is sent: `read` takes where it begins and how many bytes are wanted."""

    size: int
    etag: str
    changed: str
    read: Callable[[int, int], Iterator[bytes]]


def stream_file(
    request: HttpRequest,
    path: Path,
    *,
    filename: str,
    content_type: str = "application/octet-stream",
    sha256: str = "",
) -> HttpResponseBase:
    """An attachment response for GET and HEAD. The ETag is the checksum if given, else size and time of change.

    One range is honoured (200, 206, 416), under If-Range if there is one; several at once get the whole file.
    """
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise Http404("the file is gone") from None
    sent = _Sent(
        size=stat.st_size,
        etag=f'"{sha256}"' if sha256 else f'"{stat.st_size:x}-{stat.st_mtime_ns:x}"',
        changed=http_date(stat.st_mtime),
        read=lambda start, length: _read(path, start, length),
    )
    return _stream(request, sent, filename=filename, content_type=content_type)


def stream_archive(request: HttpRequest, archive: Archive, *, filename: str) -> HttpResponseBase:
    """The same of an archive that is made while it is sent."""
    etag, changed = f'"{archive.etag}"', http_date(archive.changed)
    sent = _Sent(size=archive.size, etag=etag, changed=changed, read=archive.read)
    return _stream(request, sent, filename=filename, content_type="application/x-tar")


def _stream(request: HttpRequest, sent: _Sent, *, filename: str, content_type: str) -> HttpResponseBase:
    response: HttpResponseBase
    start, length = 0, sent.size
    if _matches(request.headers.get("If-None-Match", ""), sent.etag):
        response = HttpResponse(status=304)
    elif (wanted := _wanted_range(request, sent.size, sent.etag, sent.changed)) is None:
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
    response["ETag"] = sent.etag
    response["Last-Modified"] = sent.changed
    response["Cache-Control"] = "private, no-cache"
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _matches(header: str, etag: str) -> bool:
    """If-None-Match compares weakly: a proxy may have marked our tag as weak."""
    return header.strip() == "*" or etag in (tag.removeprefix("W/") for tag in _TAG.findall(header))


def _wanted_range(request: HttpRequest, size: int, etag: str, changed: str) -> range | None:
    """The bytes asked for; None for the whole file; an empty range for one that does not exist."""
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


def _body(request: HttpRequest, sent: _Sent, start: int, length: int, *, status: int) -> HttpResponseBase:
    if request.method == "HEAD":
        return HttpResponse(status=status)
    chunks = sent.read(start, length)
    # A request that came over WSGI (Django's own test client) cannot consume an asynchronous body.
    return StreamingHttpResponse(_in_thread(chunks) if isinstance(request, ASGIRequest) else chunks, status=status)


def _read(path: Path, start: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while length and (chunk := file.read(min(CHUNK_BYTES, length))):
            length -= len(chunk)
            yield chunk


async def _in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same chunks, read off the event loop."""
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk
