"""Drivers yield the events of one attempt, from the built-in agent loop or an external agent.

A driver yields events in order and stores nothing. Its consumer stores them, and enforces the time limit of the
attempt.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from apps.gym.resources.protocol import ResourceServer, Session
from apps.gym.rewards import Reward
from apps.gym.tasks.prompt_templates import PromptTemplate, apply_template_or_fail
from apps.gym.traces.events import JudgeCall, TraceUnion, Verification
from apps.gym.traces.items import TaskRow


class AttemptDriver(Protocol):
    """One attempt at one task. Iterate `events()` once."""

    @property
    def retried_failures(self) -> int:
        """Return the number of calls of the policy model that were retried and got no reply."""

    def events(self) -> AsyncGenerator[TraceUnion, None]:
        """Yield every event in order. Raises a GymError if something outside the attempt failed."""
        ...

    def take_judge_calls(self) -> list[JudgeCall]:
        """Return the judge calls that were not reported yet.

        Consumers of `events()` call this when they stop early, so that the cost of an unfinished verification is
        counted.
        """
        ...


class SessionDriver(ABC):
    """A driver that opens a session at a resource server, and has it verify the attempt at the end."""

    retried_failures = 0

    def __init__(
        self, *, row: TaskRow, server: ResourceServer, prompt: PromptTemplate, seed: int, elapsed: Callable[[], float]
    ) -> None:
        """Prepare an attempt. `elapsed` returns seconds since the attempt began, excluding waits for flow control."""
        self.row = row
        self.server = server
        self.seed = seed
        self.elapsed = elapsed
        self._prompt = prompt
        self._session: Session | None = None
        self._judge_calls_taken = 0
        # Start of the last `respond` or `verify`. The times of judge calls are relative to it.
        self._asked_at = 0.0

    @abstractmethod
    def events(self) -> AsyncGenerator[TraceUnion, None]:
        """Yield every event in order; see AttemptDriver. Open a session first, and close it at the end."""

    async def _open_session(self) -> Session:
        self.row = apply_template_or_fail(self._prompt, self.row)
        self._session = await self.server.seed_session(self.row, seed=self.seed)
        return self._session

    def take_judge_calls(self) -> list[JudgeCall]:
        """Return the judge calls that were not reported yet; see AttemptDriver."""
        calls = self._session.judge_calls[self._judge_calls_taken :] if self._session else []
        self._judge_calls_taken += len(calls)
        for call in calls:
            call.at += self._asked_at
        return calls

    async def _verify(self, session: Session, response: dict[str, Any], stop_reason: str) -> list[TraceUnion]:
        """Return the judge calls, then the verification. `response` is a Responses object of the whole attempt."""
        began = self._asked_at = self.elapsed()
        reward = await session.verify(response)
        duration = self.elapsed() - began
        return [*self.take_judge_calls(), verification_event(reward, stop_reason, at=began, duration=duration)]


def verification_event(
    reward: Reward, stop_reason: str, *, at: float = 0.0, duration: float, reverification: int = 0
) -> Verification:
    """Return the event of a verdict."""
    return Verification(
        reward=reward.value,
        components=reward.components,
        explanation=reward.explanation,
        details=reward.details,
        stop_reason=stop_reason,
        reverification=reverification,
        at=at,
        duration=duration,
    )
