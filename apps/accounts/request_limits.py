"""Limit the requests per minute of each caller, over all web processes, at almost no cost per request.

Each process counts by itself and reports to the database once a second or each hundredth of the limit; near the limit,
each thousandth. See docs/decisions/0007-rates-are-counted-in-the-database.md.
"""

import threading
import time
from dataclasses import dataclass

from django.db import DatabaseError

from apps.accounts.disk_space import note_error
from apps.accounts.tallies import add

WINDOW_SECONDS = 60
TELL_SECONDS = 1.0
CLOSE = 0.9
MAX_CALLERS = 20_000
"""Maximum callers in memory per process; those whose minute has ended are removed first."""


@dataclass(slots=True)
class _Window:
    ends_at: float
    told_at: float
    known: int = 0  # of all processes, at the last report
    telling: int = 0  # of this process, being reported
    pending: int = 0  # of this process, not reported yet

    @property
    def count(self) -> int:
        return self.known + self.telling + self.pending


class Limiter:
    """One kind of caller, for example `key`. Thread-safe."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()

    def wait(self, caller: str, limit: int) -> float:
        """Return the seconds until this caller may send a request; 0.0 means now. Does not count."""
        now = time.time()
        with self._lock:
            window = self._windows.get(caller)
            if limit and window is not None and window.ends_at > now and window.count >= limit:
                return window.ends_at - now
        return 0.0

    def take(self, caller: str, limit: int) -> float:
        """Count one request and return 0.0, or return the seconds until the minute ends if its limit is reached.

        A limit of 0 means no limit.
        """
        if not limit:
            return 0.0
        now = time.time()
        with self._lock:
            window = self._windows.get(caller)
            if window is None or window.ends_at <= now:
                window = self._open(caller, now)
            count = window.count
            if count >= limit:
                return window.ends_at - now
            window.pending += 1
            step = limit // 1000 if count + 1 >= limit * CLOSE else limit // 100
            is_due = window.pending >= step or now - window.told_at >= TELL_SECONDS
            if not is_due:
                return 0.0
            telling, window.pending, window.told_at = window.pending, 0, now
            window.telling += telling
        return self._tell(caller, window, telling, limit, now)

    def _tell(self, caller: str, window: _Window, telling: int, limit: int, now: float) -> float:
        try:
            counted = add(f"{self.kind} {caller}", telling, seconds=WINDOW_SECONDS)
        except BaseException as error:
            with self._lock:
                window.telling -= telling
            if isinstance(error, DatabaseError) and note_error(error):
                window.pending += telling  # Each process counts by itself until the disk has space again.
                return 0.0
            raise
        with self._lock:
            window.telling -= telling
            # A late response must not overwrite a newer one of the same minute.
            is_same = window.ends_at == counted.ends_at
            window.known = max(window.known, counted.number) if is_same else counted.number
            window.ends_at = counted.ends_at
        # Other processes used the rest of the limit.
        return max(1.0, counted.ends_at - now) if counted.number > limit else 0.0

    def _open(self, caller: str, now: float) -> _Window:
        if len(self._windows) >= MAX_CALLERS:
            self._windows = {name: one for name, one in self._windows.items() if one.ends_at > now}
            if len(self._windows) >= MAX_CALLERS:
                self._windows.clear()
        window = self._windows[caller] = _Window(ends_at=now + WINDOW_SECONDS, told_at=now)
        return window

    def forget(self) -> None:
        with self._lock:
            self._windows.clear()


CALLERS = Limiter("caller")
ADDRESSES = Limiter("address")
