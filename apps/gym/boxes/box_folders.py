"""The folders of boxes on disk. An agent controls their content, so no link in them is ever followed."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path, PurePosixPath

_PREFIX = "gymweb-boxes-"
_LOCK = ".lock"
_TRIES = 5
_SHARED = "/tmp"  # noqa: S108 - the folders in it are private


class BoxFolders:
    """The folder of one process for its boxes. A killed process leaves its folder to the next one, which removes it."""

    def __init__(self, owner: int | None = None) -> None:
        """Make the folder. `owner` is the user of the boxes, if that is not the user of this process."""
        self._owner = owner
        # The folder of this process's temporary files may be private.
        place = Path(tempfile.gettempdir() if owner is None else _SHARED)
        _remove_stale(place)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock = _lock(self.path / _LOCK)
        # Other users may pass through, but not list it.
        self.path.chmod(0o700 if owner is None else 0o711)

    def make(self, *parts: str) -> Path:
        """Return a new folder with these subfolders, for the owner only."""
        folder = Path(tempfile.mkdtemp(dir=self.path))
        for made in (folder, *(folder / part for part in parts)):
            made.mkdir(mode=0o700, exist_ok=True)
            self.give(made)
        return folder

    def give(self, path: Path) -> None:
        """Make the user of the boxes the owner of a file."""
        if self._owner is not None:
            os.chown(path, self._owner, self._owner, follow_symlinks=False)

    def close(self) -> None:
        remove_folder(self.path)
        os.close(self._lock)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_stale(place: Path) -> None:
    """Remove folders of killed processes: nothing holds their lock."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and (folder / _LOCK).exists():
                descriptor = _lock(folder / _LOCK)
                remove_folder(folder)
                os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder, even if parts are unreadable or a killed process still writes."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        for place, names, _files in os.walk(folder):
            for name in names:
                inner = Path(place, name)
                if not inner.is_symlink():
                    with contextlib.suppress(OSError):
                        inner.chmod(0o700)


def measure_folder(folder: Path) -> int:
    """Return the bytes on disk of all files in a folder."""
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - many files
    return total


def read_file(folder: Path, path: str, limit: int) -> bytes | None:
    """Return the start of a regular file in a folder. No part of its path may be a link."""
    *above, name = PurePosixPath(path).parts
    if name == ".." or ".." in above or path.startswith("/"):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = [os.open(folder, flags | os.O_DIRECTORY)]
    try:
        for part in above:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        # Without O_NONBLOCK, a named pipe would block.
        opened.append(os.open(name, flags | os.O_NONBLOCK, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            return None
        with os.fdopen(opened.pop(), "rb") as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
