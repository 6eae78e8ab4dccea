"""A real `manage.py serve` process for tests, and raw connections to it."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deadlines import DEADLINE

ROOT = Path(__file__).resolve().parents[2]


class Served:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        return connection

    def rss(self) -> int:
        """Resident memory of the server in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)


def start(var: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    given = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.gymweb.served_settings",
        "GYMWEB_VAR": str(var),
        "PYTHONUNBUFFERED": "1",
        **environment,
    }
    entry = ["-m", "tests.gymweb.draining"] if "SERVED_DRAIN_UNTIL" in environment else ["manage.py"]
    return subprocess.Popen(
        [sys.executable, *entry, "serve", *arguments],
        cwd=ROOT,
        env=given,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@contextmanager
def serving(var: Path, *arguments: str, **environment: str) -> Iterator[Served]:
    """The server on a free port, from its first word to its end."""
    process = start(var, "--port", "0", *arguments, **environment)
    assert process.stdout
    try:
        said = ""
        while not (found := re.search(r"GymWeb is at http://127.0.0.1:(\d+)/", said)):
            assert select.select([process.stdout], [], [], DEADLINE)[0], said
            # Not readline: what it keeps for the next call, select does not see.
            block = os.read(process.stdout.fileno(), 65536).decode()
            assert block, f"the server ended: {said}"
            said += block
        yield Served(process, int(found[1]))
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def read_response(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one reply that has a Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        block = connection.recv(65536)
        assert block, f"closed after {received!r}"
        received += block
    head, body = received.split(b"\r\n\r\n", 1)
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        block = connection.recv(65536)
        assert block, "closed within the body"
        body += block
    return int(first.split()[1]), headers, body


def send_until_refused(connection: socket.socket, blocks: Iterator[bytes]) -> int:
    """Send until the server answers or the blocks end; the bytes that were sent."""
    sent = 0
    connection.setblocking(False)
    for block in blocks:
        view = memoryview(block)
        while view:
            readable, writable, _ = select.select([connection], [connection], [], DEADLINE)
            assert readable or writable, "the server neither reads nor answers"
            if readable:
                connection.settimeout(DEADLINE)
                return sent
            count = connection.send(view)
            sent += count
            view = view[count:]
    connection.settimeout(DEADLINE)
    return sent
