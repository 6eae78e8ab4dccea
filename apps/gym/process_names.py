"""Name processes, so that another process that shares a folder can tell that one has ended."""

import fcntl
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

_REMOVED_AFTER = 30 * 86_400  # seconds


@cache
def name_process(folder: Path) -> str:
    """Return a name that no other process ever has. It is empty if the folder cannot be written.

    As long as the process lives, it locks a file with this name, which all containers with this folder see.
    """
    name = uuid4().hex
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fcntl.flock(os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    except OSError:
        return ""
    with suppress(OSError):
        for other in folder.iterdir():
            if other.stat().st_mtime < time.time() - _REMOVED_AFTER and has_ended(folder, other.name):
                other.unlink()
    return name


def has_ended(folder: Path, name: str) -> bool:
    """Return True if the process certainly has ended. A process without a file may be alive elsewhere."""
    try:
        with (folder / name).open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
