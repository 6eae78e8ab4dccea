"""Circuit breakers: an endpoint that keeps failing gets no new rollouts until a call succeeds, except tests.

Each worker counts consecutive failed calls per endpoint. At GYMWEB_BREAKER_FAILURES failures, it opens the breaker of
the endpoint for all workers, and rollouts wait in the queue instead of failing. After a cooldown, one worker runs
one test rollout. Each test doubles the cooldown, up to LONGEST_COOLDOWN. A successful call closes the breaker.

The rollout may be what fails, not the endpoint. So error replies do not count while the endpoint answers only other
collections, and a breaker holds back only the collections whose calls failed. These take turns with the tests. A
rollout is a suspect once the endpoint has answered others between its failures twice. Calls of suspects open no
breaker, and their failed attempts count. A collection that mostly fails is claimed after all others.
"""

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
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
ANSWERED_SECONDS = 5.0
"""For so long after a successful call, an endpoint is considered to answer its collection."""
ANSWER_WEIGHT = 0.1
"""Failed calls that a successful call makes up for: a collection whose calls mostly succeed is not claimed last."""
SUSPECT_GAPS = 2
"""Gaps between failures of a rollout in which its endpoint answered others. One may be a server that shuts down."""
MAX_FAILING = 10_000
"""Most rollouts whose failures a worker remembers for each endpoint."""
MAX_NAMED = 5
"""Most rollouts that a breaker names."""
_FAILURES: frozenset[Outcome] = frozenset({"refused", "server_error", "timed_out", "unreachable", "malformed"})
"""Throttled calls do not count: the endpoint is healthy."""
_SILENT: frozenset[Outcome] = frozenset({"timed_out", "unreachable"})
_REPLIES: frozenset[Outcome] = frozenset({"server_error", "malformed"})
"""Failures of an endpoint that answers."""
# Raw SQL, because every claim runs it, and compiling the ORM query takes longer than running it.
_OPEN = (
    "SELECT policy_model_id, environment_id, retry_at, cooldown, tests FROM rollouts_breaker WHERE state <> 'closed'"
)


class Endpoint(NamedTuple):
    kind: Literal["policy_model", "environment"]
    pk: int

    @property
    def key(self) -> dict[str, Any]:
        """Return the columns that identify the row of this endpoint."""
        return {f"{self.kind}_id": self.pk}


class OpenBreaker(NamedTuple):
    """An open or half-open breaker. `tests` counts the tests since it opened by id of the collections that it holds.

    Without any, it holds all collections.
    """

    retry_at: datetime
    cooldown: float
    tests: Mapping[int, int] = {}

    def holds(self, collection: int) -> bool:
        """Return True if rollouts of the collection wait, because its own calls failed."""
        return not self.tests or collection in self.tests


class BreakerReport(NamedTuple):
    """A worker's report about an endpoint: it works again, or its consecutive failures and whose calls failed."""

    works: bool
    failures: int = 0
    message: str = ""
    rollouts: tuple[int, ...] = ()
    collections: tuple[int, ...] = ()


class _Streak:
    """The failed calls of a rollout since its last successful call, and the gaps in which others were answered.

    `answers` is how many calls the endpoint had answered at the last failure.
    """

    __slots__ = ("answers", "gaps")

    def __init__(self, answers: int) -> None:
        self.answers, self.gaps = answers, 0

    def add(self, answers: int) -> None:
        self.gaps += answers > self.answers
        self.answers = answers


class Breakers:
    """One worker's view of the breakers. Used only on the worker's event loop."""

    def __init__(self) -> None:
        self._failures: dict[Endpoint, Counter[int]] = {}  # by collection id
        self._failing: dict[int, tuple[float, int, float]] = {}  # failed calls, attempts, last time by collection id
        self._open: frozenset[Endpoint] = frozenset()
        self._reports: dict[Endpoint, BreakerReport] = {}
        self._answers: defaultdict[Endpoint, int] = defaultdict(int)
        self._answered_at: dict[Endpoint | tuple[Endpoint, int], float] = {}  # also by collection id
        self._silent: frozenset[Endpoint] = frozenset()
        self.streaks: defaultdict[Endpoint, dict[int, _Streak]] = defaultdict(dict)
        """Streaks by endpoint and rollout id, the latest last."""

    def observe(
        self, endpoint: Endpoint, outcome: Outcome, message: str, rollout: int | None = None, collection: int = 0
    ) -> None:
        """Count the outcome of a call that was made for the rollout with this id, of the collection with this id."""
        if outcome in _FAILURES:
            self.count_failure(collection, is_attempt=False)
            self._silent = self._silent | {endpoint} if outcome in _SILENT else self._silent - {endpoint}
            is_suspect = self._is_of_suspect(endpoint, rollout)
            if is_suspect or (outcome in _REPLIES and self._answers_only_others(endpoint, collection)):
                return
            counts = self._failures.setdefault(endpoint, Counter())
            counts[collection] += 1
            if (failures := counts.total()) >= settings.BREAKER_FAILURES:
                named = tuple(islice(reversed(self.streaks[endpoint]), MAX_NAMED))
                held = tuple(pk for pk in counts if pk)
                self._reports[endpoint] = BreakerReport(False, failures, message, named, held)
        elif outcome == "ok":
            if self._failing and (failing := self._failing.get(collection)):
                self._failing[collection] = max(0.0, failing[0] - ANSWER_WEIGHT), *failing[1:]
            self._answers[endpoint] += 1
            self._answered_at[endpoint] = self._answered_at[endpoint, collection] = time.monotonic()
            if rollout is not None and endpoint in self.streaks:
                self.streaks[endpoint].pop(rollout, None)
            if self._failures:
                self._failures.pop(endpoint, None)
            if endpoint in self._open:
                self._reports[endpoint] = BreakerReport(True)
            elif self._reports:
                self._reports.pop(endpoint, None)

    def count_failure(self, collection: int, *, is_attempt: bool = True) -> None:
        """Count a failed attempt or call of a collection."""
        calls, attempts, _ = self._failing.get(collection, (0.0, 0, 0.0))
        self._failing[collection] = calls + (not is_attempt), attempts + is_attempt, time.monotonic()

    def forgive(self, collection: int) -> None:
        """Forget the failures of a collection, because a rollout completed."""
        if self._failing:
            self._failing.pop(collection, None)

    def failing_collections(self) -> frozenset[int]:
        """Return the collections that mostly failed, several times and lately. Others are claimed first."""
        since = time.monotonic() - LONGEST_COOLDOWN
        self._failing = {pk: found for pk, found in self._failing.items() if found[2] > since}
        most = settings.BREAKER_FAILURES
        return frozenset(pk for pk, (calls, attempts, _) in self._failing.items() if calls + attempts >= most)

    def _answers_only_others(self, endpoint: Endpoint, collection: int) -> bool:
        """Return True if the endpoint answers other collections. One that was just answered shows an outage."""
        since = time.monotonic() - ANSWERED_SECONDS
        own = self._answered_at.get((endpoint, collection), -math.inf)
        return own <= since < self._answered_at.get(endpoint, -math.inf)

    def _is_of_suspect(self, endpoint: Endpoint, rollout: int | None) -> bool:
        """Add a failed call to the streak of its rollout. Return True if the rollout is a suspect."""
        if rollout is None:
            return False
        streaks = self.streaks[endpoint]
        # Taken out and put back, so that the latest is the last.
        answers = self._answers[endpoint]
        streak = streaks[rollout] = streaks.pop(rollout, _Streak(answers))
        streak.add(answers)
        if len(streaks) > MAX_FAILING:
            del streaks[next(iter(streaks))]
        return streak.gaps >= SUSPECT_GAPS

    def is_failing(self, endpoint: Endpoint, rollout: int) -> bool:
        """Return True if the endpoint fails, not the rollout.

        The breaker is open, or this worker has counted enough failures to open it, and the rollout is no suspect.
        """
        streak = self.streaks[endpoint].get(rollout) if endpoint in self.streaks else None
        if streak and streak.gaps >= SUSPECT_GAPS:
            return False
        counts = self._failures.get(endpoint)
        return endpoint in self._open or (counts is not None and counts.total() >= settings.BREAKER_FAILURES)

    def is_silent(self, endpoint: Endpoint) -> bool:
        """Return True if the endpoint did not reply at all to its last failed call: its rollouts are not the cause."""
        return endpoint in self._silent

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
            unclosed.update(
                state=Breaker.State.CLOSED, failures=0, retry_at=None, opened_at=None, cooldown=0.0, tests={}
            )
            continue
        breaker, _ = Breaker.objects.get_or_create(**endpoint.key, defaults={})
        message = cut_clean(report.message.replace("\0", ""), 500)
        tests = {**{str(pk): 0 for pk in report.collections}, **breaker.tests}
        fields = {"failures": report.failures, "message": message, "rollouts": report.rollouts, "tests": tests}
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
    found: dict[Endpoint, OpenBreaker] = {}
    for model_id, environment_id, retry_at, cooldown, tests in rows:
        endpoint = Endpoint("policy_model", model_id) if model_id else Endpoint("environment", environment_id)
        counts = {int(pk): number for pk, number in json.loads(tests).items()}
        found[endpoint] = OpenBreaker(as_utc(retry_at), cooldown, counts)
    return found


def claim_breaker_test(endpoint: Endpoint, breaker: OpenBreaker, collection: int) -> bool:
    """Try to claim the test rollout of the breaker for a collection. Return True on success.

    The next test is due after twice the cooldown, at most LONGEST_COOLDOWN seconds.
    """
    cooldown = min(LONGEST_COOLDOWN, 2 * breaker.cooldown)
    unclaimed = Breaker.objects.filter(**endpoint.key, retry_at=breaker.retry_at).exclude(state=Breaker.State.CLOSED)
    retry_at = timezone.now() + timedelta(seconds=cooldown)
    tests = {**breaker.tests, collection: breaker.tests.get(collection, 0) + 1}
    return bool(unclaimed.update(state=Breaker.State.HALF_OPEN, cooldown=cooldown, retry_at=retry_at, tests=tests))
