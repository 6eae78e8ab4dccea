"""Built-in environments as a resource server: in process, microseconds per call."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused, TurnBasedGame
from apps.gym.environments.registry import BUILTINS
from apps.gym.environments.simulated_user.environment import SimulatedUser
from apps.gym.environments.simulated_user.user_tasks import STOP_WORDS
from apps.gym.errors import EnvironmentFault, GymError, TimedOut, VerifierError
from apps.gym.judging.judge import Judge, Judgement
from apps.gym.judging.user_model import UserModel
from apps.gym.resources.protocol import (
    Probe,
    ResourceServer,
    ReverifyMode,
    Session,
    Step,
    SteppedSession,
    ToolOutput,
    failed_call,
)
from apps.gym.resources.threads import run_in_thread
from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool, assistant_text, function_calls, message
from apps.gym.verifiers.llm_judge import judge_assertions
from apps.gym.verifiers.verification import MAX_ON_LOOP, verify_attempt, weigh
from apps.gym.wires.scripted import ScriptedPolicy

logger = logging.getLogger(__name__)

SCRIPTED_USER = "scripted user"
"""Name of the user model if the environment has none."""
Result = TypeVar("Result")


class InProcessSession(Session):
    """One attempt in a built-in environment."""

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
            if self._environment.runs_on_loop:
                return ToolOutput(text=self._environment.call_tool(name, arguments))
            call = partial(self._environment.call_tool, name, arguments)
            return ToolOutput(text=await run_in_thread(call, seconds=seconds))
        except ToolRefused as refusal:
            return failed_call(str(refusal), refusal.error)
        except TimeoutError:
            return failed_call(f"the tool gave no result within {seconds:g} s", "timeout")

    async def respond(self, items: list[Item]) -> list[Item] | None:
        if self._environment.runs_on_loop:
            return self._environment.respond(items)
        return await self._within(partial(self._environment.respond, items), self._server.call_timeout, "its turn")

    async def verify(self, response: dict[str, Any]) -> Reward:
        if verifier := self._environment.verifier:
            judge = self._server.judge
            self._judgement = judge.open_judgement(seed=self._seed) if judge else None
            return await verify_attempt(
                verifier,
                self._environment.row,
                response,
                judgement=self._judgement,
                most_seconds=self._server.verify_timeout,
                whose=self._server.name,
            )
        try:
            if self._environment.runs_on_loop and weigh(response) <= MAX_ON_LOOP:
                return self._environment.verify(response)
            verify = partial(self._environment.verify, response)
            return await self._within(verify, self._server.verify_timeout, "verification")
        except GymError:
            raise
        except Exception as bug:
            # The log has the traceback; the page of the attempt shows only the message.
            logger.exception("%s: its verifier failed", self._server.name)
            raise VerifierError(f"{self._server.name}: {type(bug).__name__}: {bug}").permanent() from bug

    async def _within(self, work: Callable[[], Result], seconds: float, what: str) -> Result:
        try:
            return await run_in_thread(work, seconds=seconds)
        except TimeoutError:
            raise TimedOut(f"{self._server.name}: {what} took longer than {seconds:g} s") from None


class InProcessGame(InProcessSession, SteppedSession):
    """One game in which every reply is a step."""

    def __init__(self, game: TurnBasedGame[Any], server: "InProcessServer", seed: int) -> None:
        super().__init__(game, server, seed)
        self._game = game
        self.opening = [message("user", game.reset())]

    async def step(self, response: dict[str, Any]) -> Step:
        output = response["output"]
        seen = self._game.step(assistant_text(output))
        calls = [(str(call.get("call_id", "")), str(call.get("name", ""))) for call in function_calls(output)]
        outputs = [(call_id, await self.call_tool(name, {})) for call_id, name in calls]
        return Step(outputs=outputs, items=[message("user", seen.observation)], done=seen.done)


class InProcessUser(InProcessSession):
    """One conversation with a simulated user, who is scripted unless the environment has a user model."""

    def __init__(self, environment: SimulatedUser, server: "InProcessServer", seed: int) -> None:
        super().__init__(environment, server, seed)
        self._simulated = environment
        judge = server.judge or Judge(ScriptedPolicy(), name=SCRIPTED_USER, clock=lambda: 0.0)
        self._judgement = self._user_judgement = judge.open_judgement(seed=seed)
        self._user = UserModel(
            self._user_judgement,
            conversation=environment.user_conversation,
            tools=environment.user_tools,
            stop_words=STOP_WORDS,
            use_tool=self._use_tool,
        )

    def _use_tool(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            return self._simulated.call_user_tool(name, arguments)
        except ToolRefused as refusal:
            return failed_call(str(refusal), refusal.error).text

    async def respond(self, items: list[Item]) -> list[Item] | None:
        self._user_judgement.start_clock()
        text = await self._user.answer(assistant_text(items))
        return None if text is None else [message("user", text)]

    async def verify(self, response: dict[str, Any]) -> Reward:
        self._user_judgement.start_clock()
        reward = await super().verify({"user_calls": self._user.calls, **response})
        return await judge_assertions(
            self._simulated.nl_assertions, self._simulated.row, response, self._user_judgement, reward
        )


class InProcessServer(ResourceServer):
    """Serves one built-in environment.

    Raises EnvironmentFault if there is none of that name.

    `call_timeout` and `verify_timeout` are in seconds, and apply to built-ins that are not quick. `judge` is used by
    environments whose verifier is a judge model, and plays the simulated user.
    """

    def __init__(
        self,
        builtin_name: str,
        *,
        name: str,
        call_timeout: float = 60.0,
        verify_timeout: float = 120.0,
        judge: Judge | None = None,
    ) -> None:
        builtin = BUILTINS.get(builtin_name)
        if builtin is None:
            raise EnvironmentFault(
                f"unknown environment {builtin_name!r}. GYMWEB_ENVIRONMENTS is read at startup"
            ).permanent()
        self.name = name
        self.call_timeout = call_timeout
        self.verify_timeout = verify_timeout
        self.judge = judge
        self.takes_turns = builtin.takes_turns
        self._builtin = builtin

    async def seed_session(self, row: TaskRow, *, seed: int) -> InProcessSession:
        if issubclass(self._builtin, SimulatedUser):
            return InProcessUser(self._builtin(row, has_judge=self.judge is not None), self, seed)
        environment = self._builtin(row)
        if isinstance(environment, TurnBasedGame):
            return InProcessGame(environment, self, seed)
        return InProcessSession(environment, self, seed)

    async def reverify_mode(self) -> ReverifyMode:
        return "stateless"

    async def probe(self) -> Probe:
        started = time.perf_counter()
        tools = list(self._builtin.tools)
        find_problem = getattr(self._builtin, "find_problem", None)
        # In a thread, because this runs a sandbox and is slow.
        if find_problem is not None and (problem := await asyncio.to_thread(find_problem)):
            return Probe(healthy=False, message=problem, latency=time.perf_counter() - started, tools=tools)
        describe_place = getattr(self._builtin, "describe_place", None)
        told = f"built in, in process; {describe_place()}" if describe_place else "built in, in process"
        return Probe(healthy=True, message=told, latency=time.perf_counter() - started, tools=tools)
