"""A process for verifiers that may hang.

It does one job at a time, until its socket is closed.

Started by apps.gym.verifiers.processes.process_pool as `python -m apps.gym.verifiers.processes.child DESCRIPTOR`.
"""

import json
import signal
import socket
from typing import Any

import msgspec

from apps.gym.errors import VerifierError
from apps.gym.redaction.shortening import cut
from apps.gym.verifiers.processes.framing import receive, send
from apps.gym.verifiers.processes.limited_child import MAX_MEMORY, run_limited
from apps.gym.verifiers.registry import VERIFIERS, read_verifier

_SLACK = 2.0


def serve(channel: socket.socket) -> None:
    send(channel, b"ready")
    while received := receive(channel):
        job = json.loads(received)
        if prepared := job.get("prepare"):
            VERIFIERS[prepared].prepare()
            send(channel, b"ready")
        else:
            send(channel, _encode(_answer(job)))


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    # The parent process stops this process at the time limit. The timer is for a lost parent.
    signal.setitimer(signal.ITIMER_REAL, job["seconds"] + _SLACK)
    try:
        return {"reward": read_verifier(job["verifier"]).verify(job["row"], job["response"])}
    except VerifierError as refused:
        return {"error": str(refused), "transient": refused.transient}
    except RecursionError:
        return {"error": "it was nested too deeply"}
    except MemoryError:
        return {"error": f"it needed more than {MAX_MEMORY // 1024**3} GiB of memory"}
    except Exception as bug:
        return {"error": cut(f"{type(bug).__name__}: {bug}", 2_000)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _encode(answer: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        # Half a surrogate pair, which a model may write and which cannot be stored.
        return json.dumps(msgspec.to_builtins(answer), ensure_ascii=False).encode(errors="replace")


if __name__ == "__main__":
    run_limited(serve)
