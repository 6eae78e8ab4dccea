"""Limit requests per minute of each caller across all web processes, at little cost per request.

Each process counts locally and reports to the database once a second or per hundredth of the limit; near the limit, per
thousandth. See docs/decisions/0007-rates-are-counted-in-the-database.md.
"""

import threading
import time
from dataclasses import dataclass

from django.db import DatabaseError

from apps.accounts.disk_space import note_error
from apps.accounts.tallies import add

WINDOW_SECONDS = 60
REPORT_SECONDS = 1.0
NEAR_LIMIT = 0.9
MAX_CALLERS = 20_000
"""Maximum callers in memory per process. Callers whose minute has ended are removed first."""


@dataclass(slots=True)
class _Window:
    ends_at: float
    reported_at: float
    known: int = 0  # of all processes, as of the last report
    reporting: int = 0  # of this process, being reported
    pending: int = 0  # of this process, not reported yet

    @property
    def count(self) -> int:
        return self.known + self.reporting + self.pending


class Limiter:
    """The request limit of one kind of caller, for example `address`. Thread-safe."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()

    def wait(self, caller: str, limit: int) -> float:
        """Return the seconds until this caller may send a request, 0.0 for now. Does not count a request."""
        now = time.time()
        with self._lock:
            window = self._windows.get(caller)
            if limit and window is not None and window.ends_at > now and window.count >= limit:
                return window.ends_at - now
        return 0.0

    def take(self, caller: str, limit: int) -> float:
        """Count a request and return 0.0, or return the seconds until the minute ends if the limit is reached.

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
            step = limit // 1000 if count + 1 >= limit * NEAR_LIMIT else limit // 100
            is_due = window.pending >= step or now - window.reported_at >= REPORT_SECONDS
            if not is_due:
                return 0.0
            reporting, window.pending, window.reported_at = window.pending, 0, now
            window.reporting += reporting
        return self._report(caller, window, reporting, limit, now)

    def _report(self, caller: str, window: _Window, reporting: int, limit: int, now: float) -> float:
        try:
            counted = add(f"{self.kind} {caller}", reporting, seconds=WINDOW_SECONDS)
        except BaseException as error:
            with self._lock:
                window.reporting -= reporting
            if isinstance(error, DatabaseError) and note_error(error):
                window.pending += reporting  # Each process counts by itself until the disk has space again.
                return 0.0
            raise
        with self._lock:
            window.reporting -= reporting
            # A late response must not overwrite a newer count of the same minute.
            is_same = window.ends_at == counted.ends_at
            window.known = max(window.known, counted.number) if is_same else counted.number
            window.ends_at = counted.ends_at
        # Other processes have used the rest of the limit.
        return max(1.0, counted.ends_at - now) if counted.number > limit else 0.0

    def _open(self, caller: str, now: float) -> _Window:
        if len(self._windows) >= MAX_CALLERS:
            self._windows = {name: one for name, one in self._windows.items() if one.ends_at > now}
            if len(self._windows) >= MAX_CALLERS:
                self._windows.clear()
        window = self._windows[caller] = _Window(ends_at=now + WINDOW_SECONDS, reported_at=now)
        return window

    def forget(self) -> None:
        with self._lock:
            self._windows.clear()


CALLERS = Limiter("caller")
ADDRESSES = Limiter("address")
