"""Limit the memory of replies: calls reserve memory before reading a reply, and wait if too little is free.

A reply counts READING times its size while it is read and decoded. The part that the rollout keeps counts RETAINED
times its size until the rollout ends. Events waiting to be stored count in addition. All sizes are in bytes.
"""

import asyncio
import heapq
import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple, Self

from apps.gym.calls.time_limits import stopped_clocks

KIB = 1024
MIB = 1024 * KIB
DEFAULT_LIMIT = 512 * MIB
READING = 6
"""Factor for an ASCII reply: its body, its text, and four temporary copies while its event is encoded and searched."""
RETAINED = 3
"""Factor for the retained part: the conversation, the request that sends it, and a temporary copy of one of them."""
SMALL = 64 * KIB
"""Replies up to this size never wait: 256 of them take 16 MB."""
PATIENCE_SECONDS = 60.0
"""Seconds without a grant after which the oldest rollout may exceed the budget, to prevent deadlocks."""


_WIDEST = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
"""Matches characters beyond U+FFFF, such as emoji, in UTF-8 or escaped."""


class MemoryExceeded(Exception):
    """Raised if a single rollout would need more than the whole budget."""


class MemoryBudget:
    """The memory budget for replies of one event loop.

    `used` can exceed `limit`, because small replies and events are counted without waiting.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.used = 0
        self.freed = 0
        """Bytes of large replies released since the caller last reset this counter."""
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, _Wait]] = []  # a heap, oldest account first
        self._granted_at = 0.0
        self._parked: Counter[Account] = Counter()
        self.pausing: Counter[Account] = Counter()
        """The rollouts that wait before a retry."""

    @property
    def largest_reply(self) -> int:
        """Return the size in bytes of the largest reply that fits."""
        return self.limit // READING

    @property
    def is_full(self) -> bool:
        return self.used >= self.limit

    @property
    def waiting(self) -> int:
        """Return the number of replies that wait to be read."""
        return len(self._waiting)

    def open_account(self) -> "Account":
        """Return an account for a single call whose reply is not retained."""
        return Account(self, next(self._numbers))

    def account(self) -> "Account":
        """Return an account for one rollout. Calls in its `with` block use it; their memory is released at the end."""
        account = self.open_account()
        account.is_kept = True
        return account

    def add(self, size: int) -> None:
        """Count memory that is already in use, without waiting."""
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._grant)

    async def reserve(self, account: "Account", size: int) -> None:
        """Wait until `size` more bytes are free. Time limits are suspended meanwhile.

        Raise MemoryExceeded if the account would exceed the whole budget.
        """
        if account.held + size > self.limit:
            raise MemoryExceeded
        if self._waiting or self.used + size > self.limit:
            with stopped_clocks():
                await self._wait(account, size)
        else:
            self._take(account, size)

    def _take(self, account: "Account", size: int) -> None:
        account.held += size
        self.used += size

    async def _wait(self, account: "Account", size: int) -> None:
        loop = asyncio.get_running_loop()
        wait = _Wait(account, size, loop.create_future())
        heapq.heappush(self._waiting, (account.number, next(self._numbers), wait))
        self._granted_at = self._granted_at or loop.time()
        self._grant()
        try:
            while not wait.granted.done():
                await asyncio.wait([wait.granted], timeout=PATIENCE_SECONDS)
                if self._waiting and loop.time() - self._granted_at >= PATIENCE_SECONDS:
                    self._grant_first()
        except asyncio.CancelledError:
            if wait.granted.done():
                account.drop(size)
            else:
                self._waiting = [entry for entry in self._waiting if entry[2] is not wait]
                heapq.heapify(self._waiting)
                self._grant()
            raise

    def _grant(self) -> None:
        """Grant requests that fit, oldest account first.

        If all memory is held by waiting rollouts, grant one anyway.
        """
        while self._waiting:
            size = self._waiting[0][2].size
            if self.used + size > self.limit and self.used > self._held_idle():
                return
            self._grant_first()

    def _held_idle(self) -> int:
        """Return the bytes held by rollouts that wait for memory or for an endpoint."""
        return sum(account.held for account in {wait.account for _, _, wait in self._waiting} | self._parked.keys())

    def park(self, account: "Account") -> None:
        self._parked[account] += 1
        if self._waiting:
            self._grant()

    def unpark(self, account: "Account") -> None:
        self._parked[account] -= 1
        if not self._parked[account]:
            del self._parked[account]

    def _grant_first(self) -> None:
        _, _, wait = heapq.heappop(self._waiting)
        self._granted_at = asyncio.get_running_loop().time() if self._waiting else 0.0
        self._take(wait.account, wait.size)
        wait.granted.set_result(None)


class Account:
    """The memory held by one rollout. A decoded reply is pending until its event is counted."""

    __slots__ = ("_kept", "_outer", "_pending", "budget", "events", "held", "is_kept", "number")

    def __init__(self, budget: MemoryBudget, number: int) -> None:
        self.budget = budget
        self.number = number
        self.held = 0
        self.events = 0
        self._kept = 0
        self._pending = 0
        self.is_kept = False

    def __enter__(self) -> Self:
        self._outer = _current.get()
        _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.set(self._outer)
        self.close()

    def retain(self, size: int) -> None:
        """Count a stored event of `size` bytes, which includes all replies read before."""
        self.events += 1
        change = RETAINED * size - self._pending
        self._kept += RETAINED * size
        self._pending = 0
        self.held += change
        self.budget.release(-change)

    def drop(self, reserved: int, size: int = 0) -> None:
        """Release the reservation of a reply, except for `size` bytes that an event will include."""
        pending = RETAINED * size if self.is_kept else 0
        self._pending += pending
        self.held += pending - reserved
        self.budget.freed += reserved
        self.budget.release(reserved - pending)

    def close(self) -> None:
        """Release everything except reservations of replies that are still referenced."""
        kept, self._kept, self._pending, self.is_kept = self._kept + self._pending, 0, 0, False
        self.held -= kept
        self.budget.release(kept)


class Hold:
    """Memory reserved for one reply, released when this object is garbage-collected."""

    __slots__ = ("_account", "_events", "_loop", "_reserved", "_thread", "size")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._events = account.events
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._reserved = 0
        self.size = 0

    async def cover(self, size: int, *, ahead: int = 0) -> None:
        """Reserve memory for a reply of `size` bytes, or up to `ahead` bytes if the budget allows.

        Raise MemoryExceeded.
        """
        account = self._account
        most = (account.budget.limit - account.held + self._reserved) // READING
        size = max(size, min(ahead, most))
        more = READING * size - self._reserved
        if more > 0:
            await account.budget.reserve(account, more)
        else:
            account.held += more
            account.budget.release(-more)
        self._reserved += more
        self.size = size

    def __del__(self) -> None:
        # Events counted since then already include the reply.
        size = self.size if self._account.events == self._events else 0
        with suppress(RuntimeError):  # raised if the loop is closed; then the budget does not matter
            if threading.get_ident() == self._thread:
                self._account.drop(self._reserved, size)
                return
            self._loop.call_soon_threadsafe(self._account.drop, self._reserved, size)


class _Wait(NamedTuple):
    account: Account
    size: int
    granted: "asyncio.Future[None]"


_current: ContextVar[Account | None] = ContextVar("memory_account", default=None)


def text_width(body: bytes) -> int:
    """Return the bytes per character of the decoded body: a single wide character widens the whole string."""
    if body.isascii() and b"\\u" not in body:
        return 1
    return 4 if _WIDEST.search(body) else 2


@contextmanager
def parked(*, pausing: bool = False) -> Iterator[None]:
    """Mark the current rollout as waiting for an endpoint: other rollouts then do not wait for its memory.

    With `pausing`, it waits before a retry, and another rollout may use its seat (see WorkerSeats).
    """
    account = _current.get()
    if account is None:
        yield
        return
    budget = account.budget
    budget.park(account)
    if pausing:
        budget.pausing[account] += 1
    try:
        yield
    finally:
        budget.unpark(account)
        if pausing:
            budget.pausing[account] -= 1
            if not budget.pausing[account]:
                del budget.pausing[account]


def current_account() -> Account | None:
    return _current.get()
