"""Use the packages of trackers in a separate process, with the Python of GYMWEB_TRACKING_PYTHON.

The process gets no setting of GymWeb, and its threads and memory end with it. At its time limit, it and its child
processes are killed.
"""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings

from apps.gym.redaction.shortening import cut
from apps.tracking.run_batches import TrackerFailed

PROGRAM = Path(__file__).parent / "writers" / "writer_process.py"
PACKAGES = {
    "wandb_writer": "wandb",
    "trackio_writer": "trackio",
    "tensorboard_writer": "tensorboard",
    "hub_writer": "huggingface-hub",
}
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
_FINAL = {400, 401, 403, 404}


def run_writer(module: str, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
    """Return the result of a module in `writers/`. Raise TrackerFailed.

    Secrets are passed through standard input, so that no list of processes shows them.
    """
    home = Path(settings.TRACKING_DIR) / "home"
    home.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(  # noqa: S603 - the operator names the Python
        [_python(), "-s", "-E", "-B", str(PROGRAM), module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**{name: value for name, value in os.environ.items() if name in _PASSED_ON}, "HOME": str(home)},
        start_new_session=True,
    ) as process:
        try:
            output, messages = process.communicate(orjson.dumps(request), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TrackerFailed(
                f"{PACKAGES[module]} did not finish within {seconds:g} s. {_retry_hint(request)}"
            ) from None
        finally:
            _end(process)
    try:
        answer = orjson.loads(output)
    except ValueError:
        last = (messages.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise TrackerFailed(
            f"{PACKAGES[module]} ended with an error: {_hide_secret(last, request)} {_retry_hint(request)}"
        ) from None
    return _read(module, answer, request)


def _read(module: str, answer: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    if "result" in answer:
        result: dict[str, Any] = answer["result"]
        return result
    if "missing" in answer:
        raise TrackerFailed(
            f"The module {answer['missing']} is not installed. On the servers of the workers, run: "
            f"{shlex.quote(_python())} -m pip install {PACKAGES[module]}",
            is_final=True,
        )
    message = _hide_secret(str(answer["error"]), request)
    if answer["is_final"]:
        # The writer's message names the remedy.
        raise TrackerFailed(message, is_final=True)
    if answer["status"] in _FINAL:
        hint = "Check the credential and the name of the project or repository. Then send again."
        raise TrackerFailed(f"{message} {hint}", is_final=True)
    raise TrackerFailed(f"{message} {_retry_hint(request)}")


def _python() -> str:
    return settings.TRACKING_PYTHON or sys.executable


def _retry_hint(request: dict[str, Any]) -> str:
    checked = "the URL, and the network of the workers" if request.get("address") else "the disk space of the workers"
    return f"GymWeb tries again. If it keeps failing, check {checked}."


def _hide_secret(message: str, request: dict[str, Any]) -> str:
    secret = request.get("secret")
    return cut(message.replace(secret, "…") if secret else message, 380)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its child processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
