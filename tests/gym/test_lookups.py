"""What stands behind a name is looked at when its address is saved; nothing connects."""

import socket
import threading

import pytest

from apps.gym.calls import lookups
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from tests.deadlines import DEADLINE
from tests.gym.test_outbound_table import PRIVATE

LOOK_UP = lookups.look_up


@pytest.fixture
def names(monkeypatch):
    """The names that the resolver knows, and a socket that must not be opened."""
    known: dict[str, list[str]] = {}
    monkeypatch.setattr(lookups, "look_up", lambda host, port, **given: known.get(host, []))
    monkeypatch.setattr(socket, "socket", None)
    return known


def check(url, *allow):
    lookups.check_saved_url(OutboundPolicy(list(allow)), url)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_name_behind_which_is_an_address_of_the_table_is_refused(name, names):
    names["inner.example"] = [PRIVATE[name]]
    with pytest.raises(OutboundRefused, match=r"GYMWEB_OUTBOUND_ALLOW|cloud metadata address"):
        check("https://inner.example:8443/v1")


def test_the_refusal_names_the_setting_and_what_to_add(names):
    names["inner.example"] = ["10.0.0.7", "fd12::7"]
    with pytest.raises(OutboundRefused, match=r"add inner\.example:8000 to GYMWEB_OUTBOUND_ALLOW"):
        check("http://inner.example:8000/v1")


@pytest.mark.parametrize("allow", ["inner.example", "inner.example:8000", "10.0.0.7", "10.0.0.0/24"])
def test_what_the_allow_list_names_is_saved(allow, names):
    names["inner.example"] = ["10.0.0.7"]
    check("http://inner.example:8000/v1", allow)


def test_a_name_with_a_public_address_among_others_is_saved_since_only_that_is_connected_to(names):
    names["mixed.example"] = ["10.0.0.7", "93.184.216.34"]
    check("http://mixed.example/v1")


def test_an_unresolvable_name_is_saved_and_a_literal_address_checked(names):
    check("http://unknown.example/v1")
    with pytest.raises(OutboundRefused):
        check("http://10.0.0.7/v1")


def test_a_slow_resolver_is_not_waited_for(monkeypatch):
    answered = threading.Event()
    monkeypatch.setattr(lookups, "_ask_system", lambda host, port: answered.wait(DEADLINE) and ["10.0.0.7"])
    assert LOOK_UP("slow.example", 80, seconds=0.05) == []
    answered.set()


def test_the_system_is_asked_and_what_it_refuses_to_look_up_has_no_address(monkeypatch):
    asked = []

    def answer(host, port, **given):
        asked.append((host, port))
        if host != "inner.example":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    assert (LOOK_UP("inner.example", 80), LOOK_UP("other.example", 443)) == (["10.0.0.7"], [])
    assert asked == [("inner.example", 80), ("other.example", 443)]
