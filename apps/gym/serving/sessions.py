"""Sessions of a served environment: identified by a cookie, expired when unused, limited in number."""

import asyncio
import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from apps.gym.resources.protocol import Session
from apps.gym.serving.served_request import Refused

VERIFIED_SECONDS = 60.0
"""Seconds until a verified session expires. Clients of the protocol never close sessions."""
RETRY_AFTER_SECONDS = 5


class OpenSession(msgspec.Struct):
    """A session and its expiry, on the clock of `Sessions`."""

    session: Session
    ends_at: float
    verified: bool = False


class Sessions:
    """Up to `most` sessions, each kept for `seconds` after its last call, plus as many temporary ones."""

    def __init__(self, *, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        # Least recently used first.
        self._open: OrderedDict[str, OpenSession] = OrderedDict()
        self._pending = 0
        self._brief = 0

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, opening: Callable[[], Awaitable[Session]]) -> str:
        """Open a session and return its random name. Raise Refused if all are in use, and the errors of `opening`."""
        await self._ensure_capacity()
        # Counted before it is opened, because many may be opening concurrently.
        self._pending += 1
        try:
            session = await opening()
        finally:
            self._pending -= 1
        return self.add(session)

    def add(self, session: Session) -> str:
        """Add an open session regardless of the limit. Return its name."""
        name = secrets.token_urlsafe(24)
        self._open[name] = OpenSession(session, self._clock() + self._seconds)
        return name

    @contextlib.asynccontextmanager
    async def borrow(self, opening: Callable[[], Awaitable[Session]]) -> AsyncIterator[Session]:
        """Yield a temporary session for a single request.

        Temporary sessions have their own limit; otherwise, nothing could be verified while all sessions are in use.
        Raise Refused if there are too many, and the errors of `opening`.
        """
        if self._brief >= self._most:
            raise self._refuse(f"{self._most:,} verifications are in progress.")
        self._brief += 1
        try:
            session = await opening()
            try:
                yield session
            finally:
                await session.close()
        finally:
            self._brief -= 1

    def _refuse(self, message: str) -> Refused:
        return Refused(503, message, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})

    async def _ensure_capacity(self) -> None:
        await self.sweep()
        # Other sessions may have been opened while this one was closed.
        while len(self._open) + self._pending >= self._most:
            done = next((name for name, held in self._open.items() if held.verified), None)
            if done is None:
                raise self._refuse(f"All {self._most:,} sessions are in use.")
            await self.close(done)

    def find(self, name: str) -> Session | None:
        """Return the session with this name and extend its lifetime, or None."""
        held = self._open.get(name)
        if held is None or held.ends_at <= self._clock():
            return None
        if not held.verified:
            held.ends_at = self._clock() + self._seconds
            self._open.move_to_end(name)
        return held.session

    def mark_verified(self, name: str) -> None:
        held = self._open.get(name)
        if held is not None:
            held.verified = True
            held.ends_at = min(held.ends_at, self._clock() + VERIFIED_SECONDS)

    async def close(self, name: str) -> bool:
        """Close a session. Return True if it existed."""
        held = self._open.pop(name, None)
        if held is not None:
            await held.session.close()
        return held is not None

    async def sweep(self) -> None:
        now = self._clock()
        for name in [name for name, held in self._open.items() if held.ends_at <= now]:
            await self.close(name)

    async def close_all(self) -> None:
        await asyncio.gather(*map(self.close, list(self._open)))
