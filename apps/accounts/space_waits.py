"""Track background jobs that wait for disk space, until the space they need is free."""

import time
from collections.abc import Callable
from typing import NamedTuple

from apps.accounts.disk_space import find_shortage, show_bytes

RETRY_SECONDS = 15.0
"""Seconds that a job waits if free space or its need is unknown."""
MARGIN = 1.5
"""The estimated need grows by this factor each time a job runs out of space again."""
FORGET_SECONDS = 600.0
"""Seconds after which only the job's own estimate counts: other jobs may have caused the shortage."""


class _Wait(NamedTuple):
    estimate: int
    needed: int
    since: float
    not_before: float


class SpaceWaits:
    """The waiting jobs of one kind, as known to this process. Thread-safe.

    `free_bytes` returns the bytes that can be written, negative if the reserve is in use, or None if unknown.
    """

    def __init__(self, free_bytes: Callable[[], int | None]) -> None:
        self._free_bytes = free_bytes
        self._waits: dict[int, _Wait] = {}

    def put(self, pk: int, needed: int) -> None:
        """Let a job wait that needs an estimated `needed` bytes."""
        before, now = self._waits.get(pk), time.monotonic()
        most = max(needed, int(before.needed * MARGIN)) if before else needed
        free_bytes = self._free_bytes()
        is_known = free_bytes is not None and (most > 0 or free_bytes < 0)
        self._waits[pk] = _Wait(needed, most, now, now if is_known else now + RETRY_SECONDS)

    def explain(self, pk: int) -> str:
        """Return the status message of a waiting job."""
        wait = self._waits.get(pk)
        about = f"It needs about {show_bytes(wait.needed)}. " if wait and wait.needed else ""
        return f"Waiting for disk space. {about}Work resumes automatically."

    def waiting(self) -> list[int]:
        """Return the ids of jobs that must still wait."""
        waits, now = self._waits.copy(), time.monotonic()
        free_bytes = self._free_bytes() if waits else None
        return [pk for pk, wait in waits.items() if now < wait.not_before or _is_short(wait, free_bytes, now)]

    def forget(self, pk: int) -> None:
        """Forget a job that has ended."""
        self._waits.pop(pk, None)

    def clear(self) -> None:
        """Forget all jobs."""
        self._waits.clear()


def _is_short(wait: _Wait, free_bytes: int | None, now: float) -> bool:
    needed = wait.needed if now - wait.since < FORGET_SECONDS else wait.estimate
    return free_bytes is not None and free_bytes < needed


def explain_waiting() -> str:
    """Return why queued jobs wait if a disk is full, or an empty string."""
    shortage = find_shortage()
    return f"Waiting for disk space: {shortage}" if shortage else ""
