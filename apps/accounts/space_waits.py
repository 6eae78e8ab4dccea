"""Background jobs that ran out of disk space: each waits until there is as much as it is expected to need."""

import time
from collections.abc import Callable

from apps.accounts.disk_space import find_shortage, show_bytes

RETRY_SECONDS = 15.0
"""How long a job waits if nothing says how much space there is, as on a database server's disk."""
MARGIN = 1.5
"""By how much more a job is expected to need each time it runs out of space again."""


class SpaceWaits:
    """The jobs of one kind that wait, as far as this process knows: another process tries each of them once.

    `room` returns the bytes that may still be written, or None if nobody can tell.
    """

    def __init__(self, room: Callable[[], int | None]) -> None:
        self._room = room
        self._needed: dict[int, int] = {}
        self._not_before: dict[int, float] = {}

    def put(self, pk: int, needed: int) -> None:
        """Let a job wait."""
        self._needed[pk] = max(needed, int(self._needed.get(pk, 0) * MARGIN))
        self._not_before[pk] = time.monotonic() + RETRY_SECONDS

    def explain(self, pk: int) -> str:
        """Return the message for the row of a job that waits."""
        needed = self._needed.get(pk, 0)
        about = f"It needs about {show_bytes(needed)} in all. " if needed else ""
        return f"Waiting for disk space. {about}It goes on by itself."

    def waiting(self) -> list[int]:
        """Return the jobs that still have to wait."""
        room = self._room() if self._needed else None
        return [pk for pk in self._needed if self._must_wait(pk, room)]

    def _must_wait(self, pk: int, room: int | None) -> bool:
        if room is None:
            return time.monotonic() < self._not_before[pk]
        return room < self._needed[pk]

    def forget(self, pk: int) -> None:
        """The job has ended."""
        self._needed.pop(pk, None)
        self._not_before.pop(pk, None)


def explain_waiting() -> str:
    """Return why a queued job waits while a disk is full; empty while none is."""
    shortage = find_shortage()
    return f"Waiting for disk space: {shortage}" if shortage else ""
