"""NeMo Gym, unmodified, in an environment of its own that `make test-nemo` builds. It needs Python 3.13."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.build_environment import environment_folder, is_complete
from scripts.servers import free_port
from tests.deadlines import DEADLINE
from tests.walk.processes import await_port

FOLDER = environment_folder("nemo")
PYTHON = str(FOLDER / "bin" / "python")
PACKAGES = next(FOLDER.glob("lib/python*/site-packages"), FOLDER)
"""The folder with `resources_servers` and `responses_api_agents`."""

needs_nemo_gym = [
    pytest.mark.skipif(not is_complete(FOLDER), reason="NeMo Gym is not installed on this machine: make test-nemo"),
    pytest.mark.slow,
]


@contextmanager
def running(name: str) -> Iterator[str]:
    """Yield the URL of one of its resource servers."""
    port = free_port()
    command = [PYTHON, Path(__file__).with_name("real_server.py"), PACKAGES, name, str(port)]
    with child(command, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def child(command: list[object], port: int) -> Iterator[None]:
    """Run a server, which listens on the port once it is ready, until the block ends."""
    words = [str(word) for word in command]
    started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_port(started, port)
        yield
    finally:
        started.terminate()
        started.wait(timeout=DEADLINE)
