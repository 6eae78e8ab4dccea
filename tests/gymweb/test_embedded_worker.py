"""`manage.py serve` with its worker: one process, one loop, and an orderly end for both."""

import socket
import sqlite3
from contextlib import closing

import pytest

from tests.deadlines import DEADLINE, wait_until
from tests.gymweb.serving import read_response, serving, start
from tests.migrated import lay_out

SETTINGS = {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_DATABASE_URL": "", "GYMWEB_REDIS_URL": ""}


@pytest.fixture
def var(tmp_path):
    lay_out(tmp_path / "gymweb.sqlite3")
    return tmp_path


def settings_of(var) -> dict[str, str]:
    return {**SETTINGS, "GYMWEB_DATABASE_URL": f"sqlite:///{var}/gymweb.sqlite3"}


def workers(var) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(var / "gymweb.sqlite3", timeout=DEADLINE)) as database:
        return database.execute("SELECT state, seats FROM rollouts_worker").fetchall()


def test_the_worker_starts_with_the_server_and_gives_up_its_lease_at_the_end(var):
    with serving(var, "--seats", "7", **settings_of(var)) as server:
        wait_until(lambda: workers(var) == [("active", 7)])
        server.signal()
        assert server.process.wait(DEADLINE) == 0
    assert workers(var) == [("stopped", 7)]


def test_a_port_in_use_leaves_no_worker_behind(var):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start(var, "--port", str(taken.getsockname()[1]), **settings_of(var))
        process.communicate(timeout=DEADLINE)
    assert (process.returncode, workers(var)) == (1, [])


def test_a_worker_that_breaks_off_takes_the_server_with_it(var):
    with closing(sqlite3.connect(var / "gymweb.sqlite3", timeout=DEADLINE)) as database, database:
        # The worker finds no table for its lease.
        database.execute("ALTER TABLE rollouts_worker RENAME TO gone")
    process = start(var, "--port", "0", "--skip-checks", **settings_of(var))
    said, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert "no such table" in said
    assert "CommandError: The worker failed" in said


def test_a_drained_worker_leaves_the_server_serving_and_comes_back_with_its_next_start(var):
    with serving(var, "--seats", "7", **settings_of(var)) as server:
        wait_until(lambda: workers(var) == [("active", 7)])
        with closing(sqlite3.connect(var / "gymweb.sqlite3", timeout=DEADLINE)) as database, database:
            database.execute("UPDATE rollouts_worker SET state = 'draining'")
        wait_until(lambda: workers(var) == [("stopped", 7)])
        with server.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(connection)[0] == 200
    with serving(var, "--seats", "7", **settings_of(var)):
        wait_until(lambda: workers(var) == [("stopped", 7), ("active", 7)])
