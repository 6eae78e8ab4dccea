"""A temporary local GymWeb server with an empty database and an embedded worker, deleted at the end."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymweb_client.cli.connection import Connection
from gymweb_client.errors import GymWebError

_SETUP = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("create_user", "gymweb", role="admin", link=True)
call_command("create_api_key", "gymweb", name="gymweb collect", scopes=["admin"])
"""
_POLL_SECONDS, _STOP_SECONDS = 0.1, 10


class NoServerHere(GymWebError):
    """Raised if the server is not installed or did not start."""


@contextmanager
def local_server(*, outbound_allow: str) -> Iterator[Connection]:
    """Run a server on a free loopback port.

    At the end, also on Ctrl-C and SIGTERM, it is stopped and its data deleted.
    """
    python, folder = find_server()
    handlers = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with tempfile.TemporaryDirectory(prefix="gymweb-") as var:
            environment = _environment(folder, var, outbound_allow)
            started: dict[str, Any] = {"cwd": folder, "env": environment, "start_new_session": True}
            setup = subprocess.run([python, "-c", _SETUP], **started, capture_output=True, text=True, check=False)  # noqa: S603
            if setup.returncode:
                raise NoServerHere(f"The temporary server could not be set up:\n{setup.stderr.strip()[-2000:]}")
            log = Path(var) / "serve.log"
            with log.open("wb") as file:
                process = subprocess.Popen(  # noqa: S603
                    [python, "manage.py", "serve", "--port", "0"], **started, stdout=file, stderr=file
                )
            try:
                yield Connection(_await_address(process, log), setup.stdout.split()[-1])
            finally:
                _stop(process)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def find_server() -> tuple[str, Path]:
    """Return Python and folder of the server: the installed package `gymweb`, or the checkout with this client."""
    found = importlib.util.find_spec("gymweb")
    installed = [Path(found.origin).parents[1]] if found and found.origin else []
    for folder in (*installed, Path(__file__).resolve().parents[4]):
        if (folder / "manage.py").is_file() and (folder / "gymweb" / "settings.py").is_file():
            own = folder / ".venv" / "bin" / "python"
            return (sys.executable if importlib.util.find_spec("django") or not own.exists() else str(own)), folder
    raise NoServerHere(
        "The GymWeb server is not installed beside this command, so it cannot start one. Sign in to a "
        "server with gymweb login, or install from a checkout: make serve, then .venv/bin/gymweb."
    )


def _environment(folder: Path, var: str, outbound_allow: str) -> dict[str, str]:
    """Return the environment variables of the server, without database, key and proxy of another installation."""
    given = {name: value for name, value in os.environ.items() if name not in {"GYMWEB_TOKEN", "GYMWEB_KEY"}}
    # An empty value means the default, and overrides `.env` of the checkout.
    unset = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "ALLOWED_HOSTS", "SECURE", "TRUSTED_PROXIES", "DEBUG")
    given |= {f"GYMWEB_{name}": "" for name in unset}
    allowed = ",".join(filter(None, [given.get("GYMWEB_OUTBOUND_ALLOW", ""), outbound_allow]))
    return given | {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), given.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
        "GYMWEB_VAR": var,
        "GYMWEB_OUTBOUND_ALLOW": allowed,
        "GYMWEB_WORKER_GRACE_SECONDS": "1",
    }


def _await_address(process: subprocess.Popen[bytes], log: Path) -> str:
    while process.poll() is None:
        if found := re.search(r"GymWeb is at (http://127\.0\.0\.1:\d+)/", log.read_text(errors="replace")):
            return found[1]
        time.sleep(_POLL_SECONDS)
    raise NoServerHere(f"The temporary server did not start:\n{log.read_text(errors='replace').strip()[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
