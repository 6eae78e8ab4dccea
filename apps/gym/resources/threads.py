"""Run what may take its time in a thread of its own, for so long and no longer."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_in_thread(work: Callable[[], Result], *, seconds: float | None = None) -> Result:
    """The result of `work`, or what it raised; TimeoutError after so many seconds.

    A thread cannot be stopped: one that runs on is left behind as a daemon, which does not hold up the process's end.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return  # too late, or given up
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
            # No future takes one.
            error = RuntimeError(f"StopIteration: {problem}")
        except BaseException as problem:
            error = problem
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="built-in", daemon=True).start()
    async with asyncio.timeout(seconds):
        return await done
