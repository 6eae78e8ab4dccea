"""The mock model (scripts/mock_model.py), or another model among the scripts, in a process of its own."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.servers import free_port

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def mock_model(*arguments: object, script: str = "mock_model.py") -> Iterator[int]:
    """Yield the port of a mock model process, which ends with the block."""
    port = free_port()
    command = [sys.executable, str(ROOT / "scripts" / script), "--port", str(port), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _await(port)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


def _await(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            return
        time.sleep(0.05)
    raise SystemExit(f"the mock model does not answer on port {port}")
