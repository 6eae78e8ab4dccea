"""A server to measure: its data, its API with a key, and its memory including children."""

import contextlib
import http.client
import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from scripts.measuring import MB, in_own_process, use_database
from tests.gymweb.serving import Served

PAGE = os.sysconf("SC_PAGESIZE")
LOOK_SECONDS = 0.5


def row(number: int) -> bytes:
    """Return one distinct task of 2 KB."""
    text = f"Question {number}: " + "word " * 372
    params = {"input": [{"role": "user", "content": text}]}
    task = {"id": f"task-{number}", "responses_create_params": params, "expected_answer": str(number)}
    return json.dumps(task).encode() + b"\n"


class Memory:
    """The peak memory of a server, or of this process, including children."""

    def __init__(self, served: Served | None = None) -> None:
        self._pid, self._over = served.process.pid if served else os.getpid(), threading.Event()
        self._before = self.most = _tree_rss(self._pid)
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, _tree_rss(self._pid))

    @property
    def growth_mb(self) -> float:
        return round((self.most - self._before) / MB, 1)


def _tree_rss(pid: int) -> int:
    total = 0
    for one in [pid, *_children(pid)]:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE
    return total


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                # Before it executes its own program, a child shows its parent's memory.
                if _words(child) != _words(pid):
                    found += [child, *_children(child)]
    return found


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def prepare(var: Path, database: str = "") -> str:
    """Create a database with datasets for uploads and everything for a collection. Return a user's API key."""
    return in_own_process(_prepare, var, database)


def _prepare(var: Path, database: str) -> str:
    # Never use the configured database.
    use_database(var, **({"GYMWEB_DATABASE_URL": database} if database else {}))
    from apps.accounts.api_keys import create_api_key
    from apps.accounts.models import Role, User
    from apps.environments.models import Environment
    from apps.policies.model_registration import register_scripted_model
    from apps.tasks.dataset_changes import create_dataset
    from apps.tasks.upload_jobs import upload_file

    user = User.objects.create_user(username="measure", role=Role.ENGINEER)
    environment = Environment.objects.get(slug="calculator")
    create_dataset(slug="measured", name="Measured", environment=environment)
    running = create_dataset(slug="running", name="Running", environment=environment)
    rows = [
        {"responses_create_params": {"input": f"What is {n} + 2?"}, "expected_answer": str(n + 2)} for n in range(1000)
    ]
    upload_file(dataset=running, stream=io.BytesIO("\n".join(map(json.dumps, rows)).encode()), filename="a.jsonl")
    register_scripted_model()
    return create_api_key(user=user, name="measure", scopes=["admin"])[1]


class Api:
    """The API of the server, with a key."""

    def __init__(self, served: Served, key: str) -> None:
        self._port, self._headers = served.port, {"Authorization": f"Bearer {key}", "Host": "localhost"}

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Return status and JSON. A body is sent as bytes, as JSON if it is a dict, or else in chunks."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=900)
        headers = {**self._headers, "Content-Type": content_type}
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                chunked = body is not None and not isinstance(body, bytes)
                connection.request(method, f"/api/v1/{path}", body, headers, encode_chunked=chunked)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"{}")
        finally:
            connection.close()

    def wait(self, path: str, going: set[str]) -> list[dict[str, Any]]:
        """Return all progress responses until the work was finished."""
        states: list[dict[str, Any]] = [self.call("GET", path)[1]]
        while states[-1]["state"] in going:
            time.sleep(LOOK_SECONDS)
            states.append(self.call("GET", path)[1])
        return states
