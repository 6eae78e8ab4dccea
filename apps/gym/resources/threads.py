"""Run blocking work in its own thread, with a time limit."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_in_thread(work: Callable[[], Result], *, seconds: float | None = None) -> Result:
    """Return the result of `work`, or raise its error.

    Raises TimeoutError after `seconds`.

    A thread cannot be stopped: after a time-out it continues as a daemon, which does not delay the exit of the process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return  # timed out or cancelled
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except StopIteration as problem:
            # A future does not accept StopIteration.
            error = RuntimeError(f"StopIteration: {problem}")
        except BaseException as problem:
            error = problem
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="built-in", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await done
