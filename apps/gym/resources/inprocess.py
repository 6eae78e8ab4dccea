"""Built-in environments as a resource server: no socket, no thread, microseconds a call."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from apps.gym.environments.protocol import (
    BuiltinEnvironment,
    Configured,
    Game,
    JudgedEnvironment,
    ToolRefused,
    is_judged,
)
from apps.gym.environments.registry import BUILTINS
from apps.gym.errors import EnvironmentFault, GymError, JudgeError, TimedOut, VerifierError
from apps.gym.judging.judge import Judge, Judgement
from apps.gym.resources.protocol import Probe, ReverifyMode, Step, ToolOutput
from apps.gym.resources.threads import run_in_thread
from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, dump_json, function_calls, message
from apps.gym.verifiers.verification import MAX_ON_LOOP, verify_attempt, weigh

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class InProcessSession:
    """One attempt in a built-in environment."""

    __slots__ = ("_environment", "_judgement", "_seed", "_server")

    def __init__(self, environment: BuiltinEnvironment, server: "InProcessServer", seed: int) -> None:
        self._environment = environment
        self._server = server
        self._seed = seed
        self._judgement: Judgement | None = None

    @property
    def judge_calls(self) -> list[JudgeCall]:
        return self._judgement.calls if self._judgement else []

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
        if is_judged(self._environment):
            return await self._judge(self._environment, response)
        if isinstance(self._environment, Configured):
            return await verify_attempt(
                self._environment.verifier,
                self._environment.row,
                response,
                most_seconds=self._server.verify_timeout,
                whose=self._server.name,
            )
        try:
            if self._environment.quick and weigh(response) <= MAX_ON_LOOP:
                return self._environment.verify(response)
            verify = partial(self._environment.verify, response)
            return await self._within(verify, self._server.verify_timeout, "verification")
        except GymError:
            raise
        except Exception as bug:
            # The log has where it stands: the attempt has ended, and what it says is all that its page needs.
            logger.exception("%s: its verifier broke", self._server.name)
            raise VerifierError(f"{self._server.name}: {type(bug).__name__}: {bug}").lasting() from bug

    async def _judge(self, environment: JudgedEnvironment, response: dict[str, Any]) -> Reward:
        judge = self._server.judge
        if judge is None:
            raise JudgeError(f"{self._server.name}: no judge model is set for this environment").lasting()
        self._judgement = judge.open_judgement(seed=self._seed)
        return await environment.judge(response, self._judgement)

    async def _within(self, work: Callable[[], Result], seconds: float, what: str) -> Result:
        try:
            return await run_in_thread(work, seconds=seconds)
        except TimeoutError:
            raise TimedOut(f"{self._server.name}: {what} took longer than {seconds:g} s") from None

    async def close(self) -> None:
        return None


class InProcessGame(InProcessSession):
    """One game in which every reply is a step."""

    __slots__ = ("_game", "opening")

    def __init__(self, environment: BuiltinEnvironment, server: "InProcessServer", seed: int, game: Game) -> None:
        super().__init__(environment, server, seed)
        self._game = game
        self.opening: list[Item] = [message("user", game.reset())]

    async def step(self, response: dict[str, Any]) -> Step:
        output = response["output"]
        seen = self._game.step(assistant_text(output))
        calls = [(str(call.get("call_id", "")), str(call.get("name", ""))) for call in function_calls(output)]
        outputs = {call_id: await self.call_tool(name, {}) for call_id, name in calls}
        return Step(outputs=outputs, items=[message("user", seen.observation)], done=seen.done)


class InProcessServer:
    """Serves one built-in environment; raises EnvironmentFault when there is none of that name.

    `call_timeout` and `verify_timeout` are seconds; they bind built-ins that are not quick. `judge` is asked by those
    whose verifier is a judge model.
    """

    def __init__(
        self,
        builtin_name: str,
        *,
        name: str,
        verifies: bool = True,
        call_timeout: float = 60.0,
        verify_timeout: float = 120.0,
        judge: Judge | None = None,
    ) -> None:
        builtin = BUILTINS.get(builtin_name)
        if builtin is None:
            raise EnvironmentFault(
                f"there is no built-in environment named {builtin_name!r}, and this process has loaded none of that "
                "name: it reads GYMWEB_ENVIRONMENTS as it starts"
            ).lasting()
        self.name = name
        self.verifies = verifies
        self.call_timeout = call_timeout
        self.verify_timeout = verify_timeout
        self.judge = judge
        self._builtin = builtin

    @property
    def takes_turns(self) -> bool:
        """Whether an attempt goes on after a reply without tool calls."""
        return getattr(self._builtin, "takes_turns", False)

    async def seed_session(self, row: TaskRow, *, seed: int) -> InProcessSession:
        environment = self._builtin(row, seed=seed)
        if isinstance(environment, Game):
            return InProcessGame(environment, self, seed, environment)
        return InProcessSession(environment, self, seed)

    async def reverify_mode(self) -> ReverifyMode:
        return "unsupported" if getattr(self._builtin, "verify_needs_state", False) else "stateless"

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._builtin.tools)
        find_problem = getattr(self._builtin, "find_problem", None)
        # A sandbox is tried out for this, which takes its time.
        if find_problem is not None and (problem := await asyncio.to_thread(find_problem)):
            return Probe(healthy=False, message=problem, latency=time.perf_counter() - started, tools=tools)
        describe_place = getattr(self._builtin, "describe_place", None)
        told = f"built in, in process; {describe_place()}" if describe_place else "built in, in process"
        return Probe(healthy=True, message=told, latency=time.perf_counter() - started, tools=tools)
