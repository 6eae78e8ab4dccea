"""Custom environments as resource servers: async methods run on the event loop, others in threads."""

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakSet

from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.errors import EnvironmentFault, GymError, TimedOut, VerifierError
from apps.gym.image_data import data_url, find_kind
from apps.gym.resources.protocol import (
    Probe,
    ResourceServer,
    ReverifyMode,
    Session,
    ToolOutput,
    failed_call,
    output_with_images,
)
from apps.gym.resources.threads import run_in_thread
from apps.gym.rewards import Reward
from apps.gym.tasks.parameters import find_item_problem
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json
from apps.gym.written.environment import Attempted, Environment, Stopped, tell
from apps.gym.written.typed_tools import write_output


class OutOfTime(Exception):
    """Raised when the limit of a call expired, unlike a TimeoutError of the custom code."""


_performing: ContextVar[bool] = ContextVar("performing", default=False)
_guarded: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


async def perform(method: Callable[..., Any], *given: Any, seconds: float) -> Any:
    """Return the result of the method.

    Raises OutOfTime, or an Exception of the method; CancelledError only if this attempt is cancelled, however the
    method handles that.
    """
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
            # This attempt is being closed or cancelled.
            raise asyncio.CancelledError if isinstance(problem, Exception) else problem from None
        if isinstance(problem, TimeoutError) and limit.expired():
            raise OutOfTime from None
        if isinstance(problem, Exception):
            raise
        raise Stopped(tell(problem)) from problem
    finally:
        # Not reset with a token: an attempt that the loop closes at its end runs in another context.
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
    """Prevent a SystemExit in tasks of custom code, which would end the event loop."""
    if loop in _guarded:
        return
    _guarded.add(loop)
    before = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> Any:
        own = _performing.get() and inspect.iscoroutine(work)
        begun = _tame(work) if own else work
        task = before(loop, begun, **named) if before else asyncio.Task(begun, loop=loop, **named)
        if own:
            # A task that is cancelled before it starts is never awaited.
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


logger = logging.getLogger(__name__)

MAX_OUTPUT = 4 * 1024**2


class WrittenSession(Session):
    """One attempt in a custom environment."""

    def __init__(self, environment: Environment, server: "WrittenServer") -> None:
        self._environment = environment
        self._server = server

    async def list_tools(self) -> list[Tool]:
        return self._environment.tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        seconds = self._server.call_timeout
        try:
            result = await self._call(name, arguments, seconds)
            output = _read_output(result)
        except ToolRefused as refusal:
            return failed_call(str(refusal), refusal.error)
        except (OutOfTime, TimeoutError):
            return failed_call(f"the tool gave no result within {seconds:g} s", "timeout")
        except GymError:
            raise
        except Exception as bug:
            # As with a server that returns 500: the model reads the error, and the attempt continues.
            logger.exception("%s: its tool %s failed", self._server.name, name)
            return failed_call(tell(bug), "tool_error")
        if len(output.text) > MAX_OUTPUT:
            return failed_call(f"the tool gave {len(output.text):,} characters", "too_large")
        return output

    async def _call(self, name: str, arguments: dict[str, Any], seconds: float) -> Any:
        written = self._environment.written_tools.get(name)
        if written is None:
            raise unknown_tool(name, self._environment.tools)
        call = partial(getattr(self._environment, written.method), **written.read(arguments))
        return await perform(call, seconds=seconds)

    async def respond(self, items: list[Item]) -> list[Item] | None:
        with self._server.faults("respond", EnvironmentFault, self._server.call_timeout):
            given = await perform(self._environment.respond, items, seconds=self._server.call_timeout)
            return given if given is None else _read_turn(given)

    async def verify(self, response: dict[str, Any]) -> Reward:
        seconds = self._server.verify_timeout
        with self._server.faults("verify", VerifierError, seconds):
            return _read_reward(await perform(self._environment.verify, Attempted(response), seconds=seconds))

    async def close(self) -> None:
        try:
            await perform(self._environment.close, seconds=self._server.call_timeout)
        except Exception:
            # The attempt has ended, and its reward is final.
            logger.exception("%s: it could not be closed", self._server.name)


class WrittenServer(ResourceServer):
    """Serves one custom environment class. Raises EnvironmentFault if it cannot be used. Timeouts are in seconds."""

    def __init__(
        self,
        written: type[Environment],
        *,
        name: str,
        call_timeout: float = 60.0,
        verify_timeout: float = 120.0,
    ) -> None:
        if written.problem:
            raise EnvironmentFault(f"{name}: {written.problem}").permanent()
        self.name = name
        self.call_timeout = call_timeout
        self.verify_timeout = verify_timeout
        self.takes_turns = written.respond is not Environment.respond
        self._written = written

    async def seed_session(self, row: TaskRow, *, seed: int) -> WrittenSession:
        with self.faults("seed", EnvironmentFault, self.call_timeout):
            return WrittenSession(await self._seed(row, seed), self)

    async def _seed(self, row: TaskRow, seed: int) -> Environment:
        async def make() -> Environment:
            environment = self._written()
            environment.row = row
            return environment

        environment: Environment = await perform(make, seconds=self.call_timeout)
        await perform(environment.seed, row, seed, seconds=self.call_timeout)
        return environment

    @contextlib.contextmanager
    def faults(self, method: str, kind: type[GymError], seconds: float) -> Iterator[None]:
        """Raise errors of the method as faults that name it. A GymError is passed on unchanged."""
        try:
            yield
        except OutOfTime:
            raise TimedOut(f"{self.name}: {method} took longer than {seconds:g} s") from None
        except GymError:
            raise
        except Exception as bug:
            logger.exception("%s: its %s failed", self.name, method)
            raise kind(f"{self.name}: {method}: {tell(bug)}").permanent() from bug

    async def reverify_mode(self) -> ReverifyMode:
        return "unsupported" if self._written.verify_needs_state else "stateless"

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._written.tools)
        where = self._written.__module__
        return Probe(
            healthy=True,
            message=f"custom environment, defined in {where}",
            latency=time.perf_counter() - started,
            tools=tools,
        )


def _read_output(result: Any) -> ToolOutput:
    """Return the output of a tool: an image as bytes, a list that contains images, any text or JSON value."""
    if isinstance(result, bytes):
        result = [result]
    if isinstance(result, list) and any(isinstance(one, bytes) for one in result):
        return output_with_images([_read_part(one) for one in result])
    return ToolOutput(text=write_output(result))


def _read_part(given: Any) -> dict[str, Any]:
    if isinstance(given, bytes):
        # Other formats are refused with the accepted ones.
        return {"type": "input_image", "image_url": data_url(find_kind(given) or "image/unknown", given)}
    return {"type": "input_text", "text": write_output(given)}


def _read_reward(given: object) -> Reward:
    if isinstance(given, int | float):
        return Reward(value=float(given))
    if not isinstance(given, Reward):
        raise TypeError(f"returned {type(given).__name__}, expected a number or a Reward")
    fields: list[tuple[str, object, type | tuple[type, ...]]] = [
        ("value", given.value, (int, float)),
        ("components", given.components, dict),
        ("explanation", given.explanation, str),
        ("details", given.details, dict),
        *((f"component {name}", value, (int, float)) for name, value in given.components.items()),
        *((f"name {name} of a component", name, str) for name in given.components),
    ]
    for name, value, kind in fields:
        if not isinstance(value, kind):
            raise TypeError(f"the {name} of its Reward is {type(value).__name__}")
    dump_json(given.details)
    return given


def _read_turn(given: object) -> list[Item]:
    """Return the items of `respond`, checked so that they can be sent and stored."""
    if not isinstance(given, list):
        raise TypeError(f"returned {type(given).__name__}, expected a list of items or None")
    for at, item in enumerate(given):
        if not isinstance(item, dict):
            raise TypeError(f"returned {type(item).__name__} as item {at}, expected an object")
        if problem := find_item_problem(item):
            raise ValueError(f"its item {at}{problem[1]} {problem[2]}")
    dump_json(given)
    return [dict(item) for item in given]  # the environment may change its own later
