"""A server to be measured: its makings, its API with a key, and the memory that it takes with all its children."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gymweb.serving import Served  # noqa: E402 - found by the line above

MB = 1024**2
PAGE = os.sysconf("SC_PAGESIZE")
ALLOWED_GROWTH_MB = 150


def row(number: int) -> bytes:
    """One task of 2 KB, unlike every other."""
    text = f"Question {number}: " + "word " * 372
    params = {"input": [{"role": "user", "content": text}]}
    task = {"id": f"task-{number}", "responses_create_params": params, "expected_answer": str(number)}
    return json.dumps(task).encode() + b"\n"


class Memory:
    """The most that a process and its children held at once since it began."""

    def __init__(self, served: Served) -> None:
        self._pid, self._over = served.process.pid, threading.Event()
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
                # Until it has become its own program, a child shows its parent's memory as its own.
                if _words(child) != _words(pid):
                    found += [child, *_children(child)]
    return found


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def prepare(var: Path, database: str = "") -> str:
    """A database with datasets to upload into and a collection's makings; the key of a person who may."""
    os.environ.update({"GYMWEB_VAR": str(var), "DJANGO_SETTINGS_MODULE": "gymweb.settings"})
    # Never the database that somebody's environment names.
    os.environ["GYMWEB_DATABASE_URL"] = database or f"sqlite:///{var}/gymweb.sqlite3"
    script = """
from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role, User
from apps.environments.models import Environment
from apps.policies.models import PolicyModel, Provider
from apps.tasks.upload_jobs import create_dataset, upload_file
import io, json
user = User.objects.create_user(username="measure", role=Role.ENGINEER)
environment = Environment.objects.get(slug="calculator")
create_dataset(slug="measured", name="Measured", environment=environment)
running = create_dataset(slug="running", name="Running", environment=environment)
rows = [{"responses_create_params": {"input": f"What is {n} + 2?"}, "expected_answer": str(n + 2)} for n in range(1000)]
upload_file(dataset=running, stream=io.BytesIO("\\n".join(map(json.dumps, rows)).encode()), filename="a.jsonl")
PolicyModel.objects.get_or_create(slug="scripted", defaults={"name": "Scripted", "provider": Provider.SCRIPTED})
print("KEY", create_api_key(user=user, name="measure", scopes=["admin"])[1])
"""
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
    told = subprocess.check_output([sys.executable, "manage.py", "shell", "-v", "0", "-c", script], cwd=ROOT, text=True)
    return told.split("KEY ")[1].strip()


class Api:
    """The server's API, with a key."""

    def __init__(self, served: Served, key: str) -> None:
        self._port, self._headers = served.port, {"Authorization": f"Bearer {key}", "Host": "localhost"}

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Status and JSON. A body that is no bytes is sent in chunks, or as JSON where it is a dict."""
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


def say(measured: str, **figures: Any) -> None:
    print(json.dumps({"measured": measured, **figures}), flush=True)
