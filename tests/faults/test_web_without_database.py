"""What a web process says while PostgreSQL is away, and that it needs no restart when it is back."""

import urllib.error
import urllib.request

import pytest

from scripts.servers import Postgres
from tests.deadlines import DEADLINE
from tests.faults.installation import Installation

pytestmark = pytest.mark.slow


def ask(port: int, path: str, **headers: str) -> tuple[int, str | None, str, str]:
    """Status, Retry-After, type and beginning of the answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        reply = urllib.request.urlopen(request, timeout=DEADLINE)
    except urllib.error.HTTPError as refused:
        reply = refused
    with reply:
        text = reply.read().decode()
        return reply.status, reply.headers["Retry-After"], reply.headers["Content-Type"].split(";")[0], text


def test_a_web_process_says_503_while_postgres_is_away_and_goes_on_by_itself(
    cluster: Installation, database: Postgres
) -> None:
    key = cluster.plan(key="ada")["key"]
    _, port = cluster.serve("--no-worker")
    given = {"Authorization": f"Bearer {key}"}
    asked = [("/api/v1/me/", given), ("/metrics", given), ("/collections/", {"Cookie": f"sessionid={'a' * 32}"})]
    up = [ask(port, path, **headers)[0] for path, headers in asked]
    database.kill()
    try:
        away = [ask(port, path, **headers) for path, headers in asked]
        alive = ask(port, "/healthz")
    finally:
        database.start()
    again = [ask(port, path, **headers)[0] for path, headers in asked]
    assert (up, [answer[:3] for answer in away], alive[0], again) == (
        [200] * 3,
        [(503, "5", "application/problem+json"), (503, "5", "text/plain"), (503, "5", "text/html")],
        200,
        [200] * 3,
    )
    assert away[1][3] == "The database is unavailable.\n"
    assert "Database unavailable" in away[2][3]
