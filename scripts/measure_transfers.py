"""What large transfers cost the server: memory of an upload and a download, bytes sent before a refusal.

`python scripts/measure_transfers.py [--mb 1024]` starts a real server on a free port with a folder of its own, and
prints one JSON object a line.
"""

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gymweb.serving import Served, read_response, send_until_refused, serving  # noqa: E402

MB = 1024**2
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "word " * 380}]}, "expected_answer": "4"}
LINE = json.dumps(ROW).encode() + b"\n"
BLOCK = LINE * (MB // len(LINE))


class Watch:
    """Samples the server's memory and how long a small request waits meanwhile."""

    def __init__(self, served: Served) -> None:
        self._served, self._over = served, threading.Event()
        self._before = self._most = served.rss()
        self._waits = [0.0]
        self._threads = [threading.Thread(target=self._watch), threading.Thread(target=self._ask)]

    def __enter__(self) -> "Watch":
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self._most = max(self._most, self._served.rss())

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            began = time.monotonic()
            with self._served.connect() as connection:
                connection.settimeout(120)
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                read_response(connection)
            self._waits.append(time.monotonic() - began)

    def say(self, name: str, **figures: object) -> None:
        memory = {"rss_before_mb": self._before // MB, "rss_growth_mb": round((self._most - self._before) / MB, 1)}
        times = {"seconds": round(self.seconds, 2), "longest_wait_of_others_s": round(max(self._waits), 3)}
        print(json.dumps({"transfer": name, **figures, **memory, **times}), flush=True)


def prepare(var: Path) -> tuple[str, str]:
    """A database with a dataset and a person; the person's key, and a path to download."""
    # Never the database that somebody's environment names.
    database = f"sqlite:///{var}/gymweb.sqlite3"
    given = {"GYMWEB_VAR": str(var), "GYMWEB_DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "gymweb.settings"}
    os.environ.update(given)
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
    import django

    django.setup()
    from apps.accounts.api_keys import create_api_key
    from apps.accounts.models import Role, User
    from apps.environments.models import Environment
    from apps.tasks.models import Upload
    from apps.tasks.rejected_rows import rejects_file
    from apps.tasks.upload_jobs import create_dataset

    user = User.objects.create_user(username="measure", role=Role.ENGINEER)
    environment = Environment.objects.get(slug="exact_match")
    dataset = create_dataset(slug="measured", name="Measured", environment=environment)
    upload = Upload.objects.create(dataset=dataset, state=Upload.State.REJECTED)
    rejects_file(upload).parent.mkdir(parents=True, exist_ok=True)
    with rejects_file(upload).open("wb") as file:
        for _ in range(300):
            file.write(b"x" * MB)
    return create_api_key(user=user, name="measure", scopes=["admin"])[1], f"/api/v1/uploads/{upload.pk}/rejected/"


def head(path: str, key: str, length: int | None, content_type: str) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: {content_type}\r\n{size}\r\n\r\n"
    ).encode()


def measure_upload(served: Served, path: str, key: str, blocks: int, *, multipart: bool) -> None:
    before = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' if multipart else b""
    after = b"\r\n--cut--\r\n" if multipart else b""
    content_type = "multipart/form-data; boundary=cut" if multipart else "application/x-ndjson"
    length = len(before) + blocks * len(BLOCK) + len(after)
    with Watch(served) as watch, served.connect() as connection:
        connection.settimeout(900)
        connection.sendall(head(path, key, length, content_type) + before)
        for _ in range(blocks):
            connection.sendall(BLOCK)
        connection.sendall(after)
        status, _, body = read_response(connection)
    answer: dict[str, Any] = json.loads(body)
    name = "upload.multipart" if multipart else "upload.ndjson"
    watch.say(name, mb=length // MB, status=status, accepted=answer.get("accepted"))


def chunked(block: bytes) -> Iterator[bytes]:
    return itertools.repeat(b"%x\r\n%b\r\n" % (len(block), block))


def measure_refusal(served: Served, path: str, key: str, *, declared: bool) -> None:
    length = 3 * 1024**3
    with Watch(served) as watch, served.connect() as connection:
        connection.sendall(head(path, key, length if declared else None, "application/x-ndjson"))
        blocks = itertools.repeat(BLOCK, length // len(BLOCK)) if declared else chunked(BLOCK)
        sent = send_until_refused(connection, blocks)
        status, _, _ = read_response(connection)
    name = "refusal.declared" if declared else "refusal.chunked"
    watch.say(name, status=status, sent_mb=round(sent / MB, 1))


def measure_download(served: Served, path: str, key: str) -> None:
    with Watch(served) as watch, served.connect() as connection:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}", "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        size = _read_all(connection)
    watch.say("download", mb=size // MB)


def _read_all(connection: socket.socket) -> int:
    size = 0
    while block := connection.recv(MB):
        size += len(block)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1024, help="size of the uploads (default: %(default)s)")
    blocks = parser.parse_args().mb
    with tempfile.TemporaryDirectory(dir=os.environ.get("GYMWEB_MEASURE_DIR")) as folder:
        var = Path(folder)
        key, download = prepare(var)
        path = "/api/v1/datasets/measured/uploads/?wait=true"
        # Chunks count towards a limit that is low enough to reach it soon.
        limit = str((blocks + 64) * MB)
        settings = {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_MAX_BODY_BYTES": limit}
        with serving(var, "--no-worker", **settings) as served:
            measure_upload(served, path, key, min(blocks, 4), multipart=False)
            measure_upload(served, path, key, blocks, multipart=False)
            measure_upload(served, path, key, blocks, multipart=True)
            measure_refusal(served, path, key, declared=True)
            measure_refusal(served, path, key, declared=False)
            measure_download(served, download, key)


if __name__ == "__main__":
    main()
