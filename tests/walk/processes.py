"""Server processes of a walk: mock models and resource servers."""

import contextlib
import socket
import subprocess
import sys

from scripts.servers import free_port
from tests.deadlines import DEADLINE, wait_until


def await_port(child, port):
    """Wait until a server that was just started takes connections. Raise AssertionError if it ends."""

    def takes_connections():
        assert child.poll() is None, f"the server ended with status {child.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    wait_until(takes_connections, what=f"port {port} takes connections")


@contextlib.contextmanager
def process(*command):
    """A server process on a free port (put in place of PORT), ended by its pid with the block."""
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, *(str(port) if part == "PORT" else str(part) for part in command)],
        stdout=subprocess.DEVNULL,
    )
    try:
        await_port(child, port)
        yield port
    finally:
        child.terminate()
        child.wait(timeout=DEADLINE)
