"""A resource server whose attempts are scored by a configured verifier of GymWeb."""

from typing import Any

from apps.gym.errors import VerifierError
from apps.gym.judging.judge import Judge, Judgement
from apps.gym.resources.protocol import Probe, ResourceServer, ReverifyMode, Session, Step, SteppedSession, ToolOutput
from apps.gym.rewards import Reward
from apps.gym.traces.events import JudgeCall
from apps.gym.traces.items import Item, TaskRow, Tool
from apps.gym.verifiers.parameters_reader import VerifierMisconfigured
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.verification import verify_attempt

ROW_FIELD = "verifier"
"""The field of a row with its own verifier, which overrides the environment's."""


class VerifiedSession(Session):
    """A session of another server that is verified here."""

    def __init__(
        self,
        inner: Session,
        row: TaskRow,
        verifier: Verifier | None,
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
        return [*self._inner.judge_calls, *(self._judgement.calls if self._judgement else [])]

    async def list_tools(self) -> list[Tool]:
        return await self._inner.list_tools()

    def read_arguments(self, given: object) -> Any:
        return self._inner.read_arguments(given)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        return await self._inner.call_tool(name, arguments)

    async def respond(self, items: list[Item]) -> list[Item] | None:
        return await self._inner.respond(items)

    async def verify(self, response: dict[str, Any]) -> Reward:
        if self._verifier is None:
            return await super().verify(response)
        if self._judgement:
            self._judgement.start_clock()
        return await verify_attempt(
            self._verifier,
            self._row,
            response,
            judgement=self._judgement,
            most_seconds=self._most_seconds,
            whose=self._whose,
        )

    @property
    def cookies(self) -> dict[str, str]:
        return self._inner.cookies

    def take_cookies(self, cookies: dict[str, str]) -> None:
        self._inner.take_cookies(cookies)

    async def close(self) -> None:
        await self._inner.close()


class SteppedVerifiedSession(VerifiedSession, SteppedSession):
    """A verified session in which every reply is a step."""

    def __init__(self, inner: Session, *args: Any, **kwargs: Any) -> None:
        super().__init__(inner, *args, **kwargs)
        assert isinstance(inner, SteppedSession)
        self._stepped = inner
        self.opening = inner.opening

    async def step(self, response: dict[str, Any]) -> Step:
        return await self._stepped.step(response)


class VerifiedServer(ResourceServer):
    """Serves the sessions of `inner`.

    `verifier` has the verifier's parameters, or is empty if every row has its own.

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
        self.takes_turns = getattr(inner, "takes_turns", False)

    async def seed_session(self, row: TaskRow, *, seed: int) -> VerifiedSession:
        """Open a session. Raises VerifierError for a row that cannot be verified, before any token is spent."""
        verifier = self._choose(row)
        inner = await self._inner.seed_session(row, seed=seed)
        return (SteppedVerifiedSession if isinstance(inner, SteppedSession) else VerifiedSession)(
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
        """Return "stateless", because the verifier here reads only the trace, whatever state the server has."""
        return "stateless"

    def _choose(self, row: TaskRow) -> Verifier | None:
        given = row.get(ROW_FIELD)
        if given is None:
            if self._verifier is None:
                told = "neither the environment nor the task row has a verifier"
                raise VerifierError(f"{self.name}: {told}. Configure one, or add `{ROW_FIELD}` to the row").permanent()
            return self._verifier
        try:
            return read_verifier(given)
        except VerifierMisconfigured as wrong:
            places = "; ".join(f"/{ROW_FIELD}{pointer} {problem}" for pointer, problem in wrong.problems)
            raise VerifierError(f"the task's own verifier cannot be used: {places}").permanent() from None


class UnverifiedServer(VerifiedServer):
    """Serves the sessions of another server without verification: people score the attempts."""

    def __init__(self, inner: ResourceServer) -> None:
        super().__init__(inner, verifier={})

    def _choose(self, row: TaskRow) -> None:
        return None


class ToollessSession(Session):
    """One attempt without tools of the environment. Calls of tools that the row declares are recorded, not executed."""


class ToollessServer(ResourceServer):
    """An environment for tasks that only need an answer."""

    def __init__(self, *, name: str) -> None:
        self.name = name

    async def seed_session(self, row: TaskRow, *, seed: int) -> ToollessSession:
        return ToollessSession()

    async def probe(self) -> Probe:
        return Probe(healthy=True, message="no server to check")
