"""Background jobs that ran out of disk space. Each waits until the expected space is free."""

import time
from collections.abc import Callable
from typing import NamedTuple

from apps.accounts.disk_space import find_shortage, show_bytes

RETRY_SECONDS = 15.0
"""How long a job waits if nothing says how much space there is or how much it needs."""
MARGIN = 1.5
"""The expected need grows by this factor each time a job runs out of space again."""
FORGET_SECONDS = 600.0
"""After this time only the job's own estimate counts, because other jobs may have used the space."""


class _Wait(NamedTuple):
    estimate: int
    needed: int
    since: float
    not_before: float


class SpaceWaits:
    """The waiting jobs of one kind, as known to this process. Other processes try each of them once.

    `room` returns the bytes that may still be written, negative below the reserve, or None if that is unknown. Any
    thread may call it.
    """

    def __init__(self, room: Callable[[], int | None]) -> None:
        self._room = room
        self._waits: dict[int, _Wait] = {}

    def put(self, pk: int, needed: int) -> None:
        """Let a job wait that is expected to need `needed` bytes."""
        before, now = self._waits.get(pk), time.monotonic()
        most = max(needed, int(before.needed * MARGIN)) if before else needed
        room = self._room()
        is_known = room is not None and (most > 0 or room < 0)
        self._waits[pk] = _Wait(needed, most, now, now if is_known else now + RETRY_SECONDS)

    def explain(self, pk: int) -> str:
        """Return the message for the row of a job that waits."""
        wait = self._waits.get(pk)
        about = f"It needs about {show_bytes(wait.needed)}. " if wait and wait.needed else ""
        return f"Waiting for disk space. {about}Work resumes automatically."

    def waiting(self) -> list[int]:
        """Return the jobs that still have to wait."""
        waits, now = self._waits.copy(), time.monotonic()
        room = self._room() if waits else None
        return [pk for pk, wait in waits.items() if now < wait.not_before or _is_short(wait, room, now)]

    def forget(self, pk: int) -> None:
        """Forget a job that has ended."""
        self._waits.pop(pk, None)

    def clear(self) -> None:
        """Forget all jobs."""
        self._waits.clear()


def _is_short(wait: _Wait, room: int | None, now: float) -> bool:
    needed = wait.needed if now - wait.since < FORGET_SECONDS else wait.estimate
    return room is not None and room < needed


def explain_waiting() -> str:
    """Return why queued jobs wait while a disk is full; empty otherwise."""
    shortage = find_shortage()
    return f"Waiting for disk space: {shortage}" if shortage else ""
