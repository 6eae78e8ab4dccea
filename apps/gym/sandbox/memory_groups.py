"""The memory of executions: a control group for all of a process together, and in it one for each, which it joins
before it begins."""

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
"""Whoever writes 0 joins itself, and all that it starts is there from its beginning."""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
_TRIES = 20
_TRIAL = 64 * 1024**2
_numbers = count(1)


class Share:
    """The group of one execution."""

    def __init__(self, folder: Path, *, version: int, most: int) -> None:
        self.folder = folder
        folder.mkdir()
        # A single thread joins without a stop of all others in the machine; version 2 has whole processes alone.
        self._entrance = str(folder / ("tasks" if version == 1 else "cgroup.procs"))
        self._events = folder / ("memory.oom_control" if version == 1 else "memory.events")
        (_bound_1 if version == 1 else _bound_2)(folder, most)
        if version == 2:
            with contextlib.suppress(OSError):
                # The execution as a whole; version 1 ends the one process that holds most.
                (folder / "memory.oom.group").write_text("1")

    def joined(self, command: Sequence[str]) -> list[str]:
        """The same command, which runs in the group with all that it starts."""
        return ["/bin/sh", "-c", _JOIN, self._entrance, *command]

    def was_full(self) -> bool:
        """Whether a process in it was ended for want of memory."""
        with contextlib.suppress(OSError, ValueError):
            told = dict(line.split(maxsplit=1) for line in self._events.read_text().splitlines())
            return int(told.get("oom_kill", "0")) > 0
        return False


class MemoryGroup:
    """That of all together. Raises OSError where it cannot be made, or nobody can join."""

    def __init__(self, place: Place, *, most: int) -> None:
        self.version = place.version
        self.folder = place.folder / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
        # One that is there is left from a process that was killed, and had the same number.
        self.folder.mkdir(exist_ok=True)
        self._spent: deque[Path] = deque()
        self.remove = weakref.finalize(self, _remove, self.folder, self._spent, os.getpid())
        self._shares = count(1)
        try:
            if place.version == 2:
                (self.folder / "cgroup.subtree_control").write_text("+memory")
            with self.share(_TRIAL) as share:
                _try(share.joined(["true"]))
            (_bound_1 if place.version == 1 else _bound_2)(self.folder, most)
        except OSError:
            self.remove()
            raise

    @contextlib.contextmanager
    def share(self, most: int) -> Iterator[Share]:
        """One for an execution, gone with it. Raises OSError where it cannot be made."""
        folder = self.folder / f"{next(self._shares)}"
        try:
            yield Share(folder, version=self.version, most=most)
        finally:
            self._spent.append(folder)
            _clear(self._spent)

    def read_most_used(self) -> int:
        """The bytes that all held together at most; 0 where the kernel does not say."""
        file = self.folder / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")
        with contextlib.suppress(OSError, ValueError):
            return int(file.read_text())
        return 0


class TotalMemory:
    """The group of this process, made when it is first asked for. `most` 0 is none at all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._group: MemoryGroup | None = None
        self._made_by = 0
        self._without = "GYMWEB_SANDBOX_MEMORY_MB is 0" if not most else ""

    @contextlib.contextmanager
    def share(self, most: int) -> Iterator[Share | None]:
        """For one execution; None where there can be none."""
        with contextlib.ExitStack() as stack:
            yield self._enter(stack, most)

    def open(self) -> MemoryGroup | None:
        with self._lock:
            # A process that was forked has its own.
            if not self._without and (self._group is None or self._made_by != os.getpid()):
                self._make()
            return self._group

    def describe(self) -> str:
        group = self.open()
        if group is None:
            return f"their memory together is bounded by their number alone: {self._without}"
        return f"all that run at once have {self._most // 1024**2:,} MB of memory together (cgroup v{group.version})"

    def close(self) -> None:
        """Remove it. What still runs in it keeps it, until the next process comes by."""
        with self._lock:
            if self._group is not None and self._made_by == os.getpid():
                self._group.remove()
            self._group = None

    def _enter(self, stack: contextlib.ExitStack, most: int) -> Share | None:
        group = self.open()
        if group is None:
            return None
        try:
            return stack.enter_context(group.share(most))
        except OSError:
            # Somebody removed it while nothing ran, or took its rights.
            group = self._renew(group)
        try:
            return stack.enter_context(group.share(most)) if group else None
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
        logger.warning("the memory of all executions together is bounded by their number alone: %s", why)

    def _make(self) -> None:
        self._group = None
        try:
            place = find_place()
            _remove_stale(place.folder)
            self._group, self._made_by = MemoryGroup(place, most=self._most), os.getpid()
        except (NotDelegated, OSError) as problem:
            self._without = str(problem)
            # Usual in containers and units: the number of executions bounds it there.
            logger.info("the memory of all executions together is bounded by their number alone: %s", self._without)


def _bound_1(folder: Path, most: int) -> None:
    (folder / "memory.limit_in_bytes").write_text(str(most))
    try:
        # Memory and what of it is on disk, together: never below the other.
        (folder / "memory.memsw.limit_in_bytes").write_text(str(most))
    except OSError:
        # A kernel that does not count what is on disk: nothing of it goes there.
        with contextlib.suppress(OSError):
            (folder / "memory.swappiness").write_text("0")


def _bound_2(folder: Path, most: int) -> None:
    (folder / "memory.max").write_text(str(most))
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
    """Remove what nobody is in any more; the others' turn comes again. Called by many threads."""
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
            # Whom the execution left is killed, and not yet gone.
            spent.append(folder)


def _remove_stale(folder: Path) -> None:
    """Groups of processes that are no more. One with somebody in it is left by the kernel itself."""
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
