"""Built-in environments as a resource server: no socket, no thread, microseconds a call."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from apps.gym.builtin.protocol import BuiltinEnvironment, ToolRefused
from apps.gym.builtin.registry import BUILTINS
from apps.gym.errors import EnvironmentFault, TimedOut
from apps.gym.items import Item, TaskRow, Tool, dump_json
from apps.gym.resources.protocol import Probe, ToolOutput
from apps.gym.resources.threads import run_in_thread
from apps.gym.rewards import Reward

Result = TypeVar("Result")


class InProcessSession:
    """One attempt in a built-in environment."""

    __slots__ = ("_environment", "_server")

    def __init__(self, environment: BuiltinEnvironment, server: "InProcessServer") -> None:
        self._environment = environment
        self._server = server

    async def list_tools(self) -> list[Tool]:
        return self._environment.tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        seconds = self._server.call_timeout
        try:
            if self._environment.quick:
                return ToolOutput(text=self._environment.call_tool(name, arguments))
            call = partial(self._environment.call_tool, name, arguments)
            return ToolOutput(text=await run_in_thread(call, seconds=seconds))
        except ToolRefused as refusal:
            return ToolOutput(text=dump_json({"error": str(refusal)}), error=refusal.error)
        except TimeoutError:
            return ToolOutput(
                text=dump_json({"error": f"the tool gave no result within {seconds:g} s"}), error="timeout"
            )

    async def respond(self, items: list[Item]) -> list[Item] | None:
        if self._environment.quick:
            return self._environment.respond(items)
        return await self._within(partial(self._environment.respond, items), self._server.call_timeout, "its turn")

    async def verify(self, response: dict[str, Any]) -> Reward:
        if not self._server.verifies:
            return Reward(value=None, explanation="this environment leaves the judgement to people")
        if self._environment.quick:
            return self._environment.verify(response)
        verify = partial(self._environment.verify, response)
        return await self._within(verify, self._server.verify_timeout, "verification")

    async def _within(self, work: Callable[[], Result], seconds: float, what: str) -> Result:
        try:
            return await run_in_thread(work, seconds=seconds)
        except TimeoutError:
            raise TimedOut(f"{self._server.name}: {what} took longer than {seconds:g} s") from None

    async def close(self) -> None:
        return None


class InProcessServer:
    """Serves one built-in environment; raises EnvironmentFault when there is none of that name.

    `call_timeout` and `verify_timeout` are seconds; they bind built-ins that are not quick.
    """

    def __init__(
        self,
        builtin_name: str,
        *,
        name: str,
        verifies: bool = True,
        call_timeout: float = 60.0,
        verify_timeout: float = 120.0,
    ) -> None:
        builtin = BUILTINS.get(builtin_name)
        if builtin is None:
            raise EnvironmentFault(f"there is no built-in environment named {builtin_name!r}").lasting()
        self.name = name
        self.verifies = verifies
        self.call_timeout = call_timeout
        self.verify_timeout = verify_timeout
        self._builtin = builtin

    async def seed_session(self, row: TaskRow, *, seed: int) -> InProcessSession:
        return InProcessSession(self._builtin(row, seed=seed), self)

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._builtin.tools)
        return Probe(healthy=True, message="built in, in process", latency=time.perf_counter() - started, tools=tools)
