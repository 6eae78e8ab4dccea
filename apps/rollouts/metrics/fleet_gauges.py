"""Read the current state of workers and queues for monitoring, at a cost independent of the queue length."""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Min, OuterRef, Q, Subquery, Sum
from django.utils import timezone

from apps.rollouts.engine.claiming import usable_by
from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE
from apps.rollouts.models import Breaker, Collection, Rollout, Worker

KEPT = timedelta(minutes=15)
"""How long stopped workers are reported, so that a scrape gets their final counts."""

OPEN_STATES = (Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED)
ENDS = ("completed", "failed", "cancelled")


class Queue(NamedTuple):
    """All collections with the same state and priority."""

    state: str
    priority: int
    queued: int
    running: int


class Fleet(NamedTuple):
    """State of all workers and queues.

    `ended` counts rollouts by status over all collections. `oldest_queued` is in seconds, 0 for an empty queue.
    """

    queues: list[Queue]
    oldest_queued: float
    ended: dict[str, int]
    retried: int
    cost: float
    workers: list[Worker]
    breakers: list[Breaker]
    now: datetime


def read_fleet() -> Fleet:
    now = timezone.now()
    sums = Collection.objects.aggregate(*(Sum(name, default=0) for name in (*ENDS, "retried", "cost")))
    shown = Q(state__in=STATES_WITH_LEASE) | Q(heartbeat_at__gte=now - KEPT)
    return Fleet(
        queues=read_queues(),
        oldest_queued=_oldest_queued(now),
        ended={name: sums[f"{name}__sum"] for name in ENDS},
        retried=sums["retried__sum"],
        cost=sums["cost__sum"],
        workers=list(Worker.objects.filter(shown).order_by("pk")),
        breakers=list(Breaker.objects.select_related("policy_model", "environment").order_by("pk")),
        now=now,
    )


def count_unfinished(group: str) -> int:
    """Return how many rollouts workers of this group could run at once, including those running.

    Each collection counts up to the smallest of its own, its model's and its environment's concurrency. Collections
    with the same model are counted separately.
    """
    limits = ("concurrency", "policy_model__concurrency", "environment__concurrency")
    left = F("total") - F("completed") - F("failed") - F("cancelled")
    rows = Collection.objects.filter(usable_by(group), state=Collection.State.RUNNING).values_list(left, *limits)
    return sum(min(number for number in row if number is not None) for row in rows)


def read_queues() -> list[Queue]:
    """Return the queues.

    Queued rollouts are computed from counters, because counting them is slow; running ones are few. Both are read one
    after the other, so a rollout may briefly count in neither or both.
    """
    # Uses the index of leases, which contains only running rows. ORDER BY, GROUP BY or a join would change the plan.
    held = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__gt=0).order_by()
    running = Counter(held.values_list("collection_id", flat=True))
    ended = F("completed") + F("failed") + F("cancelled")
    rows = Collection.objects.filter(Q(state__in=OPEN_STATES) | Q(pk__in=list(running)))
    queued_of: Counter[tuple[str, int]] = Counter()
    running_of: Counter[tuple[str, int]] = Counter()
    for pk, state, priority, left in rows.values_list("pk", "state", "priority", F("total") - ended):
        queued_of[state, priority] += max(0, left - running[pk]) if state in OPEN_STATES else 0
        running_of[state, priority] += running[pk]
    return [Queue(*key, number, running_of[key]) for key, number in sorted(queued_of.items())]


def _oldest_queued(now: datetime) -> float:
    """Return the age in seconds of the oldest queued rollout, since its collection was planned.

    Paused collections are ignored.
    """
    queued = Rollout.objects.filter(collection=OuterRef("pk"), status=Rollout.Status.QUEUED)
    # Ordered like the index of queued rows, so that the planner uses it.
    first = Subquery(queued.order_by("lost", "id").values("pk")[:1])
    waiting = Collection.objects.filter(state=Collection.State.RUNNING).annotate(first=first).exclude(first=None)
    since = waiting.aggregate(since=Min("created_at"))["since"]
    return max(0.0, (now - since).total_seconds()) if since else 0.0
