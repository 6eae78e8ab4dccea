"""Queue the events of captured calls for the consumer of the attempt, which stores them."""

import asyncio
from collections import deque
from contextlib import suppress

from apps.gym.traces.events import TraceUnion

MAX_UNSTORED = 16
"""If this many events of an attempt wait to be stored, the next call waits, too."""

_QueuedEvent = tuple[TraceUnion, "asyncio.Future[None]"]
"""An event, and the future to set once the consumer has it."""


class EventQueue:
    """Used in one event loop: any number of tasks put events, one consumer gets them."""

    def __init__(self) -> None:
        self._events: deque[_QueuedEvent] = deque()
        self._news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._events)

    async def put(self, event: TraceUnion) -> bool:
        """Return True once the consumer has taken the event, and False if the queue is closed."""
        if self._is_closed:
            return False
        taken = asyncio.get_running_loop().create_future()
        self._events.append((event, taken))
        self._news.set()
        await taken
        return True

    async def wait_for_room(self) -> None:
        """Return once fewer than MAX_UNSTORED events wait."""
        while len(self._events) >= MAX_UNSTORED:
            self._has_room.clear()
            await self._has_room.wait()

    async def get(self, until: float) -> _QueuedEvent | None:
        """Return the next event, or None after a call of `wake` or at the loop time `until`."""
        if not self._events:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()
        if not self._events:
            return None
        taken = self._events.popleft()
        self._has_room.set()
        return taken

    def wake(self) -> None:
        """Let `get` return, because the state of the attempt has changed."""
        self._news.set()

    def close(self) -> None:
        """Cancel the tasks whose events were not taken."""
        self._is_closed = True
        for _, taken in self._events:
            taken.cancel()
        self._events.clear()
