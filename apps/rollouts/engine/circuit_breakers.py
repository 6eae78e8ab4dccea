"""Circuit breakers: an endpoint that keeps failing gets no new rollouts until a call succeeds, except tests.

Each worker counts consecutive failed calls per endpoint. At GYMWEB_BREAKER_FAILURES failures, it opens the breaker of
the endpoint for all workers, and rollouts wait in the queue instead of failing. After a cooldown, one worker runs
one test rollout. Each test doubles the cooldown, up to LONGEST_COOLDOWN. A successful call closes the breaker.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.gym.calls.observers import Outcome
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.database_clock import as_utc
from apps.rollouts.models import Breaker

FIRST_COOLDOWN = 5.0
LONGEST_COOLDOWN = 60.0
_FAILURES: frozenset[Outcome] = frozenset({"refused", "server_error", "timed_out", "unreachable", "malformed"})
"""Throttled calls do not count: the endpoint is healthy."""
# Raw SQL, because every claim runs it, and compiling the ORM query takes longer than running it.
_OPEN = "SELECT policy_model_id, environment_id, retry_at, cooldown FROM rollouts_breaker WHERE state <> 'closed'"


class Endpoint(NamedTuple):
    kind: Literal["policy_model", "environment"]
    pk: int

    @property
    def key(self) -> dict[str, Any]:
        """Return the columns that identify the row of this endpoint."""
        return {f"{self.kind}_id": self.pk}


class OpenBreaker(NamedTuple):
    """An open or half-open breaker. `due` is True if a rollout may test the endpoint now."""

    due: bool
    retry_at: datetime
    cooldown: float


class BreakerReport(NamedTuple):
    """A worker's report about an endpoint: it works again, or its number of consecutive failures."""

    works: bool
    failures: int = 0
    message: str = ""


class Breakers:
    """One worker's view of the breakers. Used only on the worker's event loop."""

    def __init__(self) -> None:
        self._failures: dict[Endpoint, int] = {}
        self._open: frozenset[Endpoint] = frozenset()
        self._reports: dict[Endpoint, BreakerReport] = {}

    def observe(self, endpoint: Endpoint, outcome: Outcome, message: str) -> None:
        if outcome in _FAILURES:
            failures = self._failures[endpoint] = self._failures.get(endpoint, 0) + 1
            if failures >= settings.BREAKER_FAILURES:
                self._reports[endpoint] = BreakerReport(False, failures, message)
        elif outcome == "ok":
            if self._failures:
                self._failures.pop(endpoint, None)
            if endpoint in self._open:
                self._reports[endpoint] = BreakerReport(True)
            elif self._reports:
                self._reports.pop(endpoint, None)

    def is_failing(self, endpoint: Endpoint) -> bool:
        """Return True if the breaker is open, or this worker has counted enough failures to open it."""
        return endpoint in self._open or self._failures.get(endpoint, 0) >= settings.BREAKER_FAILURES

    @contextmanager
    def reports(self) -> Iterator[dict[Endpoint, BreakerReport]]:
        """Yield the reports to store within the block.

        If the block raises, they are kept for the next time, unless newer ones replace them.
        """
        reports, self._reports = self._reports, {}
        try:
            yield reports
        except BaseException:
            self._reports = {**reports, **self._reports}
            raise

    def set_open(self, open_breakers: Iterable[Endpoint]) -> None:
        self._open = frozenset(open_breakers)


def store_reports(reports: dict[Endpoint, BreakerReport]) -> None:
    now = timezone.now()
    for endpoint, report in reports.items():
        if report.works:
            unclosed = Breaker.objects.filter(**endpoint.key).exclude(state=Breaker.State.CLOSED)
            unclosed.update(state=Breaker.State.CLOSED, failures=0, retry_at=None, opened_at=None, cooldown=0.0)
            continue
        breaker, _ = Breaker.objects.get_or_create(**endpoint.key, defaults={})
        fields = {"failures": report.failures, "message": cut_clean(report.message.replace("\0", ""), 500)}
        row = Breaker.objects.filter(pk=breaker.pk)
        row.filter(state=Breaker.State.CLOSED).update(
            state=Breaker.State.OPEN,
            opened_at=now,
            retry_at=now + timedelta(seconds=FIRST_COOLDOWN),
            cooldown=FIRST_COOLDOWN,
        )
        row.update(state=Breaker.State.OPEN, **fields)


def read_open_breakers() -> dict[Endpoint, OpenBreaker]:
    """Return all open and half-open breakers."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN)
        rows = cursor.fetchall()
    now = timezone.now()
    found: dict[Endpoint, OpenBreaker] = {}
    for model_id, environment_id, retry_at, cooldown in rows:
        endpoint = Endpoint("policy_model", model_id) if model_id else Endpoint("environment", environment_id)
        found[endpoint] = OpenBreaker(as_utc(retry_at) <= now, as_utc(retry_at), cooldown)
    return found


def claim_breaker_test(endpoint: Endpoint, breaker: OpenBreaker) -> bool:
    """Try to claim the test rollout of the breaker. Return True on success.

    The next test is due after twice the cooldown, at most LONGEST_COOLDOWN seconds.
    """
    cooldown = min(LONGEST_COOLDOWN, 2 * breaker.cooldown)
    unclaimed = Breaker.objects.filter(**endpoint.key, retry_at=breaker.retry_at).exclude(state=Breaker.State.CLOSED)
    retry_at = timezone.now() + timedelta(seconds=cooldown)
    return bool(unclaimed.update(state=Breaker.State.HALF_OPEN, cooldown=cooldown, retry_at=retry_at))
