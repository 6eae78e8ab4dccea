"""Compress HTML, JSON and plain text over 1 KB with gzip."""

import asyncio
import gzip
import secrets
from collections.abc import AsyncIterator
from io import BytesIO
from typing import cast

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.middleware.gzip import GZipMiddleware

MIN_BYTES = 1024
LEVEL = 6
"""The level that Django uses."""
_TYPES = frozenset({"text/html", "text/plain", "application/vnd.oai.openapi"})


class CompressionMiddleware(GZipMiddleware):
    """Compress suitable responses, with Django's random bytes against BREACH.

    Event and line streams are not compressed, because compression delays output. Neither are files with ranges: ranges
    and strong ETags refer to the stored bytes.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not _is_compressible(response):
            return response
        if not (isinstance(response, StreamingHttpResponse) and response.is_async):
            return super().process_response(request, response)
        pieces = cast("AsyncIterator[bytes]", response.streaming_content)
        super().process_response(request, response)
        if response.get("Content-Encoding") == "gzip":
            # Django makes each piece a separate gzip member, and most clients stop after the first.
            response.streaming_content = _compress(pieces, "a" * secrets.randbelow(self.max_random_bytes))
        return response


def _is_compressible(response: HttpResponseBase) -> bool:
    if any(response.has_header(name) for name in ("Content-Encoding", "Content-Range", "Accept-Ranges")):
        return False
    if isinstance(response, HttpResponse) and len(response.content) <= MIN_BYTES:
        return False
    kind = response.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind in _TYPES or kind.endswith(("/json", "+json"))


async def _compress(pieces: AsyncIterator[bytes], padding: str) -> AsyncIterator[bytes]:
    """Yield one gzip member. The padding is its file name, which clients ignore."""
    buffer = BytesIO()
    with gzip.GzipFile(padding, "wb", LEVEL, buffer, mtime=0) as packed:
        async for piece in pieces:
            await asyncio.to_thread(packed.write, piece)
            if written := _take(buffer):
                yield written
    yield _take(buffer)


def _take(buffer: BytesIO) -> bytes:
    taken = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return taken
