"""More requests at once than PostgreSQL has connections: they wait for each other, and none is refused."""

import asyncio
import contextlib
import http.client
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.deadlines import DEADLINE
from tests.faults.installation import Installation, patient, wait_until

pytestmark = pytest.mark.slow

BURST = 500
INVITATION = f"/invitations/{'a' * 43}/"


def ask(port: int, path: str, key: str = "", **headers: str) -> tuple[int, str]:
    given = {"Authorization": f"Bearer {key}", **headers} if key else headers
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=given)
    try:
        reply = urllib.request.urlopen(request, timeout=patient(DEADLINE))
    except urllib.error.HTTPError as refused:
        reply = refused
    with reply:
        return reply.status, reply.read().decode()


async def send_together(port: int, heads: list[str]) -> "Counter[int]":
    """Connect for each request, send all of them at once, and count the statuses."""

    async def connect(head: str) -> int:
        async with asyncio.timeout(patient(120)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await connected.wait()
            writer.write(f"{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            status = int((await reader.readline()).split()[1])
            await reader.read()
            writer.close()
            return status

    connected = asyncio.Barrier(len(heads))
    return Counter(await asyncio.gather(*map(connect, heads)))


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found, name
    return float(found[1])


def test_500_requests_at_once_are_all_answered(cluster: Installation, show) -> None:
    key = cluster.plan(key="ada")["key"]
    program, port = cluster.serve("--no-worker")
    signed = f"GET /api/v1/me/ HTTP/1.1\r\nAuthorization: Bearer {key}"
    kinds = {"key": signed, "invitation": f"GET {INVITATION} HTTP/1.1"}
    found = {name: asyncio.run(send_together(port, [head] * BURST)) for name, head in kinds.items()}
    show(**{name: dict(statuses) for name, statuses in found.items()})
    assert found == {"key": {200: BURST}, "invitation": {410: BURST}}
    text = ask(port, "/metrics", key)[1]
    names = ("gymweb_web_connections", "gymweb_web_requests_waiting", "gymweb_web_requests_refused_total")
    # The one in use is that of the request for the metrics.
    assert [metric(text, name) for name in names] == [1, 0, 0]
    assert "database" not in program.said


FEW = {"GYMWEB_WEB_CONNECTIONS": "2"}
WAITING = 4
"""Requests of each kind that wait: more than there are connections."""


def test_streams_slow_readers_and_waiting_agents_hold_no_connection(cluster: Installation) -> None:
    model = cluster.model()
    planned = cluster.plan(
        key="ada",
        models={"mock": {"base_url": model}},
        environments={"tools": {"base_url": "http://127.0.0.1:1"}},
        agents={"outside": {"kind": "external"}},
        collections={
            "external": {"faults": [""] * 8, "model": "mock", "environment": "tools", "agent": "outside", "repeats": 1}
        },
    )
    _, port = cluster.serve("--no-worker", **FEW)
    signed = {"Authorization": f"Bearer {planned['key']}", "Content-Type": "application/json"}
    streamed = {
        "rows": [{"responses_create_params": {"input": "What is 2 + 2?"}, "expected_answer": "4"}],
        "environment": "exact_match",
        "endpoint": {"base_url": model, "model_name": "mock"},
    }
    attempt = {"collection": planned["external"], "wait_seconds": 30}
    with contextlib.ExitStack() as stack:

        def begin(method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
            stack.callback(connection.close)
            connection.request(method, path, body and json.dumps(body), {**signed, **headers})
            return connection

        for _ in range(WAITING):
            stream = begin("POST", "/api/v1/rollouts/stream/", streamed).getresponse()
            assert stream.status == 200, stream.read()
            assert json.loads(stream.readline())["type"] == "collection"
            begin("GET", "/api/v1/schema/")  # Its response is not read.
            begin("POST", "/api/v1/attempts/", attempt, **{"Idempotency-Key": f"take-{_}"})
        began = time.monotonic()
        answers = [ask(port, "/api/v1/me/", planned["key"])[0] for _ in range(20)]
        seconds = time.monotonic() - began
        used = cluster.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") - 1
        assert (answers, used) == ([200] * 20, 2)
        # Before the agents stop waiting.
        assert seconds < 20


@pytest.fixture
def locked(cluster: Installation) -> Iterator[tuple[int, str]]:
    """A web process whose requests all hang, because another transaction locks the users. Yields its port and a key."""
    key = cluster.plan(key="ada")["key"]
    _, port = cluster.serve("--no-worker", **FEW)
    request = f"GET /api/v1/me/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with psycopg.connect(cluster.database_url) as other, contextlib.ExitStack() as stack:
        other.execute("LOCK TABLE accounts_apikey, accounts_user IN ACCESS EXCLUSIVE MODE")
        for _ in range(2 * WAITING):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE))
            client.sendall(request)
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: cluster.number(blocked) == 2, 10, "all connections wait for the lock")
        yield port, key


def test_health_checks_answer_and_long_waits_get_busy(cluster: Installation, locked: tuple[int, str]) -> None:
    port, key = locked
    health = [ask(port, path)[0] for path in ("/healthz", "/readyz")]
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda path: ask(port, path, key), (INVITATION, "/api/v1/me/")))
    seconds = time.monotonic() - began
    assert (health, [status for status, _ in found]) == ([200, 200], [503, 503])
    assert seconds >= 30
    assert "Server busy" in found[0][1]
    assert json.loads(found[1][1])["type"] == "urn:gymweb:problem:server-busy"
    said = cluster.programs[-1].said
    assert "GYMWEB_WEB_CONNECTIONS" in said
    assert "The database fails" not in said
