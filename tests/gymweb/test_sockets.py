"""WebSocket handshakes with a real server: which pages may open a socket, and what an unknown path gets."""

import asyncio
import os
import subprocess
import sys

import aiohttp
import pytest

from scripts.servers import own_settings
from tests.gymweb.serving import ROOT, Served, serving
from tests.migrated import lay_out

CREATE_SESSION = """
from django.test import Client
from apps.accounts.models import User
client = Client()
client.force_login(User.objects.create_user("admin", role="admin"))
print("session:" + client.cookies["sessionid"].value)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site with an admin, and the admin's session."""
    var = tmp_path_factory.mktemp("site")
    lay_out(var / "gymweb.sqlite3")
    words = [sys.executable, "manage.py", "shell", "-v", "0", "-c", CREATE_SESSION]
    environment = {**os.environ, **own_settings(var)}
    made = subprocess.run(words, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    return var, made.stdout.split("session:")[1].strip()


@pytest.fixture(scope="module")
def plain(site):
    """Without a proxy."""
    with serving(site[0], "--no-worker", **own_settings(site[0])) as server:
        yield server


@pytest.fixture(scope="module")
def behind_proxy(site):
    """Behind a proxy that ends TLS, with other origins trusted."""
    trusted = "https://review.example.org:8443, https://*.trusted.example, http://plain.example:80/"
    given = own_settings(
        site[0],
        GYMWEB_SECURE="1",
        GYMWEB_ALLOWED_HOSTS="gym.example.org,[::1]",
        GYMWEB_TRUSTED_ORIGINS=trusted,
    )
    with serving(site[0], "--no-worker", **given) as server:
        yield server


def handshake(server: Served, session: str, *, path: str = "/ws/rollouts/1/", **headers: str | None) -> int:
    """The status of the handshake: 101 where the socket opens. A header that is None is not sent."""
    given = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}

    async def connect() -> int:
        async with aiohttp.ClientSession(cookies={"sessionid": session}) as client:
            try:
                async with client.ws_connect(f"http://127.0.0.1:{server.port}{path}", headers=given):
                    return 101
            except aiohttp.WSServerHandshakeError as refused:
                return refused.status

    return asyncio.run(connect())


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 101),
        ("localhost:{port}", "http://localhost:{port}", 101),
        ("[::1]:{port}", "http://[::1]:{port}", 101),
        ("localhost", "http://localhost", 101),
        ("localhost:80", "http://localhost", 101),
        ("127.0.0.1:{port}", "http://127.0.0.1:9999", 403),
        ("127.0.0.1:{port}", "http://127.0.0.1", 403),
        ("[::1]:{port}", "http://[::1]:9999", 403),
        ("127.0.0.1:{port}", "https://127.0.0.1:{port}", 403),
        ("127.0.0.1:{port}", "http://localhost:{port}", 403),
        ("localhost:443", "https://localhost", 403),
        ("127.0.0.1:{port}", "null", 403),
        ("127.0.0.1:{port}", "http://[broken", 400),
        ("127.0.0.1:{port}", "http://127.0.0.1:99999", 400),
        ("127.0.0.1:{port}", None, 403),
        ("elsewhere.example", "http://elsewhere.example", 403),
    ],
)
def test_only_pages_of_the_same_scheme_host_and_port_open_a_socket(plain, site, host, origin, status):
    port = plain.port
    origin = origin and origin.format(port=port)
    assert handshake(plain, site[1], Host=host.format(port=port), Origin=origin) == status


@pytest.mark.parametrize(
    ("host", "proto", "origin", "status"),
    [
        ("gym.example.org", "https", "https://gym.example.org", 101),
        ("gym.example.org:443", "https", "https://gym.example.org", 101),
        ("gym.example.org:8443", "https", "https://gym.example.org:8443", 101),
        ("[::1]", "https", "https://[::1]", 101),
        ("gym.example.org", "https", "https://review.example.org:8443", 101),
        ("gym.example.org", "https", "https://one.trusted.example", 101),
        ("gym.example.org", "https", "http://plain.example", 101),
        ("gym.example.org", "https", "https://gym.example.org:8443", 403),
        ("gym.example.org", "https", "http://gym.example.org", 403),
        ("gym.example.org", "https", "https://review.example.org", 403),
        ("gym.example.org", "https", "http://one.trusted.example", 403),
        ("gym.example.org", "https", "https://one.trusted.example:8443", 403),
        ("gym.example.org", None, "https://gym.example.org", 403),
    ],
)
def test_behind_a_proxy_the_page_has_the_scheme_that_the_proxy_reports(behind_proxy, site, host, proto, origin, status):
    assert handshake(behind_proxy, site[1], Host=host, Origin=origin, X_Forwarded_Proto=proto) == status


def test_a_host_that_only_a_header_of_the_client_names_is_not_trusted(behind_proxy, site):
    """X-Forwarded-Host is not read: a site behind a proxy that changes the host names its origin in the settings."""
    headers = {"Host": "gym.example.org", "X_Forwarded_Host": "gym.example.org:8443", "X_Forwarded_Proto": "https"}
    assert handshake(behind_proxy, site[1], Origin="https://gym.example.org:8443", **headers) == 403


def test_an_unknown_path_is_refused_without_a_traceback(site):
    with serving(site[0], "--no-worker", **own_settings(site[0])) as server:
        own = f"http://127.0.0.1:{server.port}"
        paths = ["/ws/", "/ws/nothing/", "/ws/rollouts/x/", "/ws/rollouts/1/more", "/"]
        statuses = {handshake(server, session, path=path, Origin=own) for path in paths for session in (site[1], "")}
        outside = handshake(server, site[1], Origin=own, Daphne_Root_Path="/elsewhere")
        server.signal()
        server.process.wait(30)
        log = server.process.stdout.read()
    assert (statuses, outside) == ({403}, 403)
    assert "Traceback" not in log
