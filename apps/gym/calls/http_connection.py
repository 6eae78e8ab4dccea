"""One HTTP/1.1 client connection: write a request, and parse the reply with httptools.

Small replies are read whole. For larger ones, reading pauses until the caller has taken the received part.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import NamedTuple, Protocol, cast

import httptools
from multidict import CIMultiDict

from apps.gym.calls.memory_budget import KIB, MIB, SMALL

# Less than the keep-alive of uvicorn (5 s), which vLLM and most resource servers use. Otherwise a call could be sent on
# a connection that is being closed.
KEEP_ALIVE = 4.0
MAX_HEAD = 64 * KIB
"""Maximum bytes of headers, of trailers, and of the framing between two chunks of a body."""
PIECE = 256 * KIB
"""Bytes of a body that are written or decompressed at a time."""


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Pool(Protocol):
    """Callbacks of a connection to its pool."""

    def keep(self, connection: "Connection") -> None:
        """Keep a connection for the next request."""

    def forget(self, connection: "Connection") -> None:
        """Drop a closed connection."""


reply_listener: ContextVar[Callable[[bytes], None] | None] = ContextVar("reply_listener", default=None)
"""Receives each part of the body of a successful reply when it arrives. Must not raise."""


class Reply:
    """The reply to one request. Header names are case-insensitive.

    `length` is the declared size of the body in bytes, or None. `encoding` is its content encoding.
    """

    __slots__ = (
        "_buffered",
        "_chunks",
        "_connection",
        "_listener",
        "_write",
        "encoding",
        "headers",
        "is_complete",
        "length",
        "status",
    )

    headers: CIMultiDict[str]  # set when the reply begins

    def __init__(self, connection: "Connection") -> None:
        self.status = 0
        self.length: int | None = None
        self.encoding = ""
        self.is_complete = False
        self._connection = connection
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._listener = reply_listener.get()
        self._write: Callable[[bytes], bool] | None = None

    def is_small(self, *, limit: int) -> bool:
        """Return True if the whole body has been received uncompressed and has at most min(SMALL, `limit`) bytes."""
        return self.is_complete and not self.encoding and self.length is not None and self.length <= min(SMALL, limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in parts of over SMALL bytes, the last one excepted. Raise OSError if it ends early."""
        while True:
            if self._chunks:
                yield self.take()
            elif self.is_complete:
                return
            else:
                await self._connection.read_more()

    async def pass_on(self, write: Callable[[bytes], bool], ready: Callable[[], Awaitable[None]]) -> None:
        """Pass the body to `write`, each part when it arrives. Raise OSError if it ends early.

        When `write` returns False, reading pauses until `ready` returns.
        """
        if self._chunks:
            write(self.take())
        self._write = write
        await ready()
        while not self.is_complete:
            await self._connection.read_more()
            await ready()

    def abort(self) -> None:
        """Close the connection unless the reply is complete."""
        if not self.is_complete:
            self._connection.abort()

    def add(self, chunk: bytes) -> bool:
        """Append a received part, or pass it on. Return True if reading must pause."""
        if self._write is not None:
            return not self._write(chunk)
        self._chunks.append(chunk)
        self._buffered += len(chunk)
        if self._listener is not None and self.status == 200 and not self.encoding:
            self._listener(chunk)
        return self._buffered > SMALL

    def take(self) -> bytes:
        """Return the received part that was not taken yet."""
        chunks, self._chunks, self._buffered = self._chunks, [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class Connection(asyncio.Protocol):
    __slots__ = (
        "_began",
        "_client",
        "_ends_with_connection",
        "_error",
        "_head_bytes",
        "_idle_since",
        "_is_reading_paused",
        "_is_sent",
        "_is_writing_paused",
        "_loop",
        "_parser",
        "_reply",
        "_streams",
        "_transport",
        "_waiting",
        "origin",
    )

    def __init__(self, client: Pool, origin: Origin) -> None:
        self.origin = origin
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpResponseParser | None = None  # only while a reply arrives, because it is large
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._head_bytes = 0
        self._began = self._ends_with_connection = self._is_reading_paused = self._is_writing_paused = False
        self._is_sent, self._streams = True, False
        self._idle_since = 0.0

    async def ask(self, head: bytes, body: bytes | None, *, streams: bool = False) -> Reply:
        """Send a request. Return its reply when it is complete or larger than SMALL bytes.

        With `streams`, return it when its headers have arrived.
        """
        reply = self._reply = Reply(self)
        self._began = self._ends_with_connection = False
        self._streams, self._head_bytes = streams, 0
        try:
            if body is None or len(body) <= MIB:
                self._transport.write(head + body if body else head)
            else:
                await self._write(head, body)
            del head, body  # thousands of calls wait for replies at the same time
            while not (reply.is_complete or self._is_reading_paused or (streams and self._began)):
                await self._wait()
        except BaseException:
            # After a complete reply, the connection may already serve another request.
            reply.abort()
            raise
        return reply

    async def _write(self, head: bytes, body: bytes) -> None:
        """Write a large body in pieces, because a single write would block the loop. Stop if a reply begins."""
        self._is_sent = False
        self._transport.write(head)
        for start in range(0, len(body), PIECE):
            self._transport.write(body[start : start + PIECE])
            while self._is_writing_paused and not self._began:
                await self._wait()
            if self._began:
                return
        self._is_sent = True

    async def read_more(self) -> None:
        """Wait until more than SMALL bytes of the body have arrived, or its end."""
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        await self._wait()

    def is_fresh(self) -> bool:
        return not self._transport.is_closing() and self._loop.time() - self._idle_since < KEEP_ALIVE

    def abort(self) -> None:
        self._transport.abort()

    def _wait(self) -> Awaitable[None]:
        self._waiting = self._loop.create_future()
        if self._error is not None:
            self._waiting.set_exception(self._error)
        return self._waiting

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            if self._error is not None:
                waiting.set_exception(self._error)
            else:
                waiting.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake()
        self._transport.abort()

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            # Data without a request.
            self._transport.abort()
            return
        self._head_bytes += len(data)
        parser = self._parser = self._parser or httptools.HttpResponseParser(self)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(OSError(f"The reply is not HTTP/1.1: {error}"))
            return
        if self._head_bytes > MAX_HEAD and self._reply is not None:
            self._fail(OSError(f"The headers of the reply are larger than {MAX_HEAD:,} bytes."))

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._client.forget(self)
        reply = self._reply
        if reply is None:
            return
        if self._began and self._ends_with_connection and error is None and self._error is None:
            self._end(reply)
            return
        when = "in the middle of its reply" if self._began else "without a reply"
        self._error = self._error or plain_error(error, f"The server closed the connection {when}.")
        self._wake()

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self._reply is None:
            # A second reply to the same request.
            self._transport.abort()
        else:
            self._reply.headers = CIMultiDict()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._began:
            return  # a trailer
        assert self._reply is not None
        self._reply.headers.add(name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        reply = self._reply
        assert reply is not None
        assert self._parser is not None
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            reply.headers.clear()
            return
        self._began, self._head_bytes = True, 0
        reply.status = status
        headers = reply.headers
        length = headers.get("Content-Length", "").strip()
        reply.length = int(length) if length.isdigit() else None
        if "Content-Encoding" in headers:
            reply.encoding = headers["Content-Encoding"].lower().removeprefix("identity")
        self._ends_with_connection = reply.length is None and not headers.get("Transfer-Encoding", "").lower().endswith(
            "chunked"
        )
        if reply.length is not None and reply.length > SMALL:
            self._pause_reading()
        elif self._streams or not self._is_sent:
            self._wake()

    def on_body(self, body: bytes) -> None:
        assert self._reply is not None
        self._head_bytes = 0
        if self._reply.add(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        if self._began and self._reply is not None:
            self._end(self._reply)

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def _end(self, reply: Reply) -> None:
        reply.is_complete = True
        parser, self._parser, self._reply = self._parser, None, None
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        if self._is_sent and parser and parser.should_keep_alive() and not self._transport.is_closing():
            self._idle_since = self._loop.time()
            self._client.keep(self)
        else:
            self._transport.abort()
        self._wake()


def plain_error(error: Exception | None, otherwise: str = "") -> OSError:
    """Return an OSError with the message of the system, which contains no IP addresses."""
    if isinstance(error, ssl.SSLError):
        return OSError(f"TLS failed: {getattr(error, 'verify_message', '') or error.reason or error}")
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return OSError(error.errno, os.strerror(error.errno))
    return OSError(str(error) if error and str(error) else otherwise)
