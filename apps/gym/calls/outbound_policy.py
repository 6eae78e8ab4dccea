"""Decide which addresses may be called: public ones, and those on the operator's allow list.

The rules, in the order in which they are applied:

1. The scheme must be http or https. The URL must not contain a user or a password.
2. A cloud metadata address (for example 169.254.169.254) is refused unless the allow list has exactly this address. A
   host name or a network that contains it is not enough.
3. An address on the allow list is allowed: `host` or `host:port` (whatever the name resolves to), `IP` or `IP:port`,
   or a network in CIDR form. `localhost` includes 127.0.0.0/8 and ::1.
4. Every other address must be public unicast. Loopback, private, link-local, CGNAT, unique-local, v4-mapped, NAT64,
   6to4, Teredo, multicast, unspecified, reserved and documentation addresses are refused.

A literal address is checked before sending. A name is checked when its URL is saved (calls/lookups.py), and again when
it is resolved for the connection, so changing its DNS record does not bypass the check. Each redirect is checked as a
new URL.
"""

import ipaddress
from collections.abc import Sequence

from yarl import URL

from apps.gym.redaction.shortening import cut

_SETTING = "GYMWEB_OUTBOUND_ALLOW"
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that only the HTTP client may set: duplicates enable request smuggling."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # AWS, Google Cloud, Azure and most others
        "169.254.170.2",  # AWS ECS credentials
        "169.254.170.23",  # AWS EKS credentials
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure WireServer, which has a public address
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
# Only 2000::/3 is global unicast. This excludes loopback, mapped, NAT64, ULA, link-local and multicast addresses.
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_EMBEDDING_V6 = tuple(ipaddress.IPv6Network(network) for network in ("::/96", "::ffff:0:0/96", "64:ff9b::/96"))
_LOOPBACK_ADDRESSES = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_LOOPBACK = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))


class OutboundRefused(Exception):
    """Raised if the policy forbids the URL. Retrying does not help."""


class OutboundPolicy:
    """The rules in the module docstring. Raise ValueError for an invalid entry of `allow`."""

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
        address = as_address(host)
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
        """Raise OutboundRefused if the URL is never allowed. Names are checked again when they are resolved."""
        self.parse(url)

    def host_of(self, url: str) -> tuple[str, int]:
        """Return host and port of a URL after checks that need no DNS. Raise OutboundRefused."""
        if any(letter.isspace() or not letter.isprintable() for letter in url):
            # URL parsers drop line ends and keep spaces, so the URL shown could differ from the one called.
            raise OutboundRefused(f"{_cut(url)} contains white space or a control character.")
        parsed = self.parse(url)
        assert parsed.raw_host is not None and parsed.port is not None
        return parsed.raw_host, parsed.port

    def check_found(self, url: str, found: Sequence[str]) -> None:
        """Raise OutboundRefused if the host has addresses (`found`) but none of them is allowed."""
        host, port = self.host_of(url)
        addresses = [address for one in found if (address := as_address(one)) is not None]
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
            raise OutboundRefused("A URL must not contain a user or a password.")
        if not host or port is None:
            raise OutboundRefused(f"{_cut(url)} has no host.")
        if port == 0:
            raise OutboundRefused(f"{_cut(url)}: port 0 is not valid.")
        address = as_address(host)
        if address is not None:
            if not self.allows(host, address, port):
                raise self.refusal(host, port, [address])
        elif ":" in host or host.replace(".", "").isdigit():
            # Short forms of addresses (127.1, 2130706433) would connect without being resolved.
            raise OutboundRefused(f"{host!r} is not a well-formed address.")
        elif _is_loopback_name(host) and not any(self.allows(host, one, port) for one in _LOOPBACK_ADDRESSES):
            # The resolver would reject it too, but users should see this when they save the URL.
            raise self.refusal(host, port)
        return parsed.with_fragment(None)

    def allows(self, host: str, address: Address, port: int) -> bool:
        """Return True if `host` may be called at this address and port."""
        is_listed = not self._addresses.isdisjoint({(address, None), (address, port)})
        if _is_metadata(address):
            return is_listed
        name = _plain_name(host)
        if is_listed or _is_public(address) or not self._names.isdisjoint({(name, None), (name, port)}):
            return True
        return any(
            given in (None, port) and address.version == network.version and address in network
            for network, given in self._networks
        )

    def refusal(self, host: str, port: int, found: Sequence[Address] = ()) -> OutboundRefused:
        """Return the exception for a forbidden host. `found` are its addresses, if known."""
        # Suggest IPv6 addresses in brackets. Otherwise the port would be parsed as part of the address, and the entry
        # would allow all ports.
        host = f"[{host}]" if ":" in host else host
        if any(_is_metadata(address) for address in found):
            return OutboundRefused(
                f"{host}:{port} is a cloud metadata address, which hands out the credentials of this machine: refused."
            )
        return OutboundRefused(
            f"{host}:{port} is not a public address. If this installation may call it, add {host}:{port} to {_SETTING}."
        )


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


def _is_metadata(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _EMBEDDING_V6):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) in _METADATA
    return address in _METADATA


def as_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split `host`, `host:port`, `[v6]:port`, or a bare IPv6 address, which contains colons."""
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


def _cut(url: str) -> str:
    """Return an unparsable URL for a message: shortened, and without credentials."""
    return repr(cut(url, 80) if "@" not in url else "the given text")
