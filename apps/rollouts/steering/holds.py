"""Explain why a collection waits and what to do about it, in the same words for pages, API and commands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.utils import timezone
from django.utils.text import get_text_list

from apps.accounts.disk_space import Place, find_shortage
from apps.agents.models import Agent
from apps.environments.environment_health import is_held_back
from apps.environments.models import Environment
from apps.gym.calls.rate_control import LONGEST_PAUSE
from apps.policies.models import PolicyModel
from apps.rollouts.database_clock import server_now
from apps.rollouts.engine.worker_leases import claiming_workers
from apps.rollouts.engine.worker_seats import external_seats
from apps.rollouts.metrics.trainable_rollouts import read_setup_notices
from apps.rollouts.models import Breaker, Collection, Rollout, Throttle, Worker

MAX_HOLDERS = 3
"""Collections that a hold names."""

RAISE = {
    Collection.PauseReason.MAX_SECONDS: "raise or remove the time limit",
    Collection.PauseReason.MAX_TOKENS: "raise or remove the token limit",
    Collection.PauseReason.MAX_COST: "raise or remove the cost limit",
    Collection.PauseReason.NOTICE: "change the set-up as the notice says",
    Collection.PauseReason.QUOTA: "add credit or raise the limit at the provider",
}
REMEDIES = {
    Collection.PauseReason.ASKED: "resume the collection when ready",
    **{reason: f"{remedy}, then resume the collection" for reason, remedy in RAISE.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A reason why rollouts of a collection stay in the queue, or are only slowed down if it does not block.

    `key` identifies the reason while it lasts. `row` is the breaker or the throttle, `until` the end of a pause.
    """

    key: str
    endpoint: str
    failures: str
    next_try: str
    blocks: bool = True
    row: Any = None
    until: datetime | None = None

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.failures}; {self.next_try}"


Holds = list[Hold]


def find_hold(endpoint: PolicyModel | Environment) -> Hold | None:
    """Return the reason for one endpoint; None if its breaker is closed."""
    return next(iter(_find_breakers(_of(endpoint))), None)


def find_throttle(endpoint: PolicyModel | Environment) -> Hold | None:
    """Return the reason for one endpoint; None if it is not throttled."""
    return next(iter(_find_throttles(_of(endpoint))), None)


def find_quota(endpoint: PolicyModel | Environment) -> Throttle | None:
    """Return the row of an endpoint whose exhausted quota keeps a collection paused."""
    uses = _of(endpoint)
    if isinstance(endpoint, PolicyModel):
        uses |= Q(environment__judge_model=endpoint)
    paused = Collection.objects.filter(uses, state=Collection.State.PAUSED, pause_reason=Collection.PauseReason.QUOTA)
    return Throttle.objects.filter(_of(endpoint)).exclude(quota_message="").first() if paused.exists() else None


def _of(endpoint: PolicyModel | Environment) -> Q:
    return Q(policy_model=endpoint) if isinstance(endpoint, PolicyModel) else Q(environment=endpoint)


def find_holds(collection: Collection) -> Holds:
    """Return why this collection waits; empty if it is finished.

    In this order: a full disk of the database, unless the collection is paused; an environment with an unhealthy
    server; open breakers; throttled endpoints; workers that cannot run the collection; seats and slots that other
    collections have taken.
    """
    if collection.is_finished:
        return []
    used = _uses(collection)
    shared = [*_find_unwell(collection), *_find_breakers(used, collection.pk), *_find_throttles(used)]
    shared += [*_find_refusals(collection), *_find_taken(collection)]
    return shared if collection.state == Collection.State.PAUSED else [*_find_full_disk(), *shared]


def _uses(collection: Collection) -> Q:
    """Return a filter of breakers and throttles: the endpoints that the collection calls."""
    models = [collection.policy_model_id]
    if collection.environment.judge_model_id is not None:
        models.append(collection.environment.judge_model_id)
    return Q(policy_model__in=models) | Q(environment=collection.environment_id)


def _find_full_disk() -> Holds:
    """Return why the database's disk is full.

    Computed on each call, because nothing can be stored then: see docs/decisions/0010.
    """
    if (shortage := find_shortage(Place.DATABASE)) is None:
        return []
    waits = "rollouts resume automatically when there is space"
    return [Hold(key="disk", endpoint=shortage.disk, failures=f"disk full, {shortage.figures}", next_try=waits)]


def _find_unwell(collection: Collection) -> Holds:
    now = timezone.now()
    environment = Environment.objects.get(pk=collection.environment_id)
    if not is_held_back(environment.adapter, environment.health, environment.health_checked_at, now):
        return []
    return [
        Hold(
            key=f"unwell {environment.pk}",
            endpoint=f"environment {environment}",
            failures=f"its server is unhealthy: {environment.health_message or 'no message'}",
            next_try=_say_when("next health check", environment.probe_due_at, now),
        )
    ]


def _find_breakers(which: Q, collection: int | None = None) -> Holds:
    """Return the open breakers. With a collection, return only the breakers that hold its rollouts back."""
    shut = Breaker.objects.exclude(state=Breaker.State.CLOSED).filter(which).order_by("pk")
    found = [
        breaker
        for breaker in shut.select_related("policy_model", "environment")
        if not (collection and breaker.tests) or str(collection) in breaker.tests
    ]
    now = timezone.now()
    return [_of_breaker(breaker, now) for breaker in found]


def _of_breaker(breaker: Breaker, now: datetime) -> Hold:
    count = breaker.failures
    # A try that is due waits for a worker with a free seat.
    wait = _say_when("next try", breaker.retry_at, now)
    return Hold(
        key=f"breaker {breaker.pk}",
        endpoint=_name_endpoint(breaker),
        failures=f"{count} call{'' if count == 1 else 's'} failed in a row: {breaker.message or 'no message'}"
        f"{_name_rollouts(breaker)}",
        next_try=f"one rollout is testing it; {wait}" if breaker.state == Breaker.State.HALF_OPEN else wait,
        row=breaker,
    )


def _name_rollouts(breaker: Breaker) -> str:
    """Return, for example, ` (rollouts 12 and 15)`: their prompts may be what the endpoint cannot answer."""
    named = [str(pk) for pk in sorted(breaker.rollouts)]
    return f" (rollout{'s' if len(named) > 1 else ''} {get_text_list(named, 'and')})" if named else ""


def _find_throttles(which: Q) -> Holds:
    now = timezone.now()
    rows = Throttle.objects.filter(which, limited_until__gt=now).select_related("policy_model", "environment")
    return [_of_throttle(throttle, now) for throttle in rows.order_by("pk")]


def _of_throttle(throttle: Throttle, now: datetime) -> Hold:
    """Return, for example, `Throttled until 12:30:05 UTC (429: slow down)`, with the rate and any concurrency limit."""
    until = throttle.paused_until if throttle.is_paused(now) else None
    rate, asked = throttle.rate or 0.0, throttle.retry_after or 0.0
    at_once = f" and {throttle.concurrency} concurrent calls" if throttle.concurrency else ""
    longest = f"GymWeb waits at most {LONGEST_PAUSE:.0f} s"
    capped = f"; the endpoint asked for a pause of {asked:.0f} s, but {longest}" if asked > LONGEST_PAUSE else ""
    return Hold(
        key=f"throttle {throttle.pk} {until:%H:%M:%S}" if until else f"throttle {throttle.pk}",
        endpoint=_name_endpoint(throttle),
        failures=f"Throttled{_say_until(until, now) if until else ''} ({throttle.message or 'no message'})",
        next_try=f"calls are limited to {rate:{'.2g' if rate < 10 else '.0f'}} requests/s{at_once}{capped}",
        blocks=False,
        row=throttle,
        until=until,
    )


def _find_refusals(collection: Collection) -> Holds:
    """Return the live workers that, as configured, cannot run the collection."""
    number = str(collection.pk)
    refusing = Worker.objects.filter(
        state=Worker.State.ACTIVE, lease_expires_at__gte=server_now(), refuses__has_key=number
    )
    return [
        Hold(
            key=f"refusal {worker.pk}",
            endpoint=str(worker),
            failures=f"cannot run this collection: {worker.refuses[number]}",
            next_try="it tries again every few seconds, and other workers may run the rollouts",
        )
        for worker in refusing.order_by("pk")
    ]


def _name_endpoint(row: Breaker | Throttle) -> str:
    return f"policy model {row.policy_model.name}" if row.policy_model else f"environment {row.environment}"


def _find_taken(collection: Collection) -> Holds:
    """Return the limits that other collections use up, if rollouts of this one are queued and none is running."""
    running = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__gt=0).order_by()
    queued = collection.rollouts.filter(status=Rollout.Status.QUEUED, collection__state=Collection.State.RUNNING)
    if not queued.exists() or running.filter(collection=collection).exists():
        return []
    model, environment = collection.policy_model, collection.environment
    group = model.worker_group or environment.worker_group
    workers = Worker.objects.filter(group=group, state=Worker.State.ACTIVE, lease_expires_at__gte=server_now())
    seats = dict(workers.values_list("pk", "seats"))
    in_seats = running.filter(lease__in=seats)
    of_model = running.filter(collection__policy_model=model)
    of_environment = running.filter(collection__environment=environment)
    limits = [
        ("workers", "seats", sum(seats.values()), in_seats),
        (f"policy model {model}", "slots", model.concurrency, of_model),
        (f"environment {environment}", "slots", environment.concurrency, of_environment),
    ]
    if collection.agent.kind == Agent.Kind.EXTERNAL:
        of_agents = in_seats.filter(collection__agent__kind=Agent.Kind.EXTERNAL)
        limits.append(("workers", "seats for external agents", sum(map(external_seats, seats.values())), of_agents))
    return [hold for limit in limits if (hold := _of_limit(*limit))]


def _of_limit(endpoint: str, what: str, most: int, running: QuerySet[Rollout]) -> Hold | None:
    """Return the collections that take all `most` seats or slots; None if one is free."""
    agent = ("collection__agent__kind", "collection__agent__slug")
    holders = list(
        running.values_list("collection", *agent).annotate(count=Count("pk")).order_by("-count", "collection")
    )
    if not most or sum(holder[-1] for holder in holders) < most:
        return None
    named = [
        f"{count} by collection {pk} ({Agent.Kind(kind).label.lower()} {slug})" for pk, kind, slug, count in holders
    ]
    more = [f"and {len(named) - MAX_HOLDERS} more"] if len(named) > MAX_HOLDERS else []
    failures = f"all {most} {what} are taken: {', '.join([*named[:MAX_HOLDERS], *more])}"
    return Hold(
        key=f"taken {endpoint} {what}",
        endpoint=endpoint,
        failures=failures,
        next_try="rollouts start as some become free",
    )


def _say_when(what: str, due: datetime | None, now: datetime) -> str:
    seconds = (due - now).total_seconds() if due else 0.0
    return f"{what} in {seconds:.0f} s" if seconds >= 0.5 else f"the {what} is due"


def _say_until(moment: datetime, now: datetime) -> str:
    day = "" if moment.date() == now.date() else f"{moment:%Y-%m-%d} "
    return f" until {day}{moment:%H:%M:%S} UTC"


def explain_missing_worker(collection: Collection) -> str:
    """Return what to start if no live worker can run this collection; otherwise empty."""
    group = collection.policy_model.worker_group or collection.environment.worker_group
    alive = {each for _, each in claiming_workers()}
    if group in alive:
        return ""
    if group:
        return f"No worker of the group {group} is running. Start one with manage.py rolloutworker --group {group}"
    if alive:
        return (
            "All live workers belong to groups, but this collection needs a worker without a "
            "group. Start manage.py rolloutworker"
        )
    return "No worker is running. Start one with manage.py rolloutworker"


def explain_pause(collection: Collection) -> str:
    """Return, for example, `the token limit is reached: raise …` for a paused collection; empty for others."""
    if collection.state != Collection.State.PAUSED:
        return ""
    reason = Collection.PauseReason(collection.pause_reason)
    said: str | None = ""
    if reason == Collection.PauseReason.QUOTA:
        told = Throttle.objects.filter(_uses(collection)).exclude(quota_message="").order_by("-quota_at")
        said = told.values_list("quota_message", flat=True).first()
    elif reason == Collection.PauseReason.NOTICE:
        said = ", ".join(notice.title for notice in read_setup_notices(collection))
    return f"{reason.label}{f' ({said})' if said else ''}: {REMEDIES[reason]}"
