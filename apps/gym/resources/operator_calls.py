"""Call what an operator wrote: async methods on the loop, others in a thread, each for so long. Nothing that such code
raises gets further than its own attempt, SystemExit included, which a loop would end its process with."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakSet

from apps.gym.resources.threads import run_in_thread
from apps.gym.written.operator_errors import Stopped, tell


class OutOfTime(Exception):
    """The limit of the call ran out; not a TimeoutError of the code's own."""


_performing: ContextVar[bool] = ContextVar("performing", default=False)
_guarded: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


async def perform(method: Callable[..., Any], *given: Any, seconds: float) -> Any:
    """What the method gives. Raises OutOfTime, and else nothing but an Exception; CancelledError only where this very
    attempt is cancelled, whatever the method makes of that."""
    task = asyncio.current_task()
    assert task is not None
    _guard_tasks(asyncio.get_running_loop())
    cancelled = task.cancelling()
    limit = asyncio.timeout(seconds)
    _performing.set(True)
    try:
        async with limit:
            result = await _start(method, given)
    except BaseException as problem:
        if asyncio.current_task() is not task or task.cancelling() > cancelled:
            # Somebody closes or cancels this attempt.
            raise asyncio.CancelledError if isinstance(problem, Exception) else problem from None
        if isinstance(problem, TimeoutError) and limit.expired():
            raise OutOfTime from None
        if isinstance(problem, Exception):
            raise
        raise Stopped(tell(problem)) from problem
    finally:
        # No token: an attempt that is closed at its loop's end is closed in another context.
        _performing.set(False)
    return result


async def _start(method: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(*given)
    result = await run_in_thread(partial(_call, method, given))
    return await result if inspect.isawaitable(result) else result


def _call(method: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        return method(*given)
    except Exception:
        raise
    except BaseException as problem:
        raise Stopped(tell(problem)) from problem


def _guard_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """A loop ends with a SystemExit of any of its tasks: those that the code starts itself must not raise one."""
    if loop in _guarded:
        return
    _guarded.add(loop)
    before = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> Any:
        own = _performing.get() and inspect.iscoroutine(work)
        begun = _tame(work) if own else work
        task = before(loop, begun, **named) if before else asyncio.Task(begun, loop=loop, **named)
        if own:
            # One that is cancelled before it began is never awaited.
            task.add_done_callback(lambda _: work.close())
        return task

    loop.set_task_factory(make)


async def _tame(work: Coroutine[Any, Any, Any]) -> Any:
    task = asyncio.current_task()
    try:
        return await work
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as problem:
        if asyncio.current_task() is not task:
            raise
        raise Stopped(tell(problem)) from problem
