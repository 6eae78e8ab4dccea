"""What holds a collection back and what to do about it, in the words that page, API and command share."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db.models import Q
from django.utils import timezone

from apps.accounts.disk_space import Place, Shortage, find_shortage
from apps.environments.environment_health import is_held_back
from apps.environments.models import Environment
from apps.policies.models import Health, PolicyModel
from apps.rollouts.database_clock import server_now
from apps.rollouts.engine.worker_leases import live_workers
from apps.rollouts.models import Breaker, Collection, Worker
from apps.rollouts.steering.throttle_notices import Throttled, find_quota_message, find_throttles

RAISE = {
    Collection.PauseReason.MAX_SECONDS: "raise or remove its limit of seconds",
    Collection.PauseReason.MAX_TOKENS: "raise or remove its limit of tokens",
    Collection.PauseReason.MAX_COST: "raise or remove its limit of cost",
    Collection.PauseReason.QUOTA: "add credit or raise the limit at the provider",
}
REMEDIES = {
    Collection.PauseReason.ASKED: "resume it when it may go on",
    **{reason: f"{remedy}, then resume it" for reason, remedy in RAISE.items()},
}


@dataclass(frozen=True, slots=True)
class Hold:
    """An endpoint whose breaker lets no new rollouts through."""

    breaker: Breaker
    now: datetime

    blocks: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Tells one hold from another while it lasts."""
        return f"breaker {self.breaker.pk}"

    @property
    def endpoint(self) -> str:
        model = self.breaker.policy_model
        return f"policy model {model.name}" if model else f"environment {self.breaker.environment}"

    @property
    def seconds(self) -> float:
        """Until one rollout may try it again."""
        assert self.breaker.retry_at is not None  # a constraint of the table
        return max(0.0, (self.breaker.retry_at - self.now).total_seconds())

    @property
    def failures(self) -> str:
        count = self.breaker.failures
        return f"{count} call{'' if count == 1 else 's'} failed in a row: {self.breaker.message or 'no message'}"

    @property
    def next_try(self) -> str:
        """`one rollout is trying it; …` while half open; a try that is due waits for a worker with a free seat."""
        wait = f"next try in {self.seconds:.0f} s" if self.seconds >= 0.5 else "the next try is due"
        return f"one rollout is trying it; {wait}" if self.breaker.state == Breaker.State.HALF_OPEN else wait

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.failures}; {self.next_try}"


@dataclass(frozen=True, slots=True)
class Unwell:
    """An environment whose server does not answer its health checks."""

    environment: Environment
    now: datetime

    blocks: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"unwell {self.environment.pk}"

    @property
    def endpoint(self) -> str:
        return f"environment {self.environment}"

    @property
    def failures(self) -> str:
        return f"its server is unwell: {self.environment.health_message or 'no message'}"

    @property
    def next_try(self) -> str:
        due = self.environment.probe_due_at
        seconds = (due - self.now).total_seconds() if due else 0.0
        return f"next health check in {seconds:.0f} s" if seconds >= 0.5 else "the next health check is due"

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.failures}; {self.next_try}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A live worker that cannot run the collection, as it is set up."""

    worker: Worker
    why: str

    blocks: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"refusal {self.worker.pk}"

    @property
    def endpoint(self) -> str:
        return str(self.worker)

    @property
    def failures(self) -> str:
        return f"it cannot run this collection: {self.why}"

    @property
    def next_try(self) -> str:
        return "it looks again every few seconds, and other workers may run it"

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.failures}; {self.next_try}"


@dataclass(frozen=True, slots=True)
class NoSpace:
    """A database whose disk is full. Computed, since nothing can be stored then: see docs/decisions/0010."""

    shortage: Shortage

    blocks: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return "disk"

    @property
    def endpoint(self) -> str:
        return self.shortage.disk

    @property
    def failures(self) -> str:
        return f"disk full, {self.shortage.figures}"

    @property
    def next_try(self) -> str:
        return "rollouts resume automatically when there is space"

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.failures}; {self.next_try}"


Holds = list[Hold | Unwell | Refusal | NoSpace | Throttled]


def find_hold(endpoint: PolicyModel | Environment) -> Hold | None:
    """Of one endpoint; None while its breaker is closed."""
    mine = Q(policy_model=endpoint) if isinstance(endpoint, PolicyModel) else Q(environment=endpoint)
    return next(iter(_find(mine)), None)


def find_throttle(endpoint: PolicyModel | Environment) -> Throttled | None:
    """Of one endpoint; None while it is not throttled."""
    mine = Q(policy_model=endpoint) if isinstance(endpoint, PolicyModel) else Q(environment=endpoint)
    return next(iter(find_throttles(mine)), None)


def find_holds(collection: Collection) -> Holds:
    """Return what holds this collection back; nothing once it has ended.

    Holds are, in this order: a full disk of the database (unless the collection is paused), an environment whose server
    is unhealthy, open breakers, throttled endpoints, and workers that cannot run the collection.
    """
    if collection.is_finished:
        return []
    used = _uses(collection)
    shortage = None if collection.state == Collection.State.PAUSED else find_shortage(Place.DATABASE)
    full = [NoSpace(shortage)] if shortage else []
    return [*full, *_find_unwell(collection), *_find(used), *find_throttles(used), *_find_refusals(collection)]


def _uses(collection: Collection) -> Q:
    """The endpoints that the collection calls, as a filter of breakers and throttles."""
    models = [collection.policy_model_id]
    if collection.environment.judge_model_id is not None:
        models.append(collection.environment.judge_model_id)
    return Q(policy_model__in=models) | Q(environment=collection.environment_id)


def _find_refusals(collection: Collection) -> list[Refusal]:
    number = str(collection.pk)
    refusing = Worker.objects.filter(
        state=Worker.State.ACTIVE, lease_expires_at__gte=server_now(), refuses__has_key=number
    )
    return [Refusal(worker, worker.refuses[number]) for worker in refusing.order_by("pk")]


def _find_unwell(collection: Collection) -> list[Unwell]:
    now = timezone.now()
    environments = Environment.objects.filter(pk=collection.environment_id, health=Health.UNHEALTHY)
    return [
        Unwell(one, now) for one in environments if is_held_back(one.adapter, one.health, one.health_checked_at, now)
    ]


def _find(which: Q) -> list[Hold]:
    shut = Breaker.objects.exclude(state=Breaker.State.CLOSED).filter(which).order_by("pk")
    now = timezone.now()
    return [Hold(breaker, now) for breaker in shut.select_related("policy_model", "environment")]


def explain_missing_worker(collection: Collection) -> str:
    """What to start where no live worker may run this collection; empty where one may."""
    group = collection.policy_model.worker_group or collection.environment.worker_group
    alive = {each for _, each in live_workers()}
    if group in alive:
        return ""
    if group:
        return f"No worker of the group {group} is alive: start one with manage.py rolloutworker --group {group}"
    if alive:
        return "Every live worker belongs to a group, and this needs one without: start manage.py rolloutworker"
    return "No worker is alive: start one with manage.py rolloutworker"


def explain_pause(collection: Collection) -> str:
    """`its tokens are used up: raise …` for a paused collection; empty for others."""
    if collection.state != Collection.State.PAUSED:
        return ""
    reason = Collection.PauseReason(collection.pause_reason)
    said = find_quota_message(_uses(collection)) if reason == Collection.PauseReason.QUOTA else ""
    return f"{reason.label}{f' ({said})' if said else ''}: {REMEDIES[reason]}"
