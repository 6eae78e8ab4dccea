"""Time limits that are suspended while a call waits for flow control.

A throttling endpoint must not use up the time limit of a call, attempt or rollout. Code that waits for one enters
`stopped_clocks()`, which suspends all enclosing time limits, also from child tasks.
"""

import asyncio
import heapq
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import TracebackType
from typing import Self

_innermost: ContextVar["TimeLimit | None"] = ContextVar("time_limit", default=None)


_TIMER_TOLERANCE = 0.001
"""Seconds by which a timer of the event loop may be early, because uvloop rounds to milliseconds."""
_UNUSED_ENTRIES = 256
"""Number of unused entries that are kept in any case."""


class _Alarm:
    """Ends the time limits of one event loop.

    It sets one timer, for the first of them. Thousands of limits run at the same time, and a timer for each would take
    700 bytes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ends: list[tuple[float, int, TimeLimit]] = []  # a heap, with unused entries of limits that were left
        self._number = 0
        self._unused = 0
        self._timer: asyncio.Handle | None = None
        self._rings_at = math.inf
        self._context = Context()  # a timer keeps its context

    def add(self, limit: "TimeLimit", ends_at: float) -> int:
        """Return the number of the entry. When it is due, end the limit if this is still the number of its entry."""
        self._number = number = self._number + 1
        heapq.heappush(self._ends, (ends_at, number, limit))
        if ends_at < self._rings_at:
            self._set_timer()
        return number

    def count_unused(self) -> None:
        """Count an entry whose limit no longer has its number. Remove such entries when they are a quarter of all."""
        self._unused += 1
        if 4 * self._unused > len(self._ends) + 4 * _UNUSED_ENTRIES:
            self._ends = [entry for entry in self._ends if entry[2].entry == entry[1]]
            heapq.heapify(self._ends)
            self._unused = 0

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._ends[0][0]
        self._timer = self.loop.call_at(self._rings_at, self._ring, context=self._context)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now = self.loop.time() + _TIMER_TOLERANCE
        while self._ends and (self._ends[0][0] <= now or self._ends[0][2].entry != self._ends[0][1]):
            _, number, limit = heapq.heappop(self._ends)
            if limit.entry == number:
                limit.end()
            else:
                self._unused -= 1
        if self._ends:
            self._set_timer()


class _Thread(threading.local):
    """The alarm of the event loop that last ran a time limit in this thread."""

    alarm: _Alarm | None = None

    def get_alarm(self) -> _Alarm:
        loop = asyncio.get_running_loop()
        if self.alarm is None or self.alarm.loop is not loop:
            self.alarm = _Alarm(loop)
        return self.alarm


_thread = _Thread()


class TimeLimit:
    """Like `asyncio.timeout(seconds)`: raise TimeoutError when the time is over. Can be suspended."""

    __slots__ = (
        "_alarm",
        "_cancels",
        "_ends_at",
        "_is_open",
        "_is_over",
        "_left",
        "_outer",
        "_stopped_at",
        "_stops",
        "_task",
        "_waited",
        "entry",
        "seconds",
        "was_stopped",
    )

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds
        self.entry = 0
        """Number of its entry in the alarm, 0 while the limit is suspended, over or left."""
        self.was_stopped = self._is_open = self._is_over = False
        """`was_stopped`: the clock has been stopped at least once; then `waited` is above 0."""
        self._stops = 0
        self._stopped_at = self._waited = 0.0

    def __enter__(self) -> Self:
        self._alarm = _thread.get_alarm()
        task = asyncio.current_task(self._alarm.loop)
        assert task is not None
        self._task, self._cancels = task, task.cancelling()
        self._outer: TimeLimit | None = _innermost.get()
        _innermost.set(self)
        self._is_open = True
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not reset with a token: the loop may close a generator in another context.
        _innermost.set(self._outer)
        self._is_open = False
        self._leave_alarm()
        task = self._task
        del self._task  # an unused entry of the alarm must not keep the task with its result
        # Other cancellations take precedence.
        if self._is_over and task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _start(self) -> None:
        self._ends_at = self._alarm.loop.time() + self._left
        self.entry = self._alarm.add(self, self._ends_at)

    def _leave_alarm(self) -> None:
        if self.entry:
            self.entry = 0
            self._alarm.count_unused()

    def end(self) -> None:
        self.entry = 0
        self._is_open = False
        self._is_over = True
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
            self._leave_alarm()
        self._stops += 1

    def resume(self) -> None:
        self._stops -= 1
        if not self._stops:
            self._waited += time.perf_counter() - self._stopped_at
            if self._is_open:
                self._start()


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
