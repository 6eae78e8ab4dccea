"""Run blocking work in its own thread, with a time limit."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def run_in_thread(work: Callable[[], Result], *, seconds: float | None = None) -> Result:
    """Return the result of `work`, or raise its error.

    Raises TimeoutError after `seconds`.

    A thread cannot be stopped: after a time-out it continues as a daemon, which does not delay the exit of the process.
    """
    done: Future[Result] = Future()
    # From here on, a time-out or cancellation does not reach the thread.
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except StopIteration as problem:
            # asyncio does not accept StopIteration.
            done.set_exception(RuntimeError(f"StopIteration: {problem}"))
        except BaseException as problem:
            done.set_exception(problem)

    threading.Thread(target=run, name="built-in", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(done)
