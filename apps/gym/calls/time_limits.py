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
"""Limits with at least this time left may end late, because those that end at about the same time share a timer."""
PARTS, LATEST_SECONDS = 100, 1.0
"""They are at most 1/PARTS of their time late, and at most LATEST_SECONDS."""

_innermost: ContextVar["TimeLimit | None"] = ContextVar("time_limit", default=None)


class _Group(set["TimeLimit"]):
    """Limits that end with the same timer."""

    timer: asyncio.TimerHandle
    key: tuple[float, float]


class _Groups(threading.local):
    """The groups of the loop of this thread, by the seconds between two timers and the number of the timer."""

    loop: asyncio.AbstractEventLoop | None = None
    by_timer: dict[tuple[float, float], _Group] = {}


_groups = _Groups()


class TimeLimit:
    """Like `asyncio.timeout(seconds)`: raise TimeoutError when the time is over. Can be suspended."""

    __slots__ = (
        "_cancels",
        "_ends_at",
        "_group",
        "_handle",
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
        self._handle: asyncio.TimerHandle | None = None
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
        if self._group is not None:
            self._leave_group(self._group)
        elif self._handle is not None:
            self._halt()
        # Other cancellations take precedence.
        if self._is_over and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ends_at = ends_at = loop.time() + self._left
        if self._left < EXACT_SECONDS:
            self._handle = loop.call_at(ends_at, self._end)
            return
        if _groups.loop is not loop:
            _groups.loop, _groups.by_timer = loop, {}
        seconds = self.seconds / PARTS
        seconds = min(seconds, LATEST_SECONDS)
        key = seconds, ends_at // seconds
        self._group = _groups.by_timer.get(key) or _open_group(key, loop)
        self._group.add(self)

    def _leave_group(self, group: _Group) -> None:
        self._group = None
        group.discard(self)
        if not group:
            group.timer.cancel()
            _groups.by_timer.pop(group.key, None)

    def _halt(self) -> None:
        if self._group is not None:
            self._leave_group(self._group)
        elif self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _end(self) -> None:
        self._handle = self._group = None
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


def _open_group(key: tuple[float, float], loop: asyncio.AbstractEventLoop) -> _Group:
    groups, (seconds, number) = _groups.by_timer, key
    group = groups[key] = _Group()
    group.key, group.timer = key, loop.call_at((number + 1) * seconds, _end_all, groups, group)
    return group


def _end_all(groups: dict[tuple[float, float], _Group], group: _Group) -> None:
    groups.pop(group.key, None)
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
