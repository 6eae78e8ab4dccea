"""End every process of a run, also if `manage.py run` itself was killed.

Each process inherits a variable with the ID of its run. A watcher in a session of its own waits for the end of a pipe
that only the command holds, which closes even after SIGKILL. It then ends all processes with this variable. Linux only:
other systems have no /proc. This module imports nothing of GymWeb, so that the watcher stays small.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "GYMWEB_RUN_ID"
_POLL_SECONDS, _KILL_SECONDS = 0.05, 5.0


def list_processes(run_id: str) -> list[int]:
    """Return the processes of a run. Processes that removed the variable from their environment are not found."""
    wanted = f"{VARIABLE}={run_id}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end_processes(run_id: str, *, grace_seconds: float) -> list[int]:
    """Send SIGTERM, and SIGKILL after the grace. Return the processes that are left."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, _KILL_SECONDS)):
        ends, signalled = time.monotonic() + seconds, set[int]()
        while processes := list_processes(run_id):
            for process in processes:
                if process not in signalled:
                    with suppress(ProcessLookupError):
                        os.kill(process, number)
                    signalled.add(process)
            if time.monotonic() >= ends:
                break
            time.sleep(_POLL_SECONDS)
    return list_processes(run_id)


def start_watcher(run_id: str) -> subprocess.Popen[bytes]:
    """Start the watcher. It acts when its standard input is closed, and ignores Ctrl-C in the terminal."""
    command = [sys.executable, __file__, run_id]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_processes(sys.argv[1], grace_seconds=3.0)
