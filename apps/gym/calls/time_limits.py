"""Time limits that are suspended while a call waits for flow control.

A throttling endpoint must not use up the time limit of a call, attempt or rollout. Code that waits for one enters
`stopped_clocks()`, which suspends all enclosing time limits, also from child tasks.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

_innermost: ContextVar["TimeLimit | None"] = ContextVar("time_limit", default=None)


class TimeLimit:
    """Like `asyncio.timeout(seconds)`: raise TimeoutError when the time is over. Can be suspended."""

    was_stopped = False
    """True if the clock has been stopped at least once; then `waited` is above 0."""
    # Defaults of the class, because there is a limit for every call and most are never stopped.
    _handle: asyncio.TimerHandle | None = None
    _is_over = False
    _stops = 0
    _stopped_at = _waited = 0.0

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancels = task, task.cancelling()
        self._outer: TimeLimit | None = _innermost.get()
        _innermost.set(self)
        self._start(loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not reset with a token: the loop may close a generator in another context.
        _innermost.set(self._outer)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        # Other cancellations take precedence.
        if self._is_over and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ends_at = loop.time() + self._left
        self._handle = loop.call_at(self._ends_at, self._end)

    def _end(self) -> None:
        self._handle = None
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
            if self._handle is not None:
                self._handle.cancel()
        self._stops += 1

    def resume(self) -> None:
        self._stops -= 1
        if not self._stops:
            self._waited += time.perf_counter() - self._stopped_at
            if self._handle is not None:
                self._start(asyncio.get_running_loop())


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
