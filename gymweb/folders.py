"""Create the data folder, which only the user of the GymWeb processes can read."""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
PRIVATE_MASK = 0o077
"""The umask of server and worker processes."""
# Modes that `mkdir` and `open` create under common umasks. Any other mode was set deliberately.
_DEFAULT_MODES = {0o777, 0o775, 0o755, 0o666, 0o664, 0o644}
_OWN_NAMES = re.compile(
    r"(secret_key|installation_id)(\.[0-9a-f]+)?|(gymweb|test)\.sqlite3(-wal|-shm|-journal)?|tmp|uploads|exports|tracking|closed-loop|vllm-demo-.+"
)


def make_private(folder: Path, *, is_ours: bool) -> None:
    """Create the folder and its parents, private to this user.

    An existing folder is made private, with everything that GymWeb created in it, if it `is_ours` or contains no other
    files. Raise OSError.
    """
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    inside = list(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) else []
    ours = [path for path in inside if _OWN_NAMES.fullmatch(path.name)]
    # Other files may be meant to be readable.
    if is_ours or len(ours) == len(inside):
        _close(folder)
    for path in ours:
        _close(path)


def make_file_private(path: Path) -> None:
    """Create the file, private to its owner. Files that SQLite creates next to it get the same mode."""
    # Code that writes to it reports the error.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))


def who_else_reads(folder: Path) -> str:
    """Return who else can read the folder, or an empty string."""
    mode = folder.stat().st_mode
    groups = {"all users of this machine": 0o005, "its group": 0o050}
    return next((who for who, bits in groups.items() if mode & bits), "")


def read_secret_key(folder: Path) -> str:
    """Return the secret key. On first use, it is generated and stored in a private file."""
    return _read_generated(folder / "secret_key", secrets.token_urlsafe(48))


def read_installation_id(folder: Path) -> str:
    """Return the ID of the installation with this data folder. On first use, it is generated and stored there.

    Backups do not contain the file, so a restored copy on another machine gets its own ID.
    """
    return _read_generated(folder / "installation_id", secrets.token_hex(16))


def _read_generated(path: Path, value: str) -> str:
    if not path.exists():
        # If several processes start at once, the first link wins, so that all use the same complete value.
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        fresh.touch(mode=0o600)
        fresh.write_text(value)
        with suppress(FileExistsError):
            path.hardlink_to(fresh)
        fresh.unlink()
    return path.read_text().strip()


def _close(path: Path) -> None:
    # It may have been removed meanwhile, and some file systems have no modes.
    with suppress(OSError):
        found = path.lstat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) in _DEFAULT_MODES and not path.is_symlink():
            path.chmod(PRIVATE_FOLDER if path.is_dir() else PRIVATE_FILE)
