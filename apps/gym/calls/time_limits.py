"""Time limits that are suspended while a call waits for flow control.

A throttling endpoint must not use up the time limit of a call, attempt or rollout. Code that waits for one enters
`stopped_clocks()`, which suspends all enclosing time limits, also from child tasks.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

EXACT_SECONDS = 8.0
"""A limit ends exactly on time if fewer seconds than these are left. Other limits share timers, and may end late."""
PARTS, LATEST_SECONDS = 100, 1.0
"""They end at most 1/PARTS of their time late, and at most LATEST_SECONDS."""

_innermost: ContextVar["TimeLimit | None"] = ContextVar("time_limit", default=None)


class _Group(set["TimeLimit"]):
    """Limits that end with the same timer. `key` is its key in `_Groups.shared`, or None for an exact timer."""

    timer: asyncio.TimerHandle
    key: tuple[float, float] | None = None


class _Groups(threading.local):
    """The shared groups of the loop of this thread, by the seconds between two timers and the number of the timer."""

    loop: asyncio.AbstractEventLoop | None = None
    shared: dict[tuple[float, float], _Group]

    def of(self, loop: asyncio.AbstractEventLoop) -> dict[tuple[float, float], _Group]:
        if self.loop is not loop:
            self.loop, self.shared = loop, {}
        return self.shared


_groups = _Groups()


class TimeLimit:
    """Like `asyncio.timeout(seconds)`: raise TimeoutError when the time is over. Can be suspended."""

    __slots__ = (
        "_cancels",
        "_ends_at",
        "_group",
        "_is_open",
        "_is_over",
        "_left",
        "_outer",
        "_stopped_at",
        "_stops",
        "_task",
        "_waited",
        "seconds",
        "was_stopped",
    )

    was_stopped: bool
    """True if the clock has been stopped at least once; then `waited` is above 0."""

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds
        self.was_stopped = self._is_open = self._is_over = False
        self._stops = 0
        self._stopped_at = self._waited = 0.0
        self._group: _Group | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancels = task, task.cancelling()
        self._outer: TimeLimit | None = _innermost.get()
        _innermost.set(self)
        self._is_open = True
        self._start(loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not reset with a token: the loop may close a generator in another context.
        _innermost.set(self._outer)
        self._is_open = False
        self._halt()
        # Other cancellations take precedence.
        if self._is_over and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ends_at = loop.time() + self._left
        if self._left < EXACT_SECONDS:
            self._group = _open_group(self._ends_at, loop)
        else:
            self._group = _shared_group(self._ends_at, min(self.seconds / PARTS, LATEST_SECONDS), loop)
        self._group.add(self)

    def _halt(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        group.discard(self)
        if not group:
            group.timer.cancel()
            if group.key is not None:
                _groups.shared.pop(group.key, None)

    def _end(self) -> None:
        self._group = None
        self._is_open, self._is_over = False, True
        self._task.cancel()

    @property
    def waited(self) -> float:
        """Return the total seconds for which the clock was stopped."""
        return self._waited + (time.perf_counter() - self._stopped_at if self._stops else 0.0)

    @property
    def left(self) -> float:
        """Return the seconds until the limit, which may be negative."""
        return self._left if self._stops else self._ends_at - asyncio.get_running_loop().time()

    def expired(self) -> bool:
        return self._is_over

    def stop(self) -> None:
        if not self._stops:
            self.was_stopped = True
            self._left = self.left
            self._stopped_at = time.perf_counter()
            self._halt()
        self._stops += 1

    def resume(self) -> None:
        self._stops -= 1
        if not self._stops:
            self._waited += time.perf_counter() - self._stopped_at
            if self._is_open:
                self._start(asyncio.get_running_loop())


def _open_group(ends_at: float, loop: asyncio.AbstractEventLoop) -> _Group:
    group = _Group()
    group.timer = loop.call_at(ends_at, _end_all, group)
    return group


def _shared_group(ends_at: float, apart: float, loop: asyncio.AbstractEventLoop) -> _Group:
    """Return the group of the next timer after `ends_at`, with timers `apart` seconds apart."""
    key = apart, ends_at // apart
    shared = _groups.of(loop)
    group = shared.get(key)
    if group is None:
        group = shared[key] = _open_group((key[1] + 1) * apart, loop)
        group.key = key
    return group


def _end_all(group: _Group) -> None:
    if group.key is not None:
        _groups.shared.pop(group.key, None)
    for limit in group:
        limit._end()


def _open_limits() -> Iterator[TimeLimit]:
    limit = _innermost.get()
    while limit is not None:
        yield limit
        limit = limit._outer


@contextmanager
def stopped_clocks() -> Iterator[None]:
    """Suspend all enclosing time limits within the block."""
    limits = list(_open_limits())
    for limit in limits:
        limit.stop()
    try:
        yield
    finally:
        for limit in limits:
            limit.resume()


def time_left() -> float | None:
    """Return the seconds until the first enclosing time limit, or None without one."""
    return min((limit.left for limit in _open_limits()), default=None)


def working_time() -> float:
    """Return a clock in seconds that stops together with the outermost enclosing time limit."""
    waited = 0.0
    for limit in _open_limits():
        waited = limit.waited
    return time.perf_counter() - waited
