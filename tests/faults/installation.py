"""An installation of GymWeb as the scenarios see it: real processes, a database to look into, an end for all of it."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from scripts.servers import free_port
from tests import deadlines

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FULL = os.environ.get("FAULTS") == "full"
LEASE = 5.0
"""Seconds. A worker that a busy machine does not run for so long loses its lease, and with it the figures of a test."""
PATIENCE = 4
"""A scenario names the seconds that it takes on a quiet machine, and fails after so many times as long."""
LONGEST = 600.0
"""Seconds. No wait of a scenario is longer than this."""


def size(short: int, full: int) -> int:
    """How large a scenario is: `FAULTS=full` selects the full form."""
    return full if FULL else short


class Program:
    """A process of ours, whose output goes to a file."""

    def __init__(self, name: str, command: list[str], *, env: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.killed = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.killed = True
        self._process.kill()
        self._process.wait()

    def wait(self, seconds: float) -> int:
        """Return the exit code. Raise TimeoutExpired if it takes far longer than these seconds of a quiet machine."""
        return self._process.wait(patient(seconds))

    def end(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Installation:
    """Processes that share a database and a folder, with leases short enough to be waited for."""

    def __init__(self, folder: Path, *, database_url: str, redis_url: str = "", **settings: str) -> None:
        self.folder = folder
        self.database_url = database_url
        self.programs: list[Program] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GYMWEB_", "DJANGO_"))}
        self.env = {
            **kept,
            "GYMWEB_VAR": str(folder),
            "GYMWEB_DATABASE_URL": database_url,
            "GYMWEB_REDIS_URL": redis_url,
            "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
            "GYMWEB_WORKER_LEASE_SECONDS": str(LEASE),
            "GYMWEB_WORKER_GRACE_SECONDS": "5",
            **settings,
        }

    # -- processes ------------------------------------------------------------------------------------------------

    def start(self, name: str, *command: object, **env: object) -> Program:
        given = {key: str(value) for key, value in env.items()}
        log = self.folder / f"{len(self.programs)}-{name}.log"
        words = [sys.executable, *(str(part) for part in command)]
        program = Program(name, words, env={**self.env, **given}, log=log)
        self.programs.append(program)
        return program

    def worker(self, seats: int, **env: object) -> Program:
        return self.start("worker", "manage.py", "rolloutworker", "--seats", seats, **env)

    def serve(self, *options: object, **env: object) -> tuple[Program, int]:
        port = free_port()
        program = self.start("serve", "manage.py", "serve", "--port", port, *options, **env)
        self.wait_port(program, port)
        return program, port

    def model(self, *options: object) -> str:
        """The base URL of a mock model."""
        port = free_port()
        self.wait_port(self.start("model", "scripts/mock_model.py", "--port", port, *options), port)
        return f"http://127.0.0.1:{port}/v1"

    def tools(self, *options: object, port: int | None = None) -> tuple[Program, str]:
        """A tool server and its base URL."""
        port = port or free_port()
        program = self.start("tools", HERE / "tool_server.py", "--port", port, *options)
        self.wait_port(program, port)
        return program, f"http://127.0.0.1:{port}"

    def wait_port(self, program: Program, port: int) -> None:
        def listens() -> bool:
            assert program.exit_code is None, f"{program.name} ended: {program.said[-2000:]}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        wait_until(listens, 90, f"{program.name} listens")

    def leave(self, *programs: Program, seconds: float = 20) -> list[int]:
        """Their exit codes after SIGTERM; none may have ended before."""
        for program in programs:
            if program.name == "worker":
                # One that is not up yet does not know how to leave.
                known = f"SELECT count(*) FROM rollouts_worker WHERE pid = {program.pid}"
                wait_until(lambda known=known: self.number(known) > 0, 30, self.tell)
            assert program.exit_code is None, f"{program.name} ended by itself: {program.said[-3000:]}"
            program.signal(signal.SIGTERM)
        return [program.wait(seconds) for program in programs]

    def close(self) -> None:
        for program in self.programs:
            program.end()

    # -- rows -----------------------------------------------------------------------------------------------------

    def plan(self, **wanted: Any) -> dict[str, int]:
        """The ids of the planned collections by their names; tests/faults/plan.py says what can be wanted."""
        # PostgreSQL ends what idles in a transaction for half a lease, and a migration thinks between its statements:
        # on a busy machine for longer than half of the short lease of these tests.
        patient = {"GYMWEB_WORKER_LEASE_SECONDS": "30"} if wanted.get("migrate") else {}
        done = subprocess.run(
            [sys.executable, str(HERE / "plan.py")],
            input=json.dumps(wanted),
            env={**self.env, **patient},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        planned: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        return planned

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection of the test's own, never of the test database."""
        if self.database_url.startswith("sqlite"):
            path = self.database_url.removeprefix("sqlite:///")
            with contextlib.closing(sqlite3.connect(path, timeout=deadlines.DEADLINE)) as connection:
                yield connection
        else:
            with psycopg.connect(self.database_url, autocommit=True) as connection:
                yield connection

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection() as connection:
            return list(connection.execute(sql).fetchall())

    def number(self, sql: str) -> int:
        return int(self.rows(sql)[0][0])

    def ended(self, *collections: int) -> int:
        """How many rollouts of these collections have ended."""
        ids = ", ".join(map(str, collections))
        return self.number(f"SELECT sum(completed + failed + cancelled) FROM rollouts_collection WHERE id IN ({ids})")

    def wait_ended(self, number: int, *collections: int, seconds: float) -> None:
        wait_until(lambda: self.ended(*collections) >= number, seconds, lambda: f"{number} ended; {self.tell()}")

    def wait_finished(self, *collections: int, seconds: float) -> None:
        ids = ", ".join(map(str, collections))
        unfinished = f"SELECT count(*) FROM rollouts_collection WHERE id IN ({ids}) AND state <> 'completed'"
        wait_until(lambda: self.number(unfinished) == 0, seconds, lambda: f"all finished; {self.tell()}")

    def tell(self) -> str:
        """Where everything stands, for a message."""
        counts = self.rows("SELECT collection_id, status, count(*) FROM rollouts_rollout GROUP BY 1, 2 ORDER BY 1, 2")
        workers = self.rows("SELECT id, pid, state, busy FROM rollouts_worker ORDER BY id")
        exports = self.rows("SELECT id, state, attempt, message FROM exports_export ORDER BY id")
        logs = [f"{program.name} {program.pid}: {program.said[-1500:]}" for program in self.programs]
        return "\n".join([f"rollouts {counts}", f"workers {workers}", f"exports {exports}", *logs])


class Api:
    """The API of a web process, as the owner of a key."""

    def __init__(self, port: int, key: str) -> None:
        self._address, self._key = f"http://127.0.0.1:{port}/api/v1/", key

    def post(self, path: str, body: Any, media_type: str = "application/json") -> Any:
        """Return the JSON that it answers. `body` is JSON, or bytes of that media type."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": media_type}
        request = urllib.request.Request(self._address + path, data=content, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)


def wait_until(condition: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> float:
    """Return the seconds until the condition held. `seconds` is how long that takes on a quiet machine."""
    return deadlines.wait_until(condition, patient(seconds), what)


def patient(seconds: float) -> float:
    """Return how long to wait for what takes these seconds on a quiet machine."""
    return min(max(deadlines.DEADLINE, PATIENCE * seconds), LONGEST)
