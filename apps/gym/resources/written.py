"""Environments that the operator wrote as a resource server: async methods on the loop, others in threads."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

from apps.gym.builtin.protocol import ToolRefused, unknown_tool
from apps.gym.errors import EnvironmentFault, GymError, TimedOut, VerifierError
from apps.gym.items import Item, TaskRow, Tool, dump_json
from apps.gym.resources.protocol import Probe, ReverifyMode, ToolOutput
from apps.gym.resources.threads import run_in_thread
from apps.gym.rewards import Reward
from apps.gym.written.attempts import Attempted
from apps.gym.written.environment import Environment
from apps.gym.written.tools import write_output

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
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
        except TimeoutError:
            told = f"the tool gave no result within {seconds:g} s"
            return ToolOutput(text=dump_json({"error": told}), error="timeout")
        except GymError:
            raise
        except Exception as bug:
            # As with a server that answers 500: the model reads it, and the attempt goes on.
            logger.exception("%s: its tool %s broke", self._server.name, name)
            return ToolOutput(text=dump_json({"error": f"{type(bug).__name__}: {bug}"}), error="tool_error")
        if len(text) > MAX_OUTPUT:
            return ToolOutput(text=dump_json({"error": f"the tool gave {len(text):,} characters"}), error="too_large")
        return ToolOutput(text=text)

    async def _call(self, name: str, arguments: dict[str, Any], seconds: float) -> str:
        written = self._environment.written_tools.get(name)
        if written is None:
            raise unknown_tool(name, self._environment.tools)
        method = partial(getattr(self._environment, written.method), **written.read(arguments))
        if not written.is_async:
            return write_output(await run_in_thread(method, seconds=seconds))
        async with asyncio.timeout(seconds):
            return write_output(await method())

    async def respond(self, items: list[Item]) -> list[Item] | None:
        return await self._server.within(self._environment.respond(items), self._server.call_timeout, "its turn")

    async def verify(self, response: dict[str, Any]) -> Reward:
        if not self._server.verifies:
            return Reward(value=None, explanation="this environment leaves the judgement to people")
        verifying = self._environment.verify(Attempted(response))
        try:
            given = await self._server.within(verifying, self._server.verify_timeout, "verification")
            if isinstance(given, Reward):
                return given
            if not isinstance(given, int | float):
                raise TypeError(f"verify gives a number or a Reward, not {type(given).__name__}")
            return Reward(value=float(given))
        except GymError:
            raise
        except Exception as bug:
            logger.exception("%s: its verifier broke", self._server.name)
            raise VerifierError(f"{self._server.name}: {type(bug).__name__}: {bug}").lasting() from bug

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self._server.call_timeout):
                await self._environment.close()
        except Exception:
            # The attempt is over, and its reward stands.
            logger.exception("%s: it could not be closed", self._server.name)


class WrittenServer:
    """Serves one such class. Timeouts are seconds."""

    def __init__(
        self,
        written: type[Environment],
        *,
        name: str,
        verifies: bool = True,
        call_timeout: float = 60.0,
        verify_timeout: float = 120.0,
    ) -> None:
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
        try:
            environment = self._written()
            environment.row = row
            await self.within(environment.seed(row, seed), self.call_timeout, "seeding")
        except GymError:
            raise
        except Exception as bug:
            logger.exception("%s: it could not be seeded", self.name)
            raise EnvironmentFault(f"{self.name}: seed: {type(bug).__name__}: {bug}").lasting() from bug
        return WrittenSession(environment, self)

    async def within(self, work: Awaitable[Result], seconds: float, what: str) -> Result:
        """Raises TimedOut. What the work itself says of a time-out is its own."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"{self.name}: {what} took longer than {seconds:g} s") from None

    async def reverify_mode(self) -> ReverifyMode:
        return "unsupported" if self._written.verify_needs_state else "stateless"

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._written.tools)
        where = self._written.__module__
        return Probe(
            healthy=True, message=f"written here, in {where}", latency=time.perf_counter() - started, tools=tools
        )
