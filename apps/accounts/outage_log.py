"""Log outages: one line at the start, one per minute while it lasts, one at the end."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from apps.accounts.outages import TooManyRequests, is_outage

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0
SETTLE_SECONDS = 10.0
"""Seconds without failures after which an outage is over, so that intermittent failures count as one outage."""


class OutageLog:
    """Logs outages of one component. Thread-safe."""

    def __init__(self, subject: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._subject = subject
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: Counter[str] = Counter()  # of the current outage, by kind of work
        self._began = self._failed_at = self._logged_at = 0.0
        self._worked_at: float | None = None

    def failed(self, work: str, problem: BaseException, *, traceback: bool = False) -> None:
        """Count a failure.

        The first failure of an outage is logged, with traceback if `traceback` is True, then one line per minute.
        """
        with self._lock:
            now = self._failed_at = self._clock()
            self._worked_at = None
            is_first = not self._failures
            self._failures[work] += 1
            if is_first:
                self._began = now
            elif now - self._logged_at < REPEAT_SECONDS:
                return
            self._logged_at = now
            seconds, tries, works = now - self._began, self._failures.total(), dict(self._failures)
        if is_first:
            level, exc_info = (logging.ERROR, problem) if traceback else (logging.WARNING, None)
            logger.log(level, "%s fails (%s), retrying: %r", self._subject, work, problem, exc_info=exc_info)
        else:
            counts = ", ".join(f"{name} {count}" for name, count in works.items())
            values = (self._subject, seconds, tries, counts, problem)
            logger.warning("%s has failed for %.0f s, %d times (%s): %r", *values)

    def works(self) -> None:
        """Log the end of the outage if nothing has failed for SETTLE_SECONDS. Cheap without an outage.

        The outage is taken to have ended at the first call after the last failure.
        """
        if not self._failures:
            return
        with self._lock:
            now = self._clock()
            if self._worked_at is None:
                self._worked_at = now
            if not self._failures or now - self._failed_at < SETTLE_SECONDS:
                return
            seconds, tries = self._worked_at - self._began, self._failures.total()
            self._failures.clear()
            self._worked_at = None
        logger.warning("%s works again after %.0f s (failures: %d)", self._subject, seconds, tries)


class _DatabaseLog(OutageLog):
    """Logs refusals of waiting requests separately: the database itself works."""

    def failed(self, work: str, problem: BaseException, *, traceback: bool = False) -> None:
        if isinstance(problem, TooManyRequests):
            _BUSY.failed(work, problem)
        else:
            super().failed(work, problem, traceback=traceback)

    def works(self) -> None:
        _BUSY.works()
        super().works()


_BUSY = OutageLog("Waiting for a database connection of this web process")
DATABASE = _DatabaseLog("The database")
LAYER = OutageLog("The channel layer")
DISK = OutageLog("The disk")


class RetryLog:
    """Logs failures of work that is retried. Database outages are logged once for all such work."""

    def __init__(self, work: str, *, traceback: bool = False) -> None:
        self._work = work
        self._traceback = traceback
        self._own = OutageLog(work)

    def failed(self, problem: BaseException) -> None:
        """Log a database outage without traceback, and other errors with one if requested."""
        if is_outage(problem):
            DATABASE.failed(self._work, problem)
        else:
            self._own.failed(type(problem).__name__, problem, traceback=self._traceback)

    def works(self) -> None:
        """Report success. Call it after work that used the database."""
        self._own.works()
        DATABASE.works()
