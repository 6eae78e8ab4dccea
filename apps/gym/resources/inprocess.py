"""Built-in environments as a resource server: no socket, no thread, microseconds a call."""

import time
from typing import Any

from apps.gym.builtin.protocol import BuiltinEnvironment, ToolRefused
from apps.gym.builtin.registry import BUILTINS
from apps.gym.errors import EnvironmentFault
from apps.gym.items import Item, TaskRow, Tool, dump_json
from apps.gym.resources.protocol import Probe, ToolOutput
from apps.gym.rewards import Reward


class InProcessSession:
    """One attempt in a built-in environment."""

    __slots__ = ("_environment", "_verifies")

    def __init__(self, environment: BuiltinEnvironment, *, verifies: bool) -> None:
        self._environment = environment
        self._verifies = verifies

    async def list_tools(self) -> list[Tool]:
        return self._environment.tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        try:
            return ToolOutput(text=self._environment.call_tool(name, arguments))
        except ToolRefused as refusal:
            return ToolOutput(text=dump_json({"error": str(refusal)}), error=refusal.error)

    async def respond(self, items: list[Item]) -> list[Item] | None:
        return self._environment.respond(items)

    async def verify(self, response: dict[str, Any]) -> Reward:
        if not self._verifies:
            return Reward(value=None, explanation="this environment leaves the judgement to people")
        return self._environment.verify(response)

    async def close(self) -> None:
        return None


class InProcessServer:
    """Serves one built-in environment; raises EnvironmentFault when there is none of that name."""

    def __init__(self, builtin_name: str, *, name: str, verifies: bool = True) -> None:
        builtin = BUILTINS.get(builtin_name)
        if builtin is None:
            raise EnvironmentFault(f"there is no built-in environment named {builtin_name!r}")
        self.name = name
        self._builtin = builtin
        self._verifies = verifies

    async def seed_session(self, row: TaskRow, *, seed: int) -> InProcessSession:
        return InProcessSession(self._builtin(row, seed=seed), verifies=self._verifies)

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._builtin.tools)
        return Probe(healthy=True, message="built in, in process", latency=time.perf_counter() - started, tools=tools)
