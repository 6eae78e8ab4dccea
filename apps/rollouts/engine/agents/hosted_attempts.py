"""Attempts that a worker starts itself, at an agent which is not the built-in loop: a command, or an agent server."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from apps.gym.capture.captured_attempt import CapturedAttempt
from apps.gym.capture.captured_commands import CallRefused, Command
from apps.gym.errors import GymError
from apps.gym.traces.events import JudgeCall, TraceUnion

RENEW_SECONDS = 30.0
"""Seconds after which the lease of a running agent is extended."""


class HostedAttempt(ABC):
    """A driver of a claimed rollout: it starts the agent, and yields the calls that the agent makes."""

    def __init__(self, captured: CapturedAttempt) -> None:
        self._captured = captured
        self._running: asyncio.Task[None] | None = None

    def drive(self, elapsed: Callable[[], float]) -> "HostedAttempt":
        """Return the driver, with the clock of the attempt; see run_rollout."""
        self._captured.elapsed = elapsed
        return self

    @property
    def retried_failures(self) -> int:
        return self._captured.retried_failures

    def take_judge_calls(self) -> list[JudgeCall]:
        """Return the judge calls that were not reported yet; see AttemptDriver."""
        return self._captured.take_judge_calls()

    async def events(self) -> AsyncGenerator[TraceUnion, None]:
        """Yield every event in order; see AttemptDriver."""
        try:
            self._running = asyncio.create_task(self._run())
            async with aclosing(self._captured.events()) as events:
                async for event in events:
                    yield event
        finally:
            await self.close()

    async def close(self) -> None:
        """Refuse further calls and end the agent. May be called twice."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])

    @abstractmethod
    async def _execute(self) -> Command:
        """Run the agent and return how it ended."""

    async def _run(self) -> None:
        """Run the agent, then end the attempt."""
        with suppress(GymError):  # The driver raises it.
            await asyncio.shield(self._captured.opened)
            end = await self._outcome()
            if end is not None:
                with suppress(CallRefused):  # It reached a limit meanwhile.
                    await self._captured.end(end)

    async def _outcome(self) -> Command | None:
        """Return how the agent ended; None if the attempt reached a limit."""
        agent = asyncio.ensure_future(self._execute())
        limit = asyncio.ensure_future(self._captured.at_limit.wait())
        try:
            while not (agent.done() or limit.done()):
                left = self._captured.harness.time_limit - self._captured.elapsed()
                if left <= 0:
                    self._captured.reach_limit("time_limit")
                    break
                with suppress(CallRefused):
                    self._captured.extend()
                wait = min(left, RENEW_SECONDS)
                await asyncio.wait([agent, limit], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (limit, agent):
                task.cancel()
            await asyncio.wait([agent, limit])
        return None if self._captured.at_limit.is_set() else agent.result()
