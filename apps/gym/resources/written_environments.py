"""Environments that the operator wrote as a resource server: async methods on the loop, others in threads."""

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.errors import EnvironmentFault, GymError, TimedOut, VerifierError
from apps.gym.resources.operator_calls import OutOfTime, perform
from apps.gym.resources.protocol import Probe, ReverifyMode, ToolOutput
from apps.gym.rewards import Reward
from apps.gym.tasks.item_checks import find_item_problem
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json
from apps.gym.written.attempts import Attempted
from apps.gym.written.environment import Environment
from apps.gym.written.operator_errors import tell
from apps.gym.written.typed_tools import write_output

logger = logging.getLogger(__name__)

MAX_OUTPUT = 4 * 1024**2


class WrittenSession:
    """One attempt in an environment that the operator wrote."""

    __slots__ = ("_environment", "_server")

    def __init__(self, environment: Environment, server: "WrittenServer") -> None:
        self._environment = environment
        self._server = server

    async def list_tools(self) -> list[Tool]:
        return self._environment.tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        seconds = self._server.call_timeout
        try:
            text = await self._call(name, arguments, seconds)
        except ToolRefused as refusal:
            return ToolOutput(text=dump_json({"error": str(refusal)}), error=refusal.error)
        except (OutOfTime, TimeoutError):
            told = f"the tool gave no result within {seconds:g} s"
            return ToolOutput(text=dump_json({"error": told}), error="timeout")
        except GymError:
            raise
        except Exception as bug:
            # As with a server that answers 500: the model reads it, and the attempt goes on.
            logger.exception("%s: its tool %s broke", self._server.name, name)
            return ToolOutput(text=dump_json({"error": tell(bug)}), error="tool_error")
        if len(text) > MAX_OUTPUT:
            return ToolOutput(text=dump_json({"error": f"the tool gave {len(text):,} characters"}), error="too_large")
        return ToolOutput(text=text)

    async def _call(self, name: str, arguments: dict[str, Any], seconds: float) -> str:
        written = self._environment.written_tools.get(name)
        if written is None:
            raise unknown_tool(name, self._environment.tools)
        call = partial(getattr(self._environment, written.method), **written.read(arguments))
        return write_output(await perform(call, seconds=seconds))

    async def respond(self, items: list[Item]) -> list[Item] | None:
        with self._server.faults("respond", EnvironmentFault, self._server.call_timeout):
            given = await perform(self._environment.respond, items, seconds=self._server.call_timeout)
            return given if given is None else _read_turn(given)

    async def verify(self, response: dict[str, Any]) -> Reward:
        if not self._server.verifies:
            return Reward(value=None, explanation="this environment leaves the judgement to people")
        seconds = self._server.verify_timeout
        with self._server.faults("verify", VerifierError, seconds):
            return _read_reward(await perform(self._environment.verify, Attempted(response), seconds=seconds))

    async def close(self) -> None:
        try:
            await perform(self._environment.close, seconds=self._server.call_timeout)
        except Exception:
            # The attempt is over, and its reward stands.
            logger.exception("%s: it could not be closed", self._server.name)


class WrittenServer:
    """Serves one such class; raises EnvironmentFault for one that cannot be used. Timeouts are seconds."""

    def __init__(
        self,
        written: type[Environment],
        *,
        name: str,
        verifies: bool = True,
        call_timeout: float = 60.0,
        verify_timeout: float = 120.0,
    ) -> None:
        if written.problem:
            raise EnvironmentFault(f"{name}: {written.problem}").lasting()
        self.name = name
        self.verifies = verifies
        self.call_timeout = call_timeout
        self.verify_timeout = verify_timeout
        self._written = written

    @property
    def takes_turns(self) -> bool:
        """Whether an attempt goes on after a reply without tool calls."""
        return self._written.respond is not Environment.respond

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
        """What the method raises as a fault that says which method it was. A GymError is what the code says itself."""
        try:
            yield
        except OutOfTime:
            raise TimedOut(f"{self.name}: {method} took longer than {seconds:g} s") from None
        except GymError:
            raise
        except Exception as bug:
            logger.exception("%s: its %s broke", self.name, method)
            raise kind(f"{self.name}: {method}: {tell(bug)}").lasting() from bug

    async def reverify_mode(self) -> ReverifyMode:
        return "unsupported" if self._written.verify_needs_state else "stateless"

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._written.tools)
        where = self._written.__module__
        return Probe(
            healthy=True, message=f"written here, in {where}", latency=time.perf_counter() - started, tools=tools
        )


def _read_reward(given: object) -> Reward:
    if isinstance(given, int | float):
        return Reward(value=float(given))
    if not isinstance(given, Reward):
        raise TypeError(f"it gives a number or a Reward, not {type(given).__name__}")
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
    """What `respond` says, as items that can be sent and stored."""
    if not isinstance(given, list):
        raise TypeError(f"it gives a list of items or None, not {type(given).__name__}")
    for at, item in enumerate(given):
        if not isinstance(item, dict):
            raise TypeError(f"it gives items, each an object: the one at {at} is {type(item).__name__}")
        if problem := find_item_problem(item):
            raise ValueError(f"its item {at}{problem[1]} {problem[2]}")
    dump_json(given)
    return given
