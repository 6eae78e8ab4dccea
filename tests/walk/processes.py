"""Server processes of a walk: mock models and resource servers."""

import contextlib
import socket
import subprocess
import sys
import time

from tests.deadlines import DEADLINE


@contextlib.contextmanager
def process(*command):
    """A server process on a free port (put in place of PORT), ended by its pid with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, *(str(port) if part == "PORT" else str(part) for part in command)],
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
                break
            time.sleep(0.05)
        yield port
    finally:
        child.terminate()
        child.wait(timeout=DEADLINE)
