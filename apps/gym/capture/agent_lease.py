"""The lease of an agent that runs elsewhere: how long it may be silent."""

import asyncio
from contextlib import suppress
from contextvars import Context

from apps.gym.calls.time_limits import stopped_clocks

MAX_EXCUSE_SECONDS = 120.0
"""Maximum seconds for which the clock stops while an agent waits to repeat a throttled call."""


class AgentLease:
    """Ends `seconds` after the last sign of the agent. `context` is that of the attempt, with its time limits."""

    def __init__(self, seconds: float, context: Context) -> None:
        self.seconds = seconds
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()
        self._excused: asyncio.Task[None] | None = None
        self.expires_at = 0.0
        self.renew()

    def renew(self, seconds: float = 0.0) -> None:
        """Extend the lease, by `seconds` more if the agent was told to wait for so long. It never gets shorter."""
        self.expires_at = max(self.expires_at, self._loop.time() + seconds + self.seconds)

    def note_call(self) -> None:
        """Renew the lease, and let the clock of the attempt run again if it was stopped for the agent."""
        self._called.set()
        self.renew()

    @property
    def expires_in(self) -> float:
        """Return the seconds until the agent counts as lost."""
        return max(0.0, self.expires_at - self._loop.time())

    def excuse(self, seconds: float) -> None:
        """Stop the clock of the attempt until the next call or command, for at most `seconds`. Extend the lease."""
        seconds = min(seconds, MAX_EXCUSE_SECONDS)
        self.renew(seconds)
        self._called.clear()
        if self._excused is None or self._excused.done():
            self._excused = self._loop.create_task(self._wait_for_call(seconds), context=self._context.copy())

    async def close(self) -> None:
        """Let the clock run again."""
        if self._excused is not None:
            self._excused.cancel()
            await asyncio.gather(self._excused, return_exceptions=True)

    async def _wait_for_call(self, seconds: float) -> None:
        with stopped_clocks(), suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called.wait()
