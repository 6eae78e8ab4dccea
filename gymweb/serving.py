"""The web server: Daphne, with request bodies on disk, early limits, and backpressure for slow clients.

Importing this module installs Twisted's reactor on a uvloop event loop, once per process.
"""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import IO, Any

import uvloop
from django.conf import settings
from twisted.internet import asyncioreactor

if "twisted.internet.reactor" not in sys.modules:
    # Must precede the import of Daphne, which uses the installed reactor.
    asyncioreactor.install(uvloop.new_event_loop())

from daphne import server as daphne_server
from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.internet import defer
from twisted.internet import reactor as installed_reactor
from twisted.web.http import Request as TwistedRequest

from apps.accounts.telemetry.current_request import HEADER, make_request_id
from apps.dashboard.chrome.page_answers import render_refusal
from gymweb.spooling import (
    CALL_LIMIT,
    KEPT_IN_MEMORY,
    BodyLimit,
    BodyRefused,
    SpooledBody,
    body_limit,
    check_disk,
    check_room,
    check_size,
)

logger = logging.getLogger(__name__)
reactor: Any = installed_reactor

READ_BYTES = 256 * 1024
LINGER_BYTES = 4 * 1024**2
LINGER_SECONDS = 5.0
STALLED_SECONDS = 120.0
"""Seconds after which a client that receives nothing is disconnected."""
BODY = "gymweb.body"
ABORT = "gymweb.abort"
"""A message of the application that closes the connection, so that the client notices an incomplete response."""
RESPONSE = "gymweb.response"
"""The Request, with which an application can write parts of its response without a message for each."""

Receive = Callable[[], Awaitable[dict[str, Any]]]
Application = Callable[[dict[str, Any], Receive, Any], Awaitable[None]]


class PortTaken(Exception):
    """Raised if the server cannot listen on the address."""


class Request(WebRequest):
    """A request. Its body is spooled to disk under a limit, and its response waits for slow clients."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._writable = asyncio.Event()
        self._writable.set()
        self._received = 0
        self._limit = BodyLimit(0, "")
        self._refused = False
        super().__init__(*args, **kwargs)
        # Keep Twisted from parsing forms in memory, which Django parses anyway.
        self._parsePOSTFormSubmission = False

    # -- request body

    def gotLength(self, length: int | None) -> None:
        self.content = SpooledBody()
        self._limit = body_limit(
            self.channel._command,
            self.channel._path,
            authorization=self.requestHeaders.getRawHeaders(b"Authorization", []),
            cookies=self.requestHeaders.getRawHeaders(b"Cookie", []),
        )
        try:
            check_size(length or 0, self._limit)
            if length is not None and length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
                check_room(length)
            if length is not None and length > KEPT_IN_MEMORY:
                check_disk(length)
        except BodyRefused as refused:
            self._refuse(refused)

    def handleContentChunk(self, data: bytes) -> None:
        self._received += len(data)
        if self._refused:
            if self._received > self._limit.size + LINGER_BYTES:
                self.channel._networkProducer.pauseProducing()
            return
        try:
            check_size(self._received, self._limit)
            self.content.write(data)
        except BodyRefused as refused:
            self._refuse(refused)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if not self._refused:
            try:
                self.content.finish()
            except BodyRefused as refused:
                self._refuse(refused)
        if self._refused:
            self.channel.loseConnection()
        else:
            super().requestReceived(command, path, version)

    def _refuse(self, refused: BodyRefused) -> None:
        """Reject a request before its body has arrived.

        Reads a little more of the body, because a client whose writes fail does not read the response.
        """
        self._refused = True
        # Do not invite the client to send the body (Expect: 100-continue).
        self.requestHeaders.removeHeader(b"Expect")
        given = self.requestHeaders.getRawHeaders(HEADER.encode(), [b""])[0]
        request_id = make_request_id(given.decode("latin-1"))
        if any(b"text/html" in accepted for accepted in self.requestHeaders.getRawHeaders(b"Accept", [])):
            page = render_refusal(refused.title, str(refused), request_id=request_id)
            media_type, text = "text/html; charset=utf-8", page
        else:
            problem = {
                "type": f"urn:gymweb:problem:{refused.kind}",
                "title": refused.title,
                "status": refused.status,
                "detail": str(refused),
                "request_id": request_id,
            }
            if self._limit is CALL_LIMIT:
                # Where the clients of OpenAI's and Anthropic's APIs read errors.
                kind = "request_too_large" if refused.status == 413 else "server_error"
                problem["error"] = {"message": str(refused), "type": kind, "param": None, "code": kind}
            media_type, text = "application/problem+json", json.dumps(problem)
        body = text.encode()
        transport = self.channel.transport
        transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%b: %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
            % (
                refused.status,
                refused.title.encode(),
                media_type.encode(),
                HEADER.encode(),
                request_id.encode(),
                len(body),
                body,
            )
        )
        transport.loseWriteConnection()
        self.content.close()
        reactor.callLater(LINGER_SECONDS, transport.abortConnection)

    # -- response

    def handle_reply(self, message: dict[str, Any]) -> None:
        is_open = self.channel is not None and not self.finished
        if message["type"] == ABORT:
            if is_open:
                self.channel.transport.abortConnection()
            return
        if message.get("more_body") and self._response_started:
            # Parts of a stream. Daphne would do the same, but looks up the base class in a module that is slow to read.
            self.write_part(message.get("body", b""))
            return
        if message["type"] == "http.response.start" and self.producer is None and self.channel is not None:
            self.registerProducer(self, True)
        super().handle_reply(message)

    def write_part(self, body: bytes) -> bool:
        """Send a part of a response that has begun. Return False if `wait_for_reader` would wait."""
        if self.channel is not None and not self.finished:
            self._write_part(body)
        return self._writable.is_set()

    def _write_part(self, body: bytes) -> None:
        """Send a part at once. Twisted would first have the event loop watch the socket, which costs more."""
        transport = self.channel.transport
        if not body or not (self.startedWriting and self.chunked) or transport.dataBuffer or transport._tempDataLen:
            TwistedRequest.write(self, body)
            return
        framed = b"%x\r\n%b\r\n" % (len(body), body)
        sent = transport.writeSomeData(framed)
        if sent != len(framed):
            # The socket is full, or the connection is lost, which Twisted finds out itself.
            transport.write(framed[sent:] if isinstance(sent, int) else framed)

    def handle_exception(self, exception: BaseException) -> None:
        """Close the connection of a response that failed midway, so that the client notices.

        A second response cannot be started, and Daphne would leave the connection open forever.
        """
        if self._response_started and self.channel is not None:
            self.channel.transport.abortConnection()
        elif not self._response_started:
            super().handle_exception(exception)

    async def wait_for_reader(self) -> None:
        """Wait for a slow client, so that a download does not fill the memory."""
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._writable.wait()
        except TimeoutError:
            self.transport.abortConnection()

    def pauseProducing(self) -> None:
        self._writable.clear()

    def resumeProducing(self) -> None:
        self._writable.set()

    stopProducing = resumeProducing

    def finish(self) -> None:
        if self.producer is not None:
            self.unregisterProducer()
        self._writable.set()
        super().finish()

    def connectionLost(self, reason: Any) -> None:
        self._writable.set()
        super().connectionLost(reason)


class Factory(HTTPFactory):
    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = Request
        return protocol


# Daphne has no other way to set the factory: Server.run looks it up in its module.
daphne_server.HTTPFactory = Factory


def read_lazily(application: Application) -> Application:
    """Wrap an application so that it reads the spooled body on demand."""

    async def call(scope: dict[str, Any], receive: Receive, send: Any) -> None:
        body: SpooledBody | None = scope.pop(BODY, None)
        await application(scope, receive if body is None else LazyReceive(body, receive), send)

    return call


class LazyReceive:
    """An ASGI `receive` callable. `take_body` returns the whole body as a file (see gymweb.asgi)."""

    def __init__(self, body: SpooledBody, receive: Receive) -> None:
        self._body = body
        self._receive = receive
        self._unread = True

    async def __call__(self) -> dict[str, Any]:
        if self._unread and not self._body.closed:
            chunk = self._body.take(READ_BYTES)
            self._unread = len(chunk) == READ_BYTES
            # Let other tasks of this event loop run while a large body is read.
            await asyncio.sleep(0)
            return {"type": "http.request", "body": chunk, "more_body": self._unread}
        # Skip Daphne's end-of-body message for an empty body, and wait for the disconnect.
        while (message := await self._receive())["type"] == "http.request":
            pass
        return message

    def take_body(self) -> IO[bytes] | None:
        """Return the body from its start, or None if the client disconnected or some of it was already received."""
        if self._body.closed or not self._unread or self._body.tell():
            return None
        self._unread = False
        return self._body.detach()


class Server(daphne_server.Server):
    """The server. `run()` serves until `stop()` or a signal, then waits for `drain`. Raise PortTaken."""

    def __init__(
        self,
        *,
        application: Application,
        endpoints: list[str],
        started: Callable[["Server"], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(
            application=read_lazily(application),
            endpoints=endpoints,
            signal_handlers=False,
            # Registered within the running loop, because earlier signal handlers may not be called.
            ready_callable=lambda: reactor.callLater(0, started, self),
            server_name="gymweb",
        )
        self._drain = drain
        self._listen_problem = ""
        self._stopping = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        return loop

    def run(self) -> None:
        super().run()
        # Threads of abandoned requests may wait for the loop, and Python joins them before exiting.
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        if self._listen_problem:
            raise PortTaken(self._listen_problem)

    def stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            super().stop()

    def listen_error(self, failure: Any) -> None:
        self._listen_problem = failure.getErrorMessage()
        self.stop()

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        if scope["type"] == "http":
            scope[BODY], scope[RESPONSE] = protocol.content, protocol
        return super().create_application(protocol, scope)

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        await super().handle_reply(protocol, message)
        if isinstance(protocol, Request):
            await protocol.wait_for_reader()

    def kill_all_applications(self) -> Any:
        """Drain while pages are still served, then close open connections. Called before shutdown."""
        drained = defer.Deferred.fromFuture(asyncio.ensure_future(self._drain(), loop=self.loop))
        drained.addErrback(lambda failure: logger.error("draining failed: %s", failure.getErrorMessage()))
        return drained.addCallback(lambda _: self._end_applications())

    def _end_applications(self) -> Any:
        for protocol, details in list(self.connections.items()):
            # Connections without a request have no application, which Daphne does not expect.
            if "application_instance" not in details:
                del self.connections[protocol]
        return super().kill_all_applications()
