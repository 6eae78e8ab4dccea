"""Tell people how an endpoint throttles: until when it is paused, and how fast it is called."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db.models import Q
from django.utils import timezone

from apps.environments.models import Environment
from apps.gym.calls.rate_control import LONGEST_PAUSE
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Throttle


@dataclass(frozen=True, slots=True)
class Throttled:
    """An endpoint that throttled calls lately."""

    throttle: Throttle
    now: datetime

    blocks: ClassVar[bool] = False

    @property
    def key(self) -> str:
        return f"throttle {self.throttle.pk} {self.until:%H:%M:%S}" if self.until else f"throttle {self.throttle.pk}"

    @property
    def endpoint(self) -> str:
        model = self.throttle.policy_model
        return f"policy model {model.name}" if model else f"environment {self.throttle.environment}"

    @property
    def until(self) -> datetime | None:
        """The end of the pause; None while calls start."""
        return self.throttle.paused_until if self.throttle.is_paused(self.now) else None

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.throttle.rate or 0.0

    @property
    def failures(self) -> str:
        """`Throttled until 12:30:05 UTC (429: slow down)`."""
        until = f" until {_write_time(self.until, self.now)}" if self.until else ""
        return f"Throttled{until} ({self.throttle.message or 'no message'})"

    @property
    def next_try(self) -> str:
        """The rate, and the concurrency where that is limited."""
        rate = f"{self.rate:.2g} requests/s" if self.rate < 10 else f"{self.rate:.0f} requests/s"
        at_once = f", {self.throttle.concurrency} at once" if self.throttle.concurrency else ""
        asked = self.throttle.retry_after or 0.0
        capped = f"; Retry-After was {asked:.0f} s, capped at {LONGEST_PAUSE:.0f} s" if asked > LONGEST_PAUSE else ""
        return f"{rate}{at_once}{capped}"

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.failures}; {self.next_try}"


def find_throttles(which: Q) -> list[Throttled]:
    """Return the endpoints that throttle now, of those whose throttle passes `which`."""
    now = timezone.now()
    rows = Throttle.objects.filter(which, limited_until__gt=now).select_related("policy_model", "environment")
    return [Throttled(throttle, now) for throttle in rows.order_by("pk")]


def find_quota_message(which: Q) -> str:
    """Return what an endpoint said last about its exhausted quota; empty where none did."""
    said = Throttle.objects.filter(which).exclude(quota_message="").order_by("-quota_at")
    return said.values_list("quota_message", flat=True).first() or ""


def find_quota(endpoint: PolicyModel | Environment) -> Throttle | None:
    """Return the row of an endpoint whose exhausted quota keeps a collection paused."""
    is_model = isinstance(endpoint, PolicyModel)
    uses = Q(policy_model=endpoint) | Q(environment__judge_model=endpoint) if is_model else Q(environment=endpoint)
    paused = Collection.objects.filter(uses, state=Collection.State.PAUSED, pause_reason=Collection.PauseReason.QUOTA)
    mine = Q(policy_model=endpoint) if is_model else Q(environment=endpoint)
    return Throttle.objects.filter(mine).exclude(quota_message="").first() if paused.exists() else None


def _write_time(moment: datetime, now: datetime) -> str:
    day = "" if moment.date() == now.date() else f"{moment:%Y-%m-%d} "
    return f"{day}{moment:%H:%M:%S} UTC"
