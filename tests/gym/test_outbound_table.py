"""The table of ways into private networks, with resolver and connect replaced: each is refused, nothing connects."""

import socket

import pytest
import uvloop

from apps.gym.calls import http_client
from apps.gym.calls.outbound import Outbound, OutboundFailed
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from tests.deadlines import DEADLINE
from tests.gym.test_outbound import Names, call, hello, redirecting

PRIVATE = {
    "loopback": "127.0.0.1",
    "the rest of loopback": "127.255.255.254",
    "any": "0.0.0.0",
    "private A": "10.1.2.3",
    "private B": "172.20.0.9",
    "private C": "192.168.1.1",
    "CGNAT": "100.64.0.1",
    "CGNAT, its end": "100.127.255.254",
    "link-local": "169.254.10.10",
    "metadata": "169.254.169.254",
    "metadata of Alibaba": "100.100.100.200",
    "metadata of Azure, inside public space": "168.63.129.16",
    "metadata of ECS": "169.254.170.2",
    "metadata of Oracle": "192.0.0.192",
    "metadata, IPv6": "fd00:ec2::254",
    "benchmarking": "198.18.0.1",
    "multicast": "224.0.0.1",
    "broadcast": "255.255.255.255",
    "reserved": "240.0.0.1",
    "6to4 relay": "192.88.99.1",
    "loopback, IPv6": "::1",
    "unspecified, IPv6": "::",
    "IPv6-mapped loopback": "::ffff:127.0.0.1",
    "IPv6-mapped, in hexadecimal": "::ffff:7f00:1",
    "IPv6-mapped metadata": "::ffff:169.254.169.254",
    "IPv4-compatible": "::127.0.0.1",
    "IPv4-translated": "::ffff:0:127.0.0.1",
    "unique local": "fd12:3456::1",
    "link-local, IPv6": "fe80::1",
    "site-local": "fec0::1",
    "multicast, IPv6": "ff02::1",
    "NAT64 of loopback": "64:ff9b::7f00:1",
    "NAT64 of metadata": "64:ff9b::a9fe:a9fe",
    "NAT64, local use": "64:ff9b:1::7f00:1",
    "Teredo": "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "ORCHID": "2001:20::1",
    "6to4 of loopback": "2002:7f00:1::",
    "6to4 of a private network": "2002:a00:1::",
    "documentation, IPv6": "2001:db8::1",
    "discard only": "100::1",
}
NUMBERS = {
    "decimal": "2130706433",
    "octal": "0177.0.0.1",
    "octal, whole": "017700000001",
    "hexadecimal": "0x7f000001",
    "hexadecimal parts": "0x7f.0.0.1",
    "two parts": "127.1",
    "three parts": "127.0.1",
    "full-width digits": "１２７.0.0.1",
    "circled digits": "①②⑦.⓪.⓪.①",
    "metadata, decimal": "2852039166",
    "zone": "[fe80::1%25lo]",
}


class System(Names):
    """Resolves as the system does where a number is written in another way, which is what `inet_aton` takes."""

    async def __call__(self, host, port):
        if host not in self.addresses:
            self.addresses[host] = [socket.inet_ntoa(socket.inet_aton(host))]
        return await super().__call__(host, port)


@pytest.fixture
def connected(monkeypatch):
    """Every address that a connection was tried to; none is made."""
    tried = []

    async def connect(addr_infos, **kwargs):
        tried.extend(info[4][0] for info in addr_infos)
        raise ConnectionError("replaced")

    monkeypatch.setattr(http_client, "start_connection", connect)
    return tried


def ask(url, *, policy=None, resolve=None):
    async def talk():
        outbound = Outbound(policy or OutboundPolicy(), resolve=resolve or System())
        try:
            return await outbound.request("GET", url, timeout=DEADLINE)
        finally:
            await outbound.close()

    return uvloop.run(talk())


def literal(address):
    return f"[{address}]" if ":" in address else address


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("port", ["", ":8000"])
def test_a_forbidden_address_is_refused_literally_and_behind_a_name(name, port, connected):
    address = PRIVATE[name]
    for url, resolve in (
        (f"http://{literal(address)}{port}/", None),
        (f"https://inner.example{port}/", Names(inner_example=[address])),
    ):
        with pytest.raises(OutboundRefused, match=r"GYMWEB_OUTBOUND_ALLOW|cloud metadata address"):
            ask(url, resolve=resolve)
    assert connected == []


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_written_in_another_way_is_refused(name, connected):
    with pytest.raises(OutboundRefused):
        ask(f"http://{NUMBERS[name]}/")
    assert connected == []


def test_a_name_that_rebinds_is_looked_at_each_time_it_is_resolved(connected):
    names = Names(rebind_example=["93.184.216.34", "127.0.0.1"])
    with pytest.raises(OutboundFailed, match="replaced"):
        ask("http://rebind.example/", resolve=names)
    with pytest.raises(OutboundRefused):
        ask("http://rebind.example/", resolve=names)
    # What was checked is what is connected to: the name is not resolved once more in between.
    assert (connected, names.asked) == (["93.184.216.34"], ["rebind.example", "rebind.example"])


def test_of_several_addresses_the_private_ones_are_never_connected_to(connected):
    names = Names(mixed_example=[["169.254.169.254", "93.184.216.34", "::1", "10.0.0.1"]])
    with pytest.raises(OutboundFailed):
        ask("http://mixed.example/", resolve=names)
    assert connected == ["93.184.216.34"]


@pytest.mark.parametrize("name", PRIVATE)
def test_a_redirect_to_an_address_of_the_table_is_refused(name):
    target = PRIVATE[name]
    if name == "loopback":
        target = "127.0.0.2"
    with pytest.raises(OutboundRefused):
        call(redirecting(302, f"http://{literal(target)}:9/"), path="/start")


def test_a_redirect_to_a_name_behind_which_is_a_private_address_is_refused():
    with pytest.raises(OutboundRefused, match=r"inner\.example:9 is not a public address"):
        call(redirecting(307, "http://inner.example:9/"), path="/start", resolve=Names(inner_example=["10.0.0.1"]))


def test_the_private_addresses_behind_a_wide_allow_list_still_leave_out_metadata(connected):
    policy = OutboundPolicy(["0.0.0.0/0", "::/0", "inner.example"])
    for address in (one for name, one in PRIVATE.items() if "metadata" in name.lower()):
        for url, resolve in (
            (f"http://{literal(address)}/", None),
            ("http://inner.example/", Names(inner_example=[address])),
        ):
            with pytest.raises(OutboundRefused, match="cloud metadata address"):
                ask(url, policy=policy, resolve=resolve)
    assert connected == []


@pytest.mark.parametrize("allow", [["127.0.0.1"], ["127.0.0.0/8"], ["vllm.internal"]])
def test_a_private_vllm_that_is_on_the_allow_list_is_called(allow):
    policy = OutboundPolicy(allow)
    reply = call(hello, host="vllm.internal", policy=policy, resolve=Names(vllm_internal=["127.0.0.1"]))
    assert reply.status == 200


def test_what_the_allow_list_names_opens_nothing_beside_it(connected):
    policy = OutboundPolicy(["vllm.internal:8000", "10.0.0.0/24"])
    for url in ("http://vllm.internal:22/", "http://other.internal:8000/"):
        with pytest.raises(OutboundRefused):
            ask(url, policy=policy, resolve=Names(vllm_internal=["127.0.0.1"], other_internal=["10.0.1.1"]))
    assert connected == []
