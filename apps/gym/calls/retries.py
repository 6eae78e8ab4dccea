"""Retry calls with exponential backoff and full jitter, within time limits and the server's Retry-After."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec

from apps.gym.calls.memory_budget import parked
from apps.gym.calls.time_limits import time_left

Result = TypeVar("Result")


class TryAgain(Exception):
    """Raised by a try that may succeed if repeated.

    `error` is raised to the caller if there is no further try. `after` is the wait in seconds that the server
    requested.
    """

    def __init__(self, error: Exception, *, after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after = after


class Pauses(msgspec.Struct, frozen=True, kw_only=True):
    """Backoff settings: random waits from 0 to a maximum that doubles from `first` to `longest` seconds.

    Jitter keeps rollouts that failed together from retrying together. If a server requests a wait of more than
    `patience` seconds, the call is not retried.
    """

    first: float = 0.5
    longest: float = 20.0
    patience: float = 120.0
    draw: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[object]] | None = None

    def length(self, tries: int, after: float | None) -> float:
        jitter: float = self.draw() * min(self.longest, self.first * 2.0 ** (tries - 1))
        return jitter if after is None else after + min(jitter, self.first)

    def before_retry(self, again: TryAgain, *, tries: int, max_tries: int) -> float:
        """Return the seconds to wait after `tries` tries. Raise the error of the last one if no further try may start.

        No retry starts after a time limit of the caller.
        """
        pause = self.length(tries, again.after)
        if tries >= max_tries or not _may_wait(pause, again, self):
            raise again.error from again.error.__cause__
        return pause

    async def wait(self, seconds: float) -> None:
        with parked(pausing=True):
            await (self.sleep or asyncio.sleep)(seconds)


_DEFAULT = Pauses()


async def call_with_retries(
    call: Callable[[], Awaitable[Result]],
    *,
    max_tries: int,
    pauses: Pauses = _DEFAULT,
) -> tuple[Result, int]:
    """Return the result of `call` and the number of retries. No retry starts after a time limit of the caller."""
    tries = 0
    while True:
        tries += 1
        try:
            return await call(), tries - 1
        except TryAgain as again:
            pause = pauses.before_retry(again, tries=tries, max_tries=max_tries)
        await pauses.wait(pause)


def _may_wait(pause: float, again: TryAgain, pauses: Pauses) -> bool:
    if again.after is not None and again.after > pauses.patience:
        return False
    left = time_left()
    return left is None or pause < left


def parse_retry_after(value: str | None, *, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds to wait from a number or an HTTP date (RFC 9110 §10.2.3), else None."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
