"""Time limits whose clock stops while the code under them waits for flow control.

An endpoint that says "not now" must not use up the time of a call, an attempt or a rollout. Whoever waits for such an
endpoint does so in `stopped_clocks()`, which stops every limit that the waiting code runs under, also from child tasks.
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
    """Like `asyncio.timeout(seconds)`: raises TimeoutError at its end when the time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._outer: TimeLimit | None = None
        self._is_open = False
        self._stops = 0
        self._stopped_at = 0.0
        self._left = seconds
        self._waited = 0.0

    async def __aenter__(self) -> Self:
        self._outer = _innermost.get()
        _innermost.set(self)
        self._timeout = asyncio.timeout(self.seconds)
        await self._timeout.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not reset by a token: a generator that is closed at the end of its loop is closed in another context.
        _innermost.set(self._outer)
        self._is_open = False
        await self._timeout.__aexit__(kind, error, trace)

    @property
    def waited(self) -> float:
        """Seconds for which the clock has been stopped."""
        return self._waited + (time.perf_counter() - self._stopped_at if self._stops else 0.0)

    @property
    def left(self) -> float:
        """Seconds until the limit; may be negative."""
        when = self._timeout.when()
        return self._left if self._stops or when is None else when - asyncio.get_running_loop().time()

    def expired(self) -> bool:
        return self._timeout.expired()

    def stop(self) -> None:
        if not self._stops:
            self._left = self.left
            self._stopped_at = time.perf_counter()
            if self._can_move:
                self._timeout.reschedule(None)
        self._stops += 1

    def go_on(self) -> None:
        self._stops -= 1
        if not self._stops:
            self._waited += time.perf_counter() - self._stopped_at
            if self._can_move:
                self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)

    @property
    def _can_move(self) -> bool:
        return self._is_open and not self._timeout.expired()


def _open_limits() -> Iterator[TimeLimit]:
    limit = _innermost.get()
    while limit is not None:
        yield limit
        limit = limit._outer


@contextmanager
def stopped_clocks() -> Iterator[None]:
    """Stop the clocks of all time limits that this code runs under."""
    limits = list(_open_limits())
    for limit in limits:
        limit.stop()
    try:
        yield
    finally:
        for limit in limits:
            limit.go_on()


def time_left() -> float | None:
    """Seconds until the first of the limits that this code runs under; None without one."""
    return min((limit.left for limit in _open_limits()), default=None)


def working_time() -> float:
    """Seconds on a clock that stops with the outermost limit that this code runs under."""
    waited = 0.0
    for limit in _open_limits():
        waited = limit.waited
    return time.perf_counter() - waited
