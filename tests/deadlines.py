"""Deadlines for tests. They detect hangs: each is far longer than a busy machine needs, and costs nothing when met."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType

DEADLINE = float(os.environ.get("TEST_DEADLINE", "240"))
"""Seconds to wait for something that takes a moment on a quiet machine."""
CPU_DEADLINE = 20.0
"""Processor seconds for a computation that takes less than one."""


def wait_until(
    condition: Callable[[], bool], seconds: float = DEADLINE, what: str | Callable[[], str] = "the condition"
) -> float:
    """Return the seconds until the condition held. Raise AssertionError, which names `what`, after the deadline."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        # Each look may open a connection to a database, and would take the CPU from what is waited for.
        time.sleep(min(0.25, 0.02 + waited / 20))
    return time.monotonic() - began


async def wait_until_async(condition: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Return once the condition holds, on a running loop. Raise TimeoutError after the deadline."""
    async with asyncio.timeout(DEADLINE):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.02)


@contextmanager
def cpu_deadline(seconds: float = CPU_DEADLINE) -> Iterator[None]:
    """Raise AssertionError in a computation that does not end. Only the CPU of this process counts, not the load."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not computed within {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
