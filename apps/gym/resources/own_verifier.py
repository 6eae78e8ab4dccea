"""A resource server whose attempts are scored here, by a verifier that was configured rather than written."""

from typing import Any

from apps.gym.errors import VerifierError
from apps.gym.judging.judge import Judge, Judgement
from apps.gym.redaction.shortening import cut
from apps.gym.resources.protocol import Probe, ResourceServer, ReverifyMode, Session, Step, Stepped, ToolOutput
from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json
from apps.gym.verifiers.parameters_reader import VerifierMisconfigured
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.verification import verify_attempt

ROW_FIELD = "verifier"
"""Where a task's row may bring a verifier of its own, which goes before the environment's."""


class VerifiedSession:
    """A session of another server, with another end."""

    __slots__ = ("_inner", "_judgement", "_most_seconds", "_row", "_verifier", "_whose")

    def __init__(
        self,
        inner: Session,
        row: TaskRow,
        verifier: Verifier,
        *,
        judgement: Judgement | None,
        most_seconds: float,
        whose: str,
    ) -> None:
        self._whose = whose
        self._inner = inner
        self._row = row
        self._verifier = verifier
        self._judgement = judgement
        self._most_seconds = most_seconds

    @property
    def judge_calls(self) -> list[JudgeCall]:
        return self._judgement.calls if self._judgement else []

    async def list_tools(self) -> list[Tool]:
        return await self._inner.list_tools()

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        return await self._inner.call_tool(name, arguments)

    async def respond(self, items: list[Item]) -> list[Item] | None:
        return await self._inner.respond(items)

    async def verify(self, response: dict[str, Any]) -> Reward:
        return await verify_attempt(
            self._verifier,
            self._row,
            response,
            judgement=self._judgement,
            most_seconds=self._most_seconds,
            whose=self._whose,
        )

    async def close(self) -> None:
        await self._inner.close()


class SteppedVerifiedSession(VerifiedSession):
    """The same, of a session where every reply is a step."""

    __slots__ = ()

    @property
    def opening(self) -> list[Item]:
        return self._stepped.opening

    async def step(self, response: dict[str, Any]) -> Step:
        return await self._stepped.step(response)

    @property
    def _stepped(self) -> Stepped:
        assert isinstance(self._inner, Stepped)
        return self._inner


class VerifiedServer:
    """`inner` has the tools; `verifier` the parameters of the verifier, empty where every row brings its own.

    Raises VerifierMisconfigured.
    """

    def __init__(
        self,
        inner: ResourceServer,
        *,
        verifier: dict[str, Any],
        verify_timeout: float = 120.0,
        judge: Judge | None = None,
    ) -> None:
        self.name = inner.name
        self._judge = judge
        self._inner = inner
        self._verifier = read_verifier(verifier) if verifier else None
        self._verify_timeout = verify_timeout

    @property
    def takes_turns(self) -> bool:
        return getattr(self._inner, "takes_turns", False)

    async def seed_session(self, row: TaskRow, *, seed: int) -> VerifiedSession:
        """Before any token is spent: raises VerifierError for a row that cannot be verified."""
        verifier = self._choose(row)
        inner = await self._inner.seed_session(row, seed=seed)
        return (SteppedVerifiedSession if isinstance(inner, Stepped) else VerifiedSession)(
            inner,
            row,
            verifier,
            judgement=self._judge.open_judgement(seed=seed) if self._judge else None,
            most_seconds=self._verify_timeout,
            whose=self.name,
        )

    async def probe(self) -> Probe:
        return await self._inner.probe()

    async def reverify_mode(self) -> ReverifyMode:
        """Whatever the server keeps of an attempt: what verifies here reads the trace alone."""
        return "stateless"

    def _choose(self, row: TaskRow) -> Verifier:
        given = row.get(ROW_FIELD)
        if given is None:
            if self._verifier is None:
                told = "neither the environment nor the task's row has a verifier"
                raise VerifierError(f"{self.name}: {told}: configure one, or give the row a `{ROW_FIELD}`").lasting()
            return self._verifier
        try:
            return read_verifier(given)
        except VerifierMisconfigured as wrong:
            places = "; ".join(f"/{ROW_FIELD}{pointer} {problem}" for pointer, problem in wrong.problems)
            raise VerifierError(f"the task's own verifier cannot be used: {places}").lasting() from None


class ToollessSession:
    """One attempt without tools of the environment's own: what the row declares is recorded and not executed."""

    async def list_tools(self) -> list[Tool]:
        return []

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput(text=dump_json({"error": f"there is no tool named {cut(name, 100)!r}"}), error="unknown_tool")

    async def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    async def verify(self, response: dict[str, Any]) -> Reward:
        return Reward(value=None, explanation="this environment leaves the judgement to people")

    async def close(self) -> None:
        return None


class ToollessServer:
    """Tasks that need nothing but an answer."""

    def __init__(self, *, name: str) -> None:
        self.name = name

    async def seed_session(self, row: TaskRow, *, seed: int) -> ToollessSession:
        return ToollessSession()

    async def probe(self) -> Probe:
        return Probe(healthy=True, message="declared here: it has no server and no tools")
