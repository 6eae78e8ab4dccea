"""CPU use of processes and their children, from Linux."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(*pids: int) -> float:
    """Return user and system time of these processes and all their children, including ended ones."""
    # utime, stime, and the same of ended children.
    ticks = (int(one) for pid in pids for own in [*_children(pid), pid] for one in _stat(own)[11:15])
    return sum(ticks) / _TICKS


def processes(*pids: int) -> list[int]:
    """Return these processes and their current children."""
    return [one for pid in pids for one in [pid, *_children(pid)]]


def run_milliseconds(pids: Sequence[int]) -> float:
    """Return the CPU time of these processes, exact to the microsecond. Processes that have ended are not counted."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            # The clock id of another process, as in clock_getcpuclockid(3).
            total += time.clock_gettime(~pid << 3 | 2)
    return total * 1000


def _children(parent: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _stat(pid)[1:2] == [str(parent)]]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, starting with the state; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
