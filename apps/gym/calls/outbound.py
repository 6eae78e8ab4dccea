"""All outbound HTTP: every call to a model or a resource server goes through this module.

It reaches only the addresses that apps.gym.calls.outbound_policy allows, and reads replies within a memory budget.
"""

import io
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from apps.gym.calls.memory_budget import MIB, SMALL, Hold, MemoryBudget, MemoryExceeded, current_account, text_width
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused, as_address
from apps.gym.calls.time_limits import TimeLimit

_MAX_REDIRECTS = 3
_KNOWN_URLS = 2048  # URLs that were checked are remembered, up to this many
# Below the 5 s after which uvicorn (so vLLM, and most resource servers) closes an idle connection: otherwise a call may
# be sent into a connection that is being closed.
_KEEP_ALIVE = 4.0


class OutboundRedirectRefused(OutboundRefused):
    """The URL may be called, and its server sent the call on to where none may go: the server's doing, not ours."""


class OutboundFailed(Exception):
    """The call did not come back with a reply. Trying again may help, unless the reply is too large."""


class OutboundTimedOut(OutboundFailed):
    """The time limit of the call or of its connection ran out."""


class OutboundTooLarge(OutboundFailed):
    """The reply is larger than `limit` bytes. Trying again does not help."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class OutboundReply(msgspec.Struct, frozen=True):
    """What came back, whatever its status. `cookies` are those that this reply set, by name.

    `memory` is what a large reply holds of the budget, until the last reference to it is dropped.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cookies: dict[str, str]
    memory: Hold | None = None


class _Limits(NamedTuple):
    """The seconds of a whole call, and aiohttp's own limits, which cannot be paused."""

    total: float
    client: aiohttp.ClientTimeout


class _GuardedResolver(AbstractResolver):
    """Resolves names for connections and gives back only addresses that the policy allows."""

    def __init__(self, policy: OutboundPolicy, inner: AbstractResolver) -> None:
        self._policy = policy
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        allowed = [one for one in found if self._allows(host, one["host"], port)]
        if found and not allowed:
            addresses = [as_address(one["host"]) for one in found]
            raise self._policy.refusal(host, port, [one for one in addresses if one is not None])
        return allowed

    def _allows(self, host: str, resolved: str, port: int) -> bool:
        address = as_address(resolved)
        return address is not None and self._policy.allows(host, address, port)

    async def close(self) -> None:
        await self._inner.close()


class _NoCookies(aiohttp.DummyCookieJar):
    """Cookies travel by hand, so the jar does not even parse them."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        return None


class Outbound:
    """One pool of connections, opened in the loop of its first call. Redirects are followed by hand, at most three.

    `resolver` stands in for the system's name resolution; what it answers is checked all the same. `memory` is the
    budget of all replies.
    """

    def __init__(
        self,
        policy: OutboundPolicy,
        *,
        resolver: AbstractResolver | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.policy = policy
        self.memory = memory or MemoryBudget()
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[str, URL] = {}
        self._timeouts: dict[tuple[float, float], _Limits] = {}

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        timeout: float,  # noqa: ASYNC109 - the time limit covers the body and the redirects, and names itself
        connect_timeout: float = 10.0,
        max_bytes: int = 16 * MIB,
    ) -> OutboundReply:
        """One call, whatever the status it ends with. `timeout` is seconds for each hop with its body, without the time
        that a large reply waits for memory.

        Raises OutboundRefused (OutboundRedirectRefused where a redirect leads astray), OutboundFailed,
        OutboundTimedOut or OutboundTooLarge.
        """
        target = self._urls.get(url) or self._remember(url)
        limits = self._timeouts.get((timeout, connect_timeout)) or self._limits(timeout, connect_timeout)
        max_bytes = min(max_bytes, self.memory.largest_reply)
        reply = await self._send(
            method, target, body=body, headers=headers, cookies=cookies, limits=limits, max_bytes=max_bytes
        )
        if reply.status in (301, 302, 303, 307, 308) and "Location" in reply.headers:
            try:
                return await self._follow(
                    reply,
                    method,
                    target,
                    body=body,
                    headers=headers,
                    cookies=dict(cookies or {}),
                    limits=limits,
                    max_bytes=max_bytes,
                )
            except OutboundRefused as refused:
                raise OutboundRedirectRefused(f"{_where(target)} redirected the call: {refused}") from refused
        return reply

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _remember(self, url: str) -> URL:
        parsed = self.policy.parse(url)
        if len(self._urls) >= _KNOWN_URLS:
            self._urls.clear()
        self._urls[url] = parsed
        return parsed

    def _limits(self, total: float, connect: float) -> _Limits:
        if len(self._timeouts) >= _KNOWN_URLS:
            self._timeouts.clear()
        limits = self._timeouts[total, connect] = _Limits(total, aiohttp.ClientTimeout(total=None, connect=connect))
        return limits

    def _open(self) -> aiohttp.ClientSession:
        resolver = _GuardedResolver(self.policy, self._resolver or ThreadedResolver())
        connector = aiohttp.TCPConnector(limit=0, resolver=resolver, keepalive_timeout=_KEEP_ALIVE)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=_NoCookies(),
            trust_env=False,
            # Compressing costs both sides more than a network of their own saves.
            headers={"User-Agent": "GymWeb", "Accept-Encoding": "identity"},
        )
        return self._session

    async def _send(
        self,
        method: str,
        url: URL,
        *,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        cookies: Mapping[str, str] | None,
        limits: _Limits,
        max_bytes: int,
    ) -> OutboundReply:
        session = self._session or self._open()
        if cookies:
            headers = {**(headers or {}), "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        try:
            async with TimeLimit(limits.total):
                response = await session.request(
                    method, url, data=_as_payload(body), headers=headers, allow_redirects=False, timeout=limits.client
                )
                try:
                    content, hold = await self._read(response, max_bytes)
                except BaseException:
                    response.close()
                    raise
        except TimeoutError as error:
            raise OutboundTimedOut(_timeout_message(error, url, limits)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise OutboundFailed(f"{_where(url)}: {str(error) or type(error).__name__}") from error
        given = response.headers
        cookies_set = _set_cookies(given.getall("Set-Cookie")) if "Set-Cookie" in given else {}
        return OutboundReply(response.status, given, content, cookies_set, hold)

    async def _read(self, response: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, Hold | None]:
        """The body. Of a large one no more is read than memory is reserved for, so that its server has to wait."""
        length = response.content_length
        if length is not None and length > max_bytes:
            raise OutboundTooLarge(_too_large(response, max_bytes), max_bytes)
        if "Content-Encoding" in response.headers:
            length = None  # that of the encoded body
        if length is not None and length <= SMALL:
            return await response.read(), None
        body, size, hold = io.BytesIO(), 0, None
        try:
            if length is not None:
                hold = self._hold()
                await hold.cover(length)
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > max_bytes:
                    raise OutboundTooLarge(_too_large(response, max_bytes), max_bytes)
                if size > (hold.size if hold else SMALL):
                    hold = hold or self._hold()
                    await hold.cover(size, ahead=min(2 * size, max_bytes))
                body.write(chunk)
            content = body.getvalue()
            if hold:
                await hold.cover(size * text_width(content))
        except MemoryExceeded:
            raise OutboundTooLarge(_exceeded(response, self.memory.limit), self.memory.limit) from None
        response.release()
        return content, hold

    def _hold(self) -> Hold:
        return Hold(current_account() or self.memory.open_account())

    async def _follow(
        self,
        reply: OutboundReply,
        method: str,
        url: URL,
        *,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        cookies: dict[str, str],
        limits: _Limits,
        max_bytes: int,
    ) -> OutboundReply:
        gathered: dict[str, str] = {}
        for _ in range(_MAX_REDIRECTS):
            gathered |= reply.cookies
            cookies |= reply.cookies
            target = _next_hop(self.policy, url, reply)
            if reply.status not in (307, 308):
                if method.upper() not in ("GET", "HEAD"):
                    raise OutboundRefused(
                        f"{_where(url)} redirected a {method} with {reply.status}: use the final URL."
                    )
                body = None
            if target.origin() != url.origin():
                headers = {n: v for n, v in (headers or {}).items() if n.lower() in ("content-type", "accept")}
                cookies, gathered = {}, {}
            url = target
            reply = await self._send(
                method, url, body=body, headers=headers, cookies=cookies, limits=limits, max_bytes=max_bytes
            )
            if reply.status not in (301, 302, 303, 307, 308) or "Location" not in reply.headers:
                return msgspec.structs.replace(reply, cookies=gathered | reply.cookies)
        raise OutboundRefused(f"{_where(url)}: more than {_MAX_REDIRECTS} redirects.")


def _next_hop(policy: OutboundPolicy, url: URL, reply: OutboundReply) -> URL:
    try:
        target = policy.parse(str(url.join(URL(reply.headers["Location"]))))
    except ValueError as error:
        raise OutboundRefused(f"{_where(url)} redirected to something that is not a URL: {error}") from None
    if url.scheme == "https" and target.scheme != "https":
        raise OutboundRefused(f"{_where(url)} redirected from https to http.")
    return target


def _as_payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """A large body is written in pieces: as one write it would hold the loop, and aiohttp warns of it."""
    return io.BytesIO(body) if body is not None and len(body) > MIB else body


def _too_large(response: aiohttp.ClientResponse, max_bytes: int) -> str:
    return f"{_where(response.url)}: the reply is larger than the limit of {max_bytes:,} bytes."


def _exceeded(response: aiohttp.ClientResponse, limit: int) -> str:
    return (
        f"{_where(response.url)}: the reply would exceed the process's memory budget for replies, {limit:,} bytes."
        " Increase GYMWEB_WORKER_MEMORY_MB or reduce reply sizes."
    )


def _timeout_message(error: TimeoutError, url: URL, limits: _Limits) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"{_where(url)}: no connection within {limits.client.connect:g} s."
    return f"{_where(url)}: no reply within {limits.total:g} s."


def _set_cookies(lines: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition(";")[0].partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def _where(url: URL) -> str:
    """The URL without its query, which may hold something private."""
    return str(url.with_query(None).with_fragment(None))
