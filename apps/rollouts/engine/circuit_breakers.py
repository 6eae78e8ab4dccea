"""Circuit breakers: an endpoint that keeps failing gets no new rollouts until one of them goes well.

Each worker counts the calls of an endpoint that fail in a row. At GYMWEB_BREAKER_FAILURES it opens the endpoint's
breaker for all workers: rollouts wait in the queue instead of failing one after the other. When the cooldown is over
one worker lets one rollout through; a call that goes well closes the breaker, otherwise the cooldown doubles.
"""

from collections.abc import Iterable
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
"""Throttling is no failure: an endpoint that says when to come back is well."""


class Endpoint(NamedTuple):
    kind: Literal["policy_model", "environment"]
    pk: int


class Shut(NamedTuple):
    """A breaker that is not closed; `due` says whether one rollout may try, now."""

    due: bool
    retry_at: datetime
    cooldown: float


class Turn(NamedTuple):
    """What a worker has to say of an endpoint: that it works again, or how often in a row it failed."""

    works: bool
    failures: int = 0
    message: str = ""


class Breakers:
    """One worker's view of the breakers. Called from its loop alone; what it has to say is taken by `take_turns`."""

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
        """Whether this endpoint counts as failing, for all workers or as this one has just seen."""
        return endpoint in self._shut or self._failures.get(endpoint, 0) >= settings.BREAKER_FAILURES

    def take_turns(self) -> dict[Endpoint, Turn]:
        turns, self._turns = self._turns, {}
        return turns

    def return_turns(self, turns: dict[Endpoint, Turn]) -> None:
        """Turns that could not be stored; newer ones win."""
        self._turns = {**turns, **self._turns}

    def learn(self, shut: Iterable[Endpoint]) -> None:
        self._shut = frozenset(shut)


def store_turns(turns: dict[Endpoint, Turn]) -> None:
    now = timezone.now()
    for endpoint, turn in turns.items():
        if turn.works:
            shut = Breaker.objects.filter(**_key(endpoint)).exclude(state=Breaker.State.CLOSED)
            shut.update(state=Breaker.State.CLOSED, failures=0, retry_at=None, opened_at=None, cooldown=0.0)
            continue
        breaker, _ = Breaker.objects.get_or_create(**_key(endpoint), defaults={})
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
    """Every breaker that is not closed."""
    now = timezone.now()
    found: dict[Endpoint, Shut] = {}
    rows = Breaker.objects.exclude(state=Breaker.State.CLOSED)
    for model_id, environment_id, retry_at, cooldown in rows.values_list(
        "policy_model_id", "environment_id", "retry_at", "cooldown"
    ):
        endpoint = Endpoint("policy_model", model_id) if model_id else Endpoint("environment", environment_id)
        assert retry_at is not None  # a constraint of the table
        found[endpoint] = Shut(retry_at <= now, retry_at, cooldown)
    return found


def take_trial(endpoint: Endpoint, shut: Shut) -> bool:
    """Win the right to let one rollout through; the next such try comes after twice the cooldown."""
    cooldown = min(LONGEST_COOLDOWN, 2 * shut.cooldown)
    mine = Breaker.objects.filter(**_key(endpoint), retry_at=shut.retry_at).exclude(state=Breaker.State.CLOSED)
    retry_at = timezone.now() + timedelta(seconds=cooldown)
    return bool(mine.update(state=Breaker.State.HALF_OPEN, cooldown=cooldown, retry_at=retry_at))


def _key(endpoint: Endpoint) -> dict[str, Any]:
    return {f"{endpoint.kind}_id": endpoint.pk}
