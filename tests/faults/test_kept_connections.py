"""Connections to PostgreSQL that a web process keeps between requests (gymweb/postgresql/base.py)."""

import urllib.request

import pytest

from tests.deadlines import DEADLINE
from tests.faults.installation import Installation, Program

pytestmark = pytest.mark.slow

OTHERS = """
    FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
    AND pid <> pg_backend_pid()
"""
KEPT = """
import threading
from django.db import connection, transaction
from apps.rollouts.engine.database_thread import keep_plans
from gymweb.health import _run_database_check
from gymweb.postgresql import base

base.DatabaseWrapper.is_pooled = True
def pid():
    connection.ensure_connection()
    return connection.connection.info.backend_pid

def on_thread(*calls):
    def run():
        for call in [*calls, connection.close]:
            found.append(call())
    found = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0], len(base._kept)
"""


@pytest.fixture
def run(cluster: Installation):
    """Run code in a process that keeps connections, and return the last line of its output."""

    def shell(code: str) -> str:
        program: Program = cluster.start("shell", "manage.py", "shell", "--command", KEPT + code)
        assert program.wait(DEADLINE) == 0, program.said
        return program.said.splitlines()[-1]

    return shell


def test_requests_share_a_connection_which_is_replaced_when_it_breaks(cluster: Installation) -> None:
    key = cluster.plan(key="ada")["key"]
    _, port = cluster.serve("--no-worker")

    def ask() -> tuple[int, list[int]]:
        """Return the status of a request, and the connections that are open after it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/me/", headers={"Authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
            reply.read()
        return reply.status, [pid for (pid,) in cluster.rows(f"SELECT pid {OTHERS} ORDER BY pid")]

    first, second = ask(), ask()
    assert first == second
    assert (first[0], len(first[1])) == (200, 1)
    cluster.rows(f"SELECT pg_terminate_backend(pid, 10000) {OTHERS}")
    third, fourth = ask(), ask()
    assert third == fourth
    assert (third[0], len(third[1])) == (200, 1)
    assert third[1] != first[1]


def test_only_idle_connections_with_default_settings_are_kept(run) -> None:
    assert (
        run("""
def begin():
    transaction.set_autocommit(False)
    connection.cursor().execute("SELECT 1")

first, kept = on_thread(pid)
assert on_thread(pid) == (first, kept) == (first, 1)
assert on_thread(begin)[1] == 0  # The transaction ends with its connection.
assert on_thread(keep_plans)[1] == 0
assert on_thread(_run_database_check) == ({}, 0)
assert on_thread(pid)[1] == 1
print("done")
""")
        == "done"
    )


def test_a_process_keeps_few_connections_and_none_for_long(run) -> None:
    assert (
        run("""
together = threading.Barrier(base.MOST_KEPT + 2)
def work():
    pid(), together.wait(), connection.close()
threads = [threading.Thread(target=work) for _ in range(base.MOST_KEPT + 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(base._kept) == base.MOST_KEPT
base.MAX_AGE_SECONDS = 0
assert on_thread(pid)[1] == base.MOST_KEPT - 1
print("done")
""")
        == "done"
    )
