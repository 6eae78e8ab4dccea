"""Which replies clients received, and recent replies for clients that repeat a request."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

from apps.gym.wires.protocol import Reply

KEPT_REPLIES = 64
"""Replies that are kept for clients that repeat a request."""


class Call(NamedTuple):
    """A call in progress. Its task ends when the reply is stored."""

    number: int
    reply: asyncio.Task[Reply]


class Replies:
    """The replies of one attempt, by the digest of their requests."""

    def __init__(self) -> None:
        self._recent: dict[bytes, Call] = {}
        self._writing: Counter[int] = Counter()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._served: set[int] = set()
        self._unserved: set[int] = set()

    def find(self, digest: bytes) -> Call | None:
        """Return the call with this request, unless it failed."""
        known = self._recent.get(digest)
        return None if known is None or _has_failed(known.reply) else known

    def keep(self, digest: bytes, call: Call) -> None:
        # Move it to the end, so that a repeated request is not dropped first.
        self._recent.pop(digest, None)
        self._recent[digest] = call
        if len(self._recent) > KEPT_REPLIES:
            del self._recent[next(iter(self._recent))]

    def begin(self, call: Call) -> None:
        """Note that a client waits for this reply. Must be followed by `end`."""
        self._writing[call.number] += 1
        self._is_idle.clear()

    def end(self, call: Call, *, is_whole: bool) -> None:
        """Note whether this client received the whole reply. One client that did is enough."""
        self._writing[call.number] -= 1
        self._writing += Counter()  # Drops zeros.
        if not self._writing:
            self._is_idle.set()
        (self._served if is_whole else self._unserved).add(call.number)

    async def wait_until_written(self, seconds: float) -> None:
        """Return once no client waits for a reply, and at the latest after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()
        except TimeoutError:
            pass

    @property
    def unserved(self) -> list[int]:
        """Return the calls whose reply no client has received as a whole."""
        return sorted((self._unserved | self._writing.keys()) - self._served)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
