"""A minimal HTTP/1.1 client: keep-alive connections over asyncio, with replies parsed by httptools.

Each connection carries one request at a time. Redirects are not followed. A call takes less than half the CPU time of
aiohttp (`make bench BENCH=calls`).
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import Context
from functools import lru_cache

from aiohappyeyeballs import start_connection
from yarl import URL

from apps.gym.calls.http_connection import KEEP_ALIVE, PIECE, Connection, Origin, Reply, plain_error
from apps.gym.calls.outbound_policy import FRAMING, as_address
from apps.gym.redaction.shortening import cut

DNS_TTL = 10.0
"""Seconds for which the addresses of a name are cached."""
_MAX_CACHED_NAMES = 2048
_HAPPY_EYEBALLS_DELAY = 0.25
"""Seconds until the next address of a name is tried in parallel (RFC 8305)."""


Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Return the addresses of a host for a port. Raises OSError."""
Body = bytes | Callable[[], bytes] | None
"""A body, or a function that encodes it. The encoded body is not kept while the call waits for its reply."""


class ConnectTimedOut(TimeoutError):
    """Raised when no connection was made in time."""


class HttpClient:
    """A connection pool. `resolve` returns the addresses that may be called for a name."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._dns_cache: dict[tuple[str, int], tuple[float, asyncio.Future[list[str]]]] = {}
        self._tls: ssl.SSLContext | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    def send(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        session: str = "",
        body: Body,
        connect_timeout: float,
        streams: bool = False,
    ) -> Awaitable[Reply]:
        """Send a request. Return its reply when it is complete or larger than SMALL bytes.

        With `streams`, return it when its headers have arrived. `session` is the value of the header X-Session-ID.
        `connect_timeout` is in seconds. Raise ConnectTimedOut, OSError if the connection fails or the reply is not
        HTTP, and the errors of `resolve`.
        """
        origin, prefix = _describe(method, url)
        head = prefix + _encode(tuple(headers.items()))
        if session:
            head += _session_line(session)
        if connection := self._take_idle(origin):
            return _ask(connection, head, body, streams=streams)
        return self._connect_and_ask(origin, connect_timeout, head, body, streams=streams)

    async def close(self) -> None:
        """Close all connections."""
        if self._sweeping:
            self._sweeping.cancel()
        for connection in self._open.copy():
            connection.abort()
        for _, found in self._dns_cache.values():
            found.cancel()
        await asyncio.sleep(0)  # connections close in the next iteration of the loop

    async def _connect_and_ask(
        self, origin: Origin, seconds: float, head: bytes, body: Body, *, streams: bool
    ) -> Reply:
        # In an empty context, because the transport keeps its context: variables of a rollout would outlive it.
        opening = asyncio.create_task(self._connect(origin, seconds), context=Context())
        try:
            connection = await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().abort()  # opened just before the call was cancelled
            raise
        return await _ask(connection, head, body, streams=streams)

    def _take_idle(self, origin: Origin) -> "Connection | None":
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_fresh():
                return connection
            connection.abort()
        return None

    def keep(self, connection: "Connection") -> None:
        """Keep a connection for the next request."""
        self._idle.setdefault(connection.origin, []).append(connection)
        self._sweeping = self._sweeping or asyncio.get_running_loop().call_later(KEEP_ALIVE, self._sweep)

    def forget(self, connection: "Connection") -> None:
        """Drop a closed connection."""
        self._open.discard(connection)
        idle = self._idle.get(connection.origin, [])
        if connection in idle:
            idle.remove(connection)

    def _sweep(self) -> None:
        self._sweeping = None
        for origin, idle in list(self._idle.items()):
            for connection in [one for one in idle if not one.is_fresh()]:
                connection.abort()
                idle.remove(connection)
            if not idle:
                del self._idle[origin]
        if self._idle:
            self._sweeping = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._sweep)

    async def _connect(self, origin: Origin, seconds: float) -> "Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds) as limit:
                infos = [
                    _address_info(one, origin.port) for one in await self._resolve_cached(origin.host, origin.port)
                ]
                if not infos:
                    raise OSError(f"The name {origin.host} has no address.")
                delay = _HAPPY_EYEBALLS_DELAY if len(infos) > 1 else None
                opened = await start_connection(infos, happy_eyeballs_delay=delay)
                tls = self._tls_context() if origin.scheme == "https" else None
                _, connection = await loop.create_connection(
                    lambda: Connection(self, origin),
                    sock=opened,
                    ssl=tls,
                    server_hostname=origin.host if tls else None,
                )
        except OSError as error:
            if limit.expired():
                raise ConnectTimedOut from None
            raise plain_error(error) from error
        self._open.add(connection)
        return connection

    async def _resolve_cached(self, host: str, port: int) -> list[str]:
        if as_address(host) is not None:
            return [host]
        now = asyncio.get_running_loop().time()
        until, task = self._dns_cache.get((host, port), (0.0, None))
        if task is None or now > until or (task.done() and (task.cancelled() or task.exception())):
            if len(self._dns_cache) >= _MAX_CACHED_NAMES:
                self._dns_cache.clear()
            task = asyncio.ensure_future(self._resolve(host, port))
            task.add_done_callback(_read_error)
            self._dns_cache[host, port] = now + DNS_TTL, task
        # Shielded, because other connections may wait for the same lookup.
        return await asyncio.shield(task)

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _ask(connection: Connection, head: bytes, body: Body, *, streams: bool) -> Awaitable[Reply]:
    """Complete the head, and send the request on an open connection."""
    try:
        content = body() if callable(body) else body
    except BaseException:
        connection.abort()
        raise
    length = b"" if content is None else b"Content-Length: %d\r\n" % len(content)
    return connection.ask(head + length + b"\r\n", content, streams=streams)


def _read_error(task: "asyncio.Future[list[str]]") -> None:
    """Retrieve the exception, so that asyncio does not log it as unhandled if all callers timed out."""
    if not task.cancelled():
        task.exception()


async def resolve_name(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def unpack(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Decompress a body. Yield pieces of at most 256 KiB. Raise OSError."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise OSError(f"The reply has an unknown content encoding: {cut(encoding, 40)}.")
    inflate = None
    async for chunk in chunks:
        packed = chunk
        while packed:
            # A gzip body may have several members. `32` accepts gzip and zlib headers.
            if inflate is None or inflate.eof:
                inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS + 32)
            try:
                yield inflate.decompress(packed, PIECE)
            except zlib.error as error:
                raise OSError(f"The reply is not {encoding}: {error}") from None
            packed = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
    if inflate is not None and not inflate.eof:
        raise OSError("The server closed the connection in the middle of its reply.")


@lru_cache(2048)
def _describe(method: str, url: URL) -> tuple[Origin, bytes]:
    """Return the origin of a URL, and the request line and Host header for it."""
    assert url.raw_host is not None and url.port is not None
    origin = Origin(url.scheme, url.raw_host, url.port)
    return origin, f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n".encode()


# No `Accept-Encoding`: on a local network, compression costs more time than it saves.
_DEFAULTS = {"User-Agent": "GymWeb", "Accept": "*/*", "Accept-Encoding": "identity"}
_DEFAULT_LINES = {name.lower(): f"{name}: {value}\r\n" for name, value in _DEFAULTS.items()}


@lru_cache(1024)
def _encode(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Encode the headers that many requests share. Raise ValueError for headers that must not be set."""
    given = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if given.count("\n") != len(headers) or given.count("\r") != len(headers):
        raise ValueError("A header must not contain a line break.")
    names = {name.lower() for name, _ in headers}
    if forbidden := sorted(names & FRAMING):
        raise ValueError(f"The header {forbidden[0]} cannot be set.")
    defaults = "".join([line for name, line in _DEFAULT_LINES.items() if name not in names])
    return f"{defaults}{given}".encode(errors="surrogateescape")


def _session_line(session: str) -> bytes:
    # Not cached like other headers: each rollout has its own session.
    if "\n" in session or "\r" in session:
        raise ValueError("A header must not contain a line break.")
    return f"X-Session-ID: {session}\r\n".encode(errors="surrogateescape")


def _address_info(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address.strip("[]"), port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
