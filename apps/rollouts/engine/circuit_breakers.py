"""Circuit breakers: an endpoint that keeps failing gets no new rollouts until a test rollout succeeds.

Each worker counts consecutive failed calls per endpoint. At GYMWEB_BREAKER_FAILURES it opens the breaker of the
endpoint for all workers: rollouts wait in the queue instead of failing. After the cooldown, one worker lets one rollout
through: a successful call closes the breaker, a failure doubles the cooldown.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from django.conf import settings
from django.utils import timezone

from apps.gym.calls.observers import Outcome
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.models import Breaker

FIRST_COOLDOWN = 5.0
LONGEST_COOLDOWN = 60.0
_FAILURES: frozenset[Outcome] = frozenset({"refused", "server_error", "timed_out", "unreachable", "malformed"})
"""Throttling is not a failure: an endpoint that throttles is healthy."""


class Endpoint(NamedTuple):
    kind: Literal["policy_model", "environment"]
    pk: int

    @property
    def key(self) -> dict[str, Any]:
        """Return the columns that identify the row of this endpoint."""
        return {f"{self.kind}_id": self.pk}


class Shut(NamedTuple):
    """A breaker that is not closed; `due` is true if one rollout may test the endpoint now."""

    due: bool
    retry_at: datetime
    cooldown: float


class Turn(NamedTuple):
    """A worker's report about an endpoint: it works again, or its number of consecutive failures."""

    works: bool
    failures: int = 0
    message: str = ""


class Breakers:
    """One worker's view of the breakers. Used only by the worker's loop; `turns` returns the reports to store."""

    def __init__(self) -> None:
        self._failures: dict[Endpoint, int] = {}
        self._shut: frozenset[Endpoint] = frozenset()
        self._turns: dict[Endpoint, Turn] = {}

    def observe(self, endpoint: Endpoint, outcome: Outcome, message: str) -> None:
        if outcome in _FAILURES:
            failures = self._failures[endpoint] = self._failures.get(endpoint, 0) + 1
            if failures >= settings.BREAKER_FAILURES:
                self._turns[endpoint] = Turn(False, failures, message)
        elif outcome == "ok":
            if self._failures:
                self._failures.pop(endpoint, None)
            if endpoint in self._shut:
                self._turns[endpoint] = Turn(True)
            elif self._turns:
                self._turns.pop(endpoint, None)

    def holds(self, endpoint: Endpoint) -> bool:
        """Return True if this endpoint fails, for all workers or in this one."""
        return endpoint in self._shut or self._failures.get(endpoint, 0) >= settings.BREAKER_FAILURES

    @contextmanager
    def turns(self) -> Iterator[dict[Endpoint, Turn]]:
        """Yield the reports to store within the block.

        If storing fails they are kept, unless newer ones replace them.
        """
        turns, self._turns = self._turns, {}
        try:
            yield turns
        except BaseException:
            self._turns = {**turns, **self._turns}
            raise

    def learn(self, shut: Iterable[Endpoint]) -> None:
        self._shut = frozenset(shut)


def store_turns(turns: dict[Endpoint, Turn]) -> None:
    now = timezone.now()
    for endpoint, turn in turns.items():
        if turn.works:
            shut = Breaker.objects.filter(**endpoint.key).exclude(state=Breaker.State.CLOSED)
            shut.update(state=Breaker.State.CLOSED, failures=0, retry_at=None, opened_at=None, cooldown=0.0)
            continue
        breaker, _ = Breaker.objects.get_or_create(**endpoint.key, defaults={})
        said = {"failures": turn.failures, "message": cut_clean(turn.message.replace("\0", ""), 500)}
        mine = Breaker.objects.filter(pk=breaker.pk)
        mine.filter(state=Breaker.State.CLOSED).update(
            state=Breaker.State.OPEN,
            opened_at=now,
            retry_at=now + timedelta(seconds=FIRST_COOLDOWN),
            cooldown=FIRST_COOLDOWN,
        )
        mine.update(state=Breaker.State.OPEN, **said)


def read_shut() -> dict[Endpoint, Shut]:
    """Return all breakers that are not closed."""
    now = timezone.now()
    found: dict[Endpoint, Shut] = {}
    rows = Breaker.objects.exclude(state=Breaker.State.CLOSED)
    for model_id, environment_id, retry_at, cooldown in rows.values_list(
        "policy_model_id", "environment_id", "retry_at", "cooldown"
    ):
        endpoint = Endpoint("policy_model", model_id) if model_id else Endpoint("environment", environment_id)
        assert retry_at is not None  # guaranteed by a constraint of the table
        found[endpoint] = Shut(retry_at <= now, retry_at, cooldown)
    return found


def take_trial(endpoint: Endpoint, shut: Shut) -> bool:
    """Try to claim the test rollout of the breaker. The next test is due after twice the cooldown."""
    cooldown = min(LONGEST_COOLDOWN, 2 * shut.cooldown)
    mine = Breaker.objects.filter(**endpoint.key, retry_at=shut.retry_at).exclude(state=Breaker.State.CLOSED)
    retry_at = timezone.now() + timedelta(seconds=cooldown)
    return bool(mine.update(state=Breaker.State.HALF_OPEN, cooldown=cooldown, retry_at=retry_at))
