"""The folder of everything that is written: nobody but the user whose processes write there can read it."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
PRIVATE_MASK = 0o077
"""The umask of processes that serve or work."""
# What `mkdir` and `open` leave under the usual masks. Any other mode was chosen by a person.
_UNCHOSEN = {0o777, 0o775, 0o755, 0o666, 0o664, 0o644}
_OURS = re.compile(
    r"secret_key(\.[0-9a-f]+)?|(gymweb|test)\.sqlite3(-wal|-shm|-journal)?|tmp|uploads|exports|closed-loop|vllm-demo-.+"
)


def make_private(folder: Path, *, is_ours: bool) -> None:
    """Make the folder, and its parents as the umask says. What is open of it is closed: a folder that is there where it
    `is_ours` or holds nothing else, and what GymWeb made in it. Raises OSError."""
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    inside = list(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) else []
    ours = [path for path in inside if _OURS.fullmatch(path.name)]
    # Others' things in it may be meant to be read.
    if is_ours or len(ours) == len(inside):
        _close(folder)
    for path in ours:
        _close(path)


def make_file_private(path: Path) -> None:
    """For its owner alone where it is new. What SQLite writes beside its file takes that one's mode."""
    # What cannot be made will be told of by who wants to write there.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))


def who_else_reads(folder: Path) -> str:
    """Whom besides its owner the folder's mode lets in, or nothing."""
    mode = folder.stat().st_mode
    groups = {"everybody on this machine": 0o005, "its group": 0o050}
    return next((who for who, bits in groups.items() if mode & bits), "")


def _close(path: Path) -> None:
    # Another process may have removed it meanwhile, and some file systems know no modes.
    with suppress(OSError):
        found = path.lstat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) in _UNCHOSEN and not path.is_symlink():
            path.chmod(PRIVATE_FOLDER if path.is_dir() else PRIVATE_FILE)
