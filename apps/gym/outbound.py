"""The one way out: every HTTP call to a model or a resource server passes here, and reaches public addresses only.

The rule, in the order it is applied:

1. The scheme is http or https; the URL carries no user and no password.
2. A metadata address (169.254.169.254 and its kin) is refused unless the allow list names that very address: neither a
   host name nor a network that contains it is enough.
3. An address that the allow list names is allowed: `host` or `host:port` (whatever the name resolves to), `IP` or
   `IP:port`, or a network in CIDR form. `localhost` also names 127.0.0.0/8 and ::1.
4. Every other address must be public unicast. Loopback, private, link-local, CGNAT, unique-local, v4-mapped, NAT64,
   6to4, Teredo, multicast, unspecified, reserved and documentation addresses are refused.

A literal address is checked before anything is sent. A name is checked when its URL is saved (apps/gym/lookups.py), for
whoever enters it, and as it is resolved for the connection itself, so a name that resolves differently then gains
nothing. Each hop of a redirect is a new URL under the same rule.
"""

import io
import ipaddress
import socket
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

_SETTING = "GYMWEB_OUTBOUND_ALLOW"
_MAX_REDIRECTS = 3
_MIB = 1024 * 1024
_KNOWN_URLS = 2048  # URLs that were checked are remembered, up to this many
# Below the 5 s after which uvicorn (so vLLM, and most resource servers) closes an idle connection: otherwise a call may
# be sent into a connection that is being closed.
_KEEP_ALIVE = 4.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # AWS, Google Cloud, Azure and most others
        "169.254.170.2",  # AWS ECS credentials
        "169.254.170.23",  # AWS EKS credentials
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure's wire server: inside public space
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
_CLOSED_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Only 2000::/3 is global unicast, which leaves out loopback, mapped, NAT64, ULA, link-local and multicast at once.
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_EMBEDDING_V6 = tuple(ipaddress.IPv6Network(network) for network in ("::/96", "::ffff:0:0/96", "64:ff9b::/96"))
_LOOPBACK_ADDRESSES = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_LOOPBACK = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))


class OutboundRefused(Exception):
    """The URL is one that this installation does not call. Trying again does not help."""


class OutboundRedirectRefused(OutboundRefused):
    """The URL may be called, and its server sent the call on to where none may go: the server's doing, not ours."""


class OutboundFailed(Exception):
    """The call did not come back with a reply. Trying again may help."""


class OutboundTimedOut(OutboundFailed):
    """The time limit of the call or of its connection ran out."""


class OutboundTooLarge(OutboundFailed):
    """The reply is larger than the caller's limit. Trying again does not help."""


class OutboundReply(msgspec.Struct, frozen=True):
    """What came back, whatever its status. `cookies` are those that this reply set, by name."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cookies: dict[str, str]


class OutboundPolicy:
    """Which URLs may be called; the rule stands at the head of this module. Raises ValueError for a bad entry."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        self._names: set[tuple[str, int | None]] = set()
        self._addresses: set[tuple[Address, int | None]] = set()
        self._networks: list[tuple[Network, int | None]] = []
        for entry in allow:
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        if not entry:
            return
        if "/" in entry:
            try:
                self._networks.append((ipaddress.ip_network(entry, strict=False), None))
            except ValueError:
                raise ValueError(f"{_SETTING}: {entry!r} is neither a host, an address nor a network.") from None
            return
        host, port = _split_port(entry)
        address = _as_address(host)
        if address is not None:
            self._addresses.add((address, port))
            return
        if not host or any(character in host for character in ":@? #*[]"):
            raise ValueError(f"{_SETTING}: {entry!r} is neither a host, an address nor a network.")
        name = _plain_name(host)
        self._names.add((name, port))
        if name == "localhost":
            self._networks += [(network, port) for network in _LOOPBACK]

    def check_url(self, url: str) -> None:
        """Raises OutboundRefused for a URL that can never be called; a name is checked again when it is resolved."""
        self.parse(url)

    def host_of(self, url: str) -> tuple[str, int]:
        """Host and port of a URL that may be called, as far as the URL tells. Raises OutboundRefused."""
        if any(letter.isspace() or not letter.isprintable() for letter in url):
            # Parsers drop line ends and let spaces be: what is shown would not be what is called.
            raise OutboundRefused(f"{_cut(url)} has white space or a control character in it.")
        parsed = self.parse(url)
        assert parsed.raw_host is not None and parsed.port is not None
        return parsed.raw_host, parsed.port

    def check_found(self, url: str, found: Sequence[str]) -> None:
        """Raises OutboundRefused where the host of the URL has addresses, `found`, and none of them may be called."""
        host, port = self.host_of(url)
        addresses = [address for one in found if (address := _as_address(one)) is not None]
        if addresses and not any(self.allows(host, address, port) for address in addresses):
            raise self.refusal(host, port, addresses)

    def parse(self, url: str) -> URL:
        try:
            parsed = URL(url)
            host, port = parsed.raw_host, parsed.port
        except ValueError as error:
            raise OutboundRefused(f"{_cut(url)} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https"):
            raise OutboundRefused(f"{_cut(url)} is not an http or https URL.")
        if parsed.raw_user is not None or parsed.raw_password is not None:
            raise OutboundRefused("A URL must not carry a user or a password.")
        if not host or port is None:
            raise OutboundRefused(f"{_cut(url)} names no host.")
        if port == 0:
            raise OutboundRefused(f"{_cut(url)} names port 0, where nothing can listen.")
        address = _as_address(host)
        if address is not None:
            if not self.allows(host, address, port):
                raise self.refusal(host, port, [address])
        elif ":" in host or host.replace(".", "").isdigit():
            # Short forms of addresses (127.1, 2130706433) would reach the socket without ever being resolved.
            raise OutboundRefused(f"{host!r} is not a well-formed address.")
        elif _is_loopback_name(host) and not any(self.allows(host, one, port) for one in _LOOPBACK_ADDRESSES):
            # The resolver would find out as well, but whoever saves this URL should hear of it at once.
            raise self.refusal(host, port)
        return parsed.with_fragment(None)

    def allows(self, host: str, address: Address, port: int) -> bool:
        """Whether a connection to `address`, which is what `host` resolved to, may be made."""
        if _is_metadata(address):
            return (address, None) in self._addresses or (address, port) in self._addresses
        if _is_public(address):
            return True
        name = _plain_name(host)
        if (name, None) in self._names or (name, port) in self._names:
            return True
        if (address, None) in self._addresses or (address, port) in self._addresses:
            return True
        return any(
            given in (None, port) and address.version == network.version and address in network
            for network, given in self._networks
        )

    def refusal(self, host: str, port: int, found: Sequence[Address] = ()) -> OutboundRefused:
        """`found` are the addresses behind the host, where they are known."""
        # Without brackets the port of an IPv6 address would be read as a part of it: another entry, of every port.
        host = f"[{host}]" if ":" in host else host
        if any(_is_metadata(address) for address in found):
            return OutboundRefused(
                f"{host}:{port} is a cloud metadata address, which hands out the credentials of this machine: refused."
            )
        return OutboundRefused(
            f"{host}:{port} is not a public address. If this installation may call it, add {host}:{port} to {_SETTING}."
        )


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
            addresses = [_as_address(one["host"]) for one in found]
            raise self._policy.refusal(host, port, [one for one in addresses if one is not None])
        return allowed

    def _allows(self, host: str, resolved: str, port: int) -> bool:
        address = _as_address(resolved)
        return address is not None and self._policy.allows(host, address, port)

    async def close(self) -> None:
        await self._inner.close()


class _NoCookies(aiohttp.DummyCookieJar):
    """Cookies travel by hand, so the jar does not even parse them."""

    def update_cookies_from_headers(self, headers: Sequence[str], response_url: URL) -> None:
        return None


class Outbound:
    """One pool of connections, opened in the loop of its first call. Redirects are followed by hand, at most three.

    `resolver` stands in for the system's name resolution; what it answers is checked all the same.
    """

    def __init__(self, policy: OutboundPolicy, *, resolver: AbstractResolver | None = None) -> None:
        self.policy = policy
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[str, URL] = {}
        self._timeouts: dict[tuple[float, float], aiohttp.ClientTimeout] = {}

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
        max_bytes: int = 16 * _MIB,
    ) -> OutboundReply:
        """One call, whatever the status it ends with. `timeout` is seconds for each hop with its body.

        Raises OutboundRefused (OutboundRedirectRefused where a redirect leads astray), OutboundFailed or
        OutboundTimedOut.
        """
        target = self._urls.get(url) or self._remember(url)
        limits = self._timeouts.get((timeout, connect_timeout)) or self._limits(timeout, connect_timeout)
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

    def _limits(self, total: float, connect: float) -> aiohttp.ClientTimeout:
        if len(self._timeouts) >= _KNOWN_URLS:
            self._timeouts.clear()
        limits = self._timeouts[total, connect] = aiohttp.ClientTimeout(total=total, connect=connect)
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
        limits: aiohttp.ClientTimeout,
        max_bytes: int,
    ) -> OutboundReply:
        session = self._session or self._open()
        if cookies:
            headers = {**(headers or {}), "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        try:
            response = await session.request(
                method, url, data=_as_payload(body), headers=headers, allow_redirects=False, timeout=limits
            )
            try:
                content = await _read(response, max_bytes)
            except BaseException:
                response.close()
                raise
        except TimeoutError as error:
            raise OutboundTimedOut(_timeout_message(error, url, limits)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise OutboundFailed(f"{_where(url)}: {str(error) or type(error).__name__}") from error
        given = response.headers
        return OutboundReply(
            response.status, given, content, _set_cookies(given.getall("Set-Cookie")) if "Set-Cookie" in given else {}
        )

    async def _follow(
        self,
        reply: OutboundReply,
        method: str,
        url: URL,
        *,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        cookies: dict[str, str],
        limits: aiohttp.ClientTimeout,
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
    return io.BytesIO(body) if body is not None and len(body) > _MIB else body


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    length = response.content_length
    if length is not None and length > max_bytes:
        raise OutboundTooLarge(_too_large(response, max_bytes))
    if length is not None and "Content-Encoding" not in response.headers:
        return await response.read()
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > max_bytes:
            raise OutboundTooLarge(_too_large(response, max_bytes))
        chunks.append(chunk)
    response.release()
    return b"".join(chunks)


def _too_large(response: aiohttp.ClientResponse, max_bytes: int) -> str:
    return f"{_where(response.url)}: the reply is larger than the limit of {max_bytes:,} bytes."


def _timeout_message(error: TimeoutError, url: URL, limits: aiohttp.ClientTimeout) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"{_where(url)}: no connection within {limits.connect:g} s."
    return f"{_where(url)}: no reply within {limits.total:g} s."


def _set_cookies(lines: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition(";")[0].partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


def _is_metadata(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _EMBEDDING_V6):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) in _METADATA
    return address in _METADATA


def _as_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _split_port(entry: str) -> tuple[str, int | None]:
    """`host`, `host:port`, `[v6]:port` or a bare v6 address, which has colons of its own."""
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return entry, None
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{_SETTING}: {entry!r} has no valid port.")
    return host, int(port)


def _plain_name(host: str) -> str:
    return host.rstrip(".").lower()


def _is_loopback_name(host: str) -> bool:
    name = _plain_name(host)
    return name == "localhost" or name.endswith(".localhost")


def _where(url: URL) -> str:
    """The URL without its query, which may hold something private."""
    return str(url.with_query(None).with_fragment(None))


def _cut(url: str) -> str:
    """A URL that could not be parsed, short and without what may be a password."""
    return repr(url[:80] if "@" not in url else "the given text")
