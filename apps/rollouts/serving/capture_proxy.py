"""Forward calls of external agents from a web process to the worker that runs their attempt.

An ASGI application beside Django: the request and its answer pass through as they come.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from channels.db import database_sync_to_async
from yarl import URL

from apps.gym.calls.http_client import HttpClient, resolve_name
from apps.gym.capture.capture_server import MAX_BODY, read_secret, worker_of
from apps.gym.capture.captured_commands import CallRefused
from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE
from apps.rollouts.models import Worker

KNOWN_SECONDS = 5.0
"""Seconds for which the address of a worker is cached."""
CONNECT_SECONDS = 10.0
ABORT, RESPONSE = "gymweb.abort", "gymweb.response"
"""See gymweb.serving, which must not be imported here: it installs an event loop."""
_HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
_NOT_PASSED = {*_HOP_BY_HOP, "content-length", "cookie", "expect", "host", "proxy-authorization"}

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Response(Protocol):
    """The response of the server."""

    def write_part(self, body: bytes) -> bool:
        """Send a part of a response that has begun. Return False if `wait_for_reader` would wait."""
        ...

    async def wait_for_reader(self) -> None: ...


class CaptureProxy:
    """Use it in one event loop."""

    def __init__(self) -> None:
        self._client: HttpClient | None = None
        self._known: dict[int, tuple[float, str]] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            secret, _ = read_secret(scope["path"], _AnyCase(headers))
            address = await self._find(secret)
            body = await _read_body(receive)
            if body is not None:
                passing = self._pass_on(scope, _address(scope, address), headers, body, send)
                await _until_disconnect(passing, receive)
        except _Unreachable:
            self._known.pop(worker_of(secret) or 0, None)
            await _refuse(send, CallRefused(503, "The worker of this attempt cannot be reached.", "worker_unreachable"))
        except CallRefused as refusal:
            await _refuse(send, refusal)

    async def _find(self, secret: str) -> str:
        """Return the address of the worker. Raises CallRefused."""
        number = worker_of(secret)
        if number is None:
            raise CallRefused(
                401, "Invalid API key. Use the key from the response of POST /attempts/.", "invalid_api_key"
            )
        until, address = self._known.get(number, (0.0, ""))
        if time.monotonic() > until:
            address = await database_sync_to_async(_read_address)(number)
            if len(self._known) > 1_000:
                self._known.clear()
            self._known[number] = time.monotonic() + KNOWN_SECONDS, address
        if not address:
            raise CallRefused(409, "The attempt has ended: its worker stopped.", "attempt_ended")
        return address

    async def _pass_on(self, scope: dict[str, Any], url: str, headers: dict[str, str], body: bytes, send: Send) -> None:
        response: Response = scope[RESPONSE]
        client = self._client = self._client or HttpClient(resolve_name)
        passed = {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED}
        has_begun = False
        try:
            # No total limit: the attempt has one. Replies are passed on unchanged, compressed or not.
            reply = await client.send(
                scope["method"],
                URL(url, encoded=True),
                headers=passed,
                body=body,
                connect_timeout=CONNECT_SECONDS,
                streams=True,
            )
            try:
                sent = [(n.encode(), v.encode()) for n, v in reply.headers.items() if n.lower() not in _HOP_BY_HOP]
                has_begun = True
                await send({"type": "http.response.start", "status": reply.status, "headers": sent})
                # Not as messages: a task would wake for each event of a stream.
                await reply.pass_on(response.write_part, response.wait_for_reader)
            finally:
                reply.abort()
        except (OSError, TimeoutError):
            # The worker stopped, or it broke the stream because the call failed.
            if not has_begun:
                raise _Unreachable from None
            await send({"type": ABORT})
            return
        await send({"type": "http.response.body", "body": b""})


def _address(scope: dict[str, Any], address: str) -> str:
    query = scope["query_string"].decode("latin-1")
    return f"http://{address}{scope['path']}" + (f"?{query}" if query else "")


async def _until_disconnect(passing: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Await `passing`, and cancel it if the client leaves."""
    answering, leaving = asyncio.ensure_future(passing), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not answering.done():
            answering.cancel()
    if answering.done() and not answering.cancelled():
        answering.result()


class _Unreachable(Exception):
    """Raised if the worker gave no answer."""


class _AnyCase(dict[str, str]):
    """Headers by name in any case."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__({name.lower(): value for name, value in headers.items()})

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


def _read_address(worker: int) -> str:
    row = (
        Worker.objects.filter(pk=worker, state__in=STATES_WITH_LEASE).values_list("capture_address", flat=True).first()
    )
    return row or ""


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body, or None if the client left. Raises CallRefused for a body that is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            raise CallRefused(413, f"The body is larger than {MAX_BODY:,} bytes.", "request_too_large")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, refusal: CallRefused) -> None:
    error = {"message": str(refusal), "type": "invalid_request_error", "param": None, "code": refusal.code}
    # Both shapes of an error: `type` at the top is that of Anthropic's API.
    body = json.dumps({"type": "error", "error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
