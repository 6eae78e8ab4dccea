"""Name processes, so that another process of the same machine and container can tell that one has ended."""

import os
from pathlib import Path

_PROC = Path("/proc")


def name_process(pid: int | None = None) -> str:
    """Return a name that no other process ever has: of this process, or of another one that is alive.

    It is empty if the process has ended, and where /proc is missing.
    """
    pid = os.getpid() if pid is None else pid
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        # The name of a program may contain spaces and brackets.
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        # The number of a process means another process in another container.
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return "" if state in ("Z", "X") else f"{boot} {namespace} {pid} {fields[18]}"


def has_ended(name: str) -> bool:
    """Return True if the process certainly has ended. A process elsewhere may be alive."""
    here, there = name_process().split(), name.split()
    return len(there) == 4 and here[:2] == there[:2] and name_process(int(there[2])) != name
