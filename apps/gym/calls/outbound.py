"""Outbound HTTP calls to models, resource servers and other addresses that users enter.

This module enforces the allow list (outbound_policy.py) and the memory budget for replies.
"""

import io
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from yarl import URL

from apps.gym.calls.http_client import Body, ConnectTimedOut, HttpClient, Resolve, resolve_name, unpack
from apps.gym.calls.http_connection import Reply
from apps.gym.calls.memory_budget import MIB, SMALL, Hold, MemoryBudget, MemoryExceeded, current_account, text_width
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused, as_address
from apps.gym.calls.time_limits import TimeLimit

_MAX_REDIRECTS = 3
_MAX_CACHED_URLS = 2048


class OutboundRedirectRefused(OutboundRefused):
    """Raised if an allowed URL redirects to a forbidden one. The server is at fault, not the caller."""


class OutboundFailed(Exception):
    """Raised if a call got no usable reply. Unless a subclass says otherwise, retrying may help."""


class OutboundTimedOut(OutboundFailed):
    """Raised when the call or its connection exceeded its time limit."""


class OutboundTooLarge(OutboundFailed):
    """Raised if the reply is larger than `limit` bytes. Retrying does not help."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class OutboundReply(msgspec.Struct, frozen=True):
    """A reply with any status. `cookies` are the cookies that it sets, by name.

    `memory` is the reservation of a large reply; it is released when its last reference is dropped.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cookies: dict[str, str]
    memory: Hold | None = None


class _Limits(msgspec.Struct, frozen=True):
    """Limits of a call: seconds in total and for connecting, bytes of the reply."""

    total: float
    connect: float
    size: int


class Outbound:
    """A connection pool that enforces the allow list and the memory budget. Use it on a single event loop.

    It follows up to three redirects and checks each. `resolve` replaces the system resolver; its results are checked
    too. `memory` is the budget for all replies.
    """

    def __init__(
        self,
        policy: OutboundPolicy,
        *,
        resolve: Resolve = resolve_name,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.policy = policy
        self.memory = memory or MemoryBudget()
        self._resolve = resolve
        self._client: HttpClient | None = None
        self._urls: dict[str, URL] = {}

    def request(
        self,
        method: str,
        url: str,
        *,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        session: str = "",
        cookies: Mapping[str, str] | None = None,
        timeout: float,
        connect_timeout: float = 10.0,
        max_bytes: int = 16 * MIB,
        revise: Callable[[OutboundReply], OutboundReply] | None = None,
    ) -> Coroutine[Any, Any, OutboundReply]:
        """Send a request and return its reply, whatever its status, or what `revise` returns for it.

        `session` is the value of the header X-Session-ID. `timeout` is in seconds and applies to each redirect hop. It
        includes reading the body, but not waits for memory. Raises OutboundRefused, OutboundRedirectRefused,
        OutboundFailed, OutboundTimedOut or OutboundTooLarge.
        """
        limits = _Limits(timeout, connect_timeout, min(max_bytes, self.memory.largest_reply))
        return self._send(
            method,
            url,
            body=body,
            headers=headers or {},
            session=session,
            cookies=cookies,
            limits=limits,
            revise=revise,
        )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _parse(self, url: str) -> URL:
        """Parse and check a URL, and cache it."""
        parsed = self.policy.parse(url)
        if len(self._urls) >= _MAX_CACHED_URLS:
            self._urls.clear()
        self._urls[url] = parsed
        return parsed

    def _open(self) -> HttpClient:
        self._client = HttpClient(self._resolve_allowed)
        return self._client

    async def _resolve_allowed(self, host: str, port: int) -> list[str]:
        """Return the allowed addresses of a host. Raises OutboundRefused if all are forbidden."""
        found = await self._resolve(host, port)
        addresses = [(one, as_address(one)) for one in found]
        allowed = [one for one, address in addresses if address and self.policy.allows(host, address, port)]
        if found and not allowed:
            raise self.policy.refusal(host, port, [address for _, address in addresses if address is not None])
        return allowed

    async def _send(
        self,
        method: str,
        address: str | URL,
        *,
        body: Body,
        headers: Mapping[str, str],
        session: str,
        cookies: Mapping[str, str] | None,
        limits: _Limits,
        revise: Callable[[OutboundReply], OutboundReply] | None = None,
    ) -> OutboundReply:
        """Send a request. Follow the redirects of its reply unless `address` is a URL, which is the next hop of one."""
        url = address if isinstance(address, URL) else self._urls.get(address) or self._parse(address)
        given = headers
        if cookies:
            given = {**headers, "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        client = self._client or self._open()
        try:
            with TimeLimit(limits.total):
                reply = await client.send(
                    method, url, headers=given, session=session, body=body, connect_timeout=limits.connect
                )
                hold = None
                if reply.is_small(limit=limits.size):
                    content = reply.take()
                else:
                    try:
                        content, hold = await self._read(reply, url, limits.size)
                    finally:
                        reply.abort()
        except ValueError as error:
            raise OutboundRefused(f"{_where(url)}: {error}") from None
        except ConnectTimedOut:
            raise OutboundTimedOut(f"{_where(url)}: no connection within {limits.connect:g} s.") from None
        except TimeoutError:
            raise OutboundTimedOut(f"{_where(url)}: no reply within {limits.total:g} s.") from None
        except OSError as error:
            raise OutboundFailed(f"{_where(url)}: {error.strerror or error}") from error
        received = reply.headers
        cookies_set = _set_cookies(received.getall("Set-Cookie")) if "Set-Cookie" in received else {}
        answer = OutboundReply(reply.status, received, content, cookies_set, hold)
        if _redirects(answer) and url is not address:
            try:
                answer = await self._follow(
                    answer, method, url, body=body, headers=headers, session=session, cookies=cookies, limits=limits
                )
            except OutboundRefused as refused:
                raise OutboundRedirectRefused(f"{_where(url)} redirected the call: {refused}") from refused
        return revise(answer) if revise else answer

    async def _read(self, reply: Reply, url: URL, max_bytes: int) -> tuple[bytes, Hold | None]:
        """Read the body. While the memory budget has no space for more of it, reading pauses."""
        length = None if reply.encoding else reply.length  # unknown for compressed bodies
        if length is not None and length > max_bytes:
            raise OutboundTooLarge(_too_large(url, max_bytes), max_bytes)
        body, size, hold = io.BytesIO(), 0, None
        try:
            if length is not None:
                hold = self._hold()
                await hold.cover(length)
            async for chunk in unpack(reply.chunks(), reply.encoding) if reply.encoding else reply.chunks():
                size += len(chunk)
                if size > max_bytes:
                    raise OutboundTooLarge(_too_large(url, max_bytes), max_bytes)
                if size > (hold.size if hold else SMALL):
                    hold = hold or self._hold()
                    await hold.cover(size, ahead=min(2 * size, max_bytes))
                body.write(chunk)
            content = body.getvalue()
            if hold:
                await hold.cover(size * text_width(content))
        except MemoryExceeded:
            raise OutboundTooLarge(_exceeded(url, self.memory.limit), self.memory.limit) from None
        return content, hold

    def _hold(self) -> Hold:
        return Hold(current_account() or self.memory.open_account())

    async def _follow(
        self,
        reply: OutboundReply,
        method: str,
        url: URL,
        *,
        body: Body,
        headers: Mapping[str, str],
        session: str,
        cookies: Mapping[str, str] | None,
        limits: _Limits,
    ) -> OutboundReply:
        """Follow the redirects of a reply and return the last reply, with the cookies that its origin has set.

        Only GET follows 301, 302 and 303. Another origin gets no cookies, and only the headers Content-Type and Accept.
        """
        cookies = dict(cookies or {})
        cookies_set: dict[str, str] = {}
        for _ in range(_MAX_REDIRECTS):
            cookies_set |= reply.cookies
            cookies |= reply.cookies
            target = _next_hop(self.policy, url, reply)
            if reply.status not in (307, 308):
                if method.upper() != "GET":
                    raise OutboundRefused(
                        f"{_where(url)} redirected a {method} request with status {reply.status}. Use the final URL."
                    )
                body = None
            if target.origin() != url.origin():
                headers = {n: v for n, v in headers.items() if n.lower() in ("content-type", "accept")}
                session, cookies, cookies_set = "", {}, {}
            url = target
            reply = await self._send(
                method, url, body=body, headers=headers, session=session, cookies=cookies, limits=limits
            )
            if not _redirects(reply):
                return msgspec.structs.replace(reply, cookies=cookies_set | reply.cookies)
        raise OutboundRefused(f"{_where(url)}: more than {_MAX_REDIRECTS} redirects. Use the final URL.")


def _redirects(reply: OutboundReply) -> bool:
    return reply.status in (301, 302, 303, 307, 308) and "Location" in reply.headers


def _next_hop(policy: OutboundPolicy, url: URL, reply: OutboundReply) -> URL:
    try:
        target = policy.parse(str(url.join(URL(reply.headers["Location"]))))
    except ValueError as error:
        raise OutboundRefused(f"{_where(url)} redirected to an invalid URL: {error}") from None
    if url.scheme == "https" and target.scheme != "https":
        raise OutboundRefused(f"{_where(url)} redirected from https to http.")
    return target


def _too_large(url: URL, max_bytes: int) -> str:
    return f"{_where(url)}: the reply is larger than the limit of {max_bytes:,} bytes."


def _exceeded(url: URL, limit: int) -> str:
    return (
        f"{_where(url)}: the reply would exceed the process's memory budget for replies, {limit:,} bytes."
        " Increase GYMWEB_WORKER_MEMORY_MB or reduce reply sizes."
    )


def _set_cookies(lines: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition(";")[0].partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def _where(url: URL) -> str:
    """Return the URL without its query, which may contain secrets."""
    return str(url.with_query(None).with_fragment(None))
