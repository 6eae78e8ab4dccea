"""The lease of a captured agent: how long it may be silent."""

import asyncio
from contextlib import suppress
from contextvars import Context

from apps.gym.calls.time_limits import stopped_clocks

MAX_RETRY_WAIT_SECONDS = 120.0
"""Maximum seconds for which the clock stops while an agent waits to repeat a throttled call."""


class AgentLease:
    """Expires `seconds` after the last call or command of the agent. `context` has the time limits of the attempt."""

    def __init__(self, seconds: float, context: Context) -> None:
        self.seconds = seconds
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()
        self._retry_wait: asyncio.Task[None] | None = None
        self.expires_at = 0.0
        self.renew()

    def renew(self, seconds: float = 0.0) -> None:
        """Renew the lease, for `seconds` more if the agent was told to wait so long. This never shortens the lease."""
        self.expires_at = max(self.expires_at, self._loop.time() + seconds + self.seconds)

    def note_call(self) -> None:
        """Renew the lease, and let the clock of the attempt run again if it was stopped for the agent."""
        self._called.set()
        self.renew()

    @property
    def expires_in(self) -> float:
        """Return the seconds until the agent counts as lost."""
        return max(0.0, self.expires_at - self._loop.time())

    def stop_clock_for_retry(self, seconds: float) -> None:
        """Stop the clock of the attempt until the next call or command, for at most `seconds`. Extend the lease."""
        seconds = min(seconds, MAX_RETRY_WAIT_SECONDS)
        self.renew(seconds)
        self._called.clear()
        if self._retry_wait is None or self._retry_wait.done():
            self._retry_wait = self._loop.create_task(self._wait_for_call(seconds), context=self._context.copy())

    async def close(self) -> None:
        """Let the clock run again."""
        if self._retry_wait is not None:
            self._retry_wait.cancel()
            await asyncio.gather(self._retry_wait, return_exceptions=True)

    async def _wait_for_call(self, seconds: float) -> None:
        with stopped_clocks(), suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called.wait()
