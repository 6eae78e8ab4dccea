"""Limit the memory of executions: one control group for all, and within it one for each execution."""

import contextlib
import logging
import os
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from apps.gym.sandbox.control_groups import NotDelegated, Place, find_place

logger = logging.getLogger(__name__)

_PREFIX = "gymweb-sandbox-"
_JOIN = 'echo 0 > "$0" && exec "$@"'
"""A process that writes 0 joins the group itself, with all its later children."""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
_TRIES = 20
_TRIAL = 64 * 1024**2
_numbers = count(1)


class Share:
    """The control group of one execution."""

    def __init__(self, folder: Path, *, version: int, max_bytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        # In version 1, moving a single thread avoids stopping all others on the machine. Version 2 only moves whole
        # processes.
        self._entrance = str(folder / ("tasks" if version == 1 else "cgroup.procs"))
        self._events = folder / ("memory.oom_control" if version == 1 else "memory.events")
        (_bound_1 if version == 1 else _bound_2)(folder, max_bytes)
        if version == 2:
            with contextlib.suppress(OSError):
                # Kill the whole execution. Version 1 kills only the process with the most memory.
                (folder / "memory.oom.group").write_text("1")

    def joined(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs the given one in the group, with all its children."""
        return ["/bin/sh", "-c", _JOIN, self._entrance, *command]

    def was_full(self) -> bool:
        """Return True if a process in it was killed for lack of memory."""
        with contextlib.suppress(OSError, ValueError):
            told = dict(line.split(maxsplit=1) for line in self._events.read_text().splitlines())
            return int(told.get("oom_kill", "0")) > 0
        return False


class MemoryGroup:
    """The parent group of all executions. Raises OSError if it cannot be created or joined."""

    def __init__(self, place: Place, *, max_bytes: int) -> None:
        self.version = place.version
        self.folder = place.folder / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        # An existing group is left over from a killed process with the same id.
        self.folder.mkdir(exist_ok=True)
        self._spent: deque[Path] = deque()
        self.remove = weakref.finalize(self, _remove, self.folder, self._spent, os.getpid())
        self._shares = count(1)
        try:
            if place.version == 2:
                (self.folder / "cgroup.subtree_control").write_text("+memory")
            with self.share(_TRIAL) as share:
                _try(share.joined(["true"]))
            (_bound_1 if place.version == 1 else _bound_2)(self.folder, max_bytes)
        except OSError:
            self.remove()
            raise

    @contextlib.contextmanager
    def share(self, max_bytes: int) -> Iterator[Share]:
        """Yield a group for one execution, removed afterwards. Raises OSError if it cannot be created."""
        folder = self.folder / f"{next(self._shares)}"
        try:
            yield Share(folder, version=self.version, max_bytes=max_bytes)
        finally:
            self._spent.append(folder)
            _clear(self._spent)


class TotalMemory:
    """The group of this process, created on first use. With `max_bytes` 0 there is none."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._group: MemoryGroup | None = None
        self._made_by = 0
        self._without = "GYMWEB_SANDBOX_MEMORY_MB is 0" if not max_bytes else ""

    @contextlib.contextmanager
    def share(self, max_bytes: int) -> Iterator[Share | None]:
        """Yield a share for one execution, or None if there can be none."""
        with contextlib.ExitStack() as stack:
            yield self._enter(stack, max_bytes)

    def open(self) -> MemoryGroup | None:
        with self._lock:
            # A forked process needs its own group.
            if not self._without and (self._group is None or self._made_by != os.getpid()):
                self._make()
            return self._group

    def describe(self) -> str:
        group = self.open()
        if group is None:
            return f"total memory is limited only by the number of executions: {self._without}"
        return f"memory limit of all programs together: {self._max_bytes // 1024**2:,} MB (cgroup v{group.version})"

    def close(self) -> None:
        """Remove the group. Running executions keep it until a later process removes it."""
        with self._lock:
            if self._group is not None and self._made_by == os.getpid():
                self._group.remove()
            self._group = None

    def _enter(self, stack: contextlib.ExitStack, max_bytes: int) -> Share | None:
        group = self.open()
        if group is None:
            return None
        try:
            return stack.enter_context(group.share(max_bytes))
        except OSError:
            # It was removed while idle, or its permissions changed.
            group = self._renew(group)
        try:
            return stack.enter_context(group.share(max_bytes)) if group else None
        except OSError as problem:
            self._give_up(str(problem))
            return None

    def _renew(self, lost: MemoryGroup) -> MemoryGroup | None:
        with self._lock:
            if self._group is lost:
                self._make()
            return self._group

    def _give_up(self, why: str) -> None:
        with self._lock:
            self._group, self._without = None, why
        logger.warning("total memory of executions is limited only by their number: %s", why)

    def _make(self) -> None:
        self._group = None
        try:
            place = find_place()
            _remove_stale(place.folder)
            self._group, self._made_by = MemoryGroup(place, max_bytes=self._max_bytes), os.getpid()
        except (NotDelegated, OSError) as problem:
            self._without = str(problem)
            # Usual in containers and units. The number of executions limits memory there.
            logger.info("total memory of executions is limited only by their number: %s", self._without)


def _bound_1(folder: Path, max_bytes: int) -> None:
    (folder / "memory.limit_in_bytes").write_text(str(max_bytes))
    try:
        # Memory and swap together, so never less than memory.
        (folder / "memory.memsw.limit_in_bytes").write_text(str(max_bytes))
    except OSError:
        # This kernel does not account for swap, so swap is turned off.
        with contextlib.suppress(OSError):
            (folder / "memory.swappiness").write_text("0")


def _bound_2(folder: Path, max_bytes: int) -> None:
    (folder / "memory.max").write_text(str(max_bytes))
    with contextlib.suppress(OSError):
        (folder / "memory.swap.max").write_text("0")


def _try(command: Sequence[str]) -> None:
    try:
        tried = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, timeout=30, check=False)  # noqa: S603
    except subprocess.SubprocessError as problem:
        raise OSError(str(problem)) from None
    if tried.returncode:
        raise OSError(f"no process can join a group there: {tried.stderr.decode(errors='replace').strip()[-200:]}")


def _clear(spent: deque[Path]) -> None:
    """Remove empty groups. Thread-safe."""
    for _ in range(len(spent)):
        try:
            folder = spent.popleft()
        except IndexError:
            return
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            # Remaining processes are killed but may not have exited yet.
            spent.append(folder)


def _remove_stale(folder: Path) -> None:
    """Remove groups of finished processes. The kernel refuses to remove non-empty ones."""
    for group in folder.glob(f"{_PREFIX}*"):
        number = group.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdecimal() and not Path("/proc", number).exists():
            with contextlib.suppress(OSError):
                for share in (below for below in group.iterdir() if below.is_dir()):
                    share.rmdir()
                group.rmdir()


def _remove(folder: Path, spent: deque[Path], made_by: int) -> None:
    if made_by != os.getpid():
        return
    for _ in range(_TRIES):
        _clear(spent)
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
