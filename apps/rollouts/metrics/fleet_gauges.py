"""Read what the fleet does now, for monitoring: as cheap with a million queued rollouts as with none."""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Min, OuterRef, Q, Subquery, Sum
from django.utils import timezone

from apps.rollouts.engine.worker_leases import LIVE
from apps.rollouts.models import Breaker, Collection, Rollout, Worker

KEPT = timedelta(minutes=15)
"""How long a worker that has ended is still shown, so that its last counts are not missed between two looks."""

OPEN_STATES = (Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED)
ENDS = ("completed", "failed", "cancelled")


class Queue(NamedTuple):
    """Collections of one state and priority together."""

    state: str
    priority: int
    queued: int
    running: int


class Fleet(NamedTuple):
    """`ended` counts rollouts by status, over all collections; `oldest_queued` is in seconds, 0 with none queued."""

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
    shown = Q(state__in=LIVE) | Q(heartbeat_at__gte=now - KEPT)
    return Fleet(
        queues=_read_queues(),
        oldest_queued=_oldest_queued(now),
        ended={name: sums[f"{name}__sum"] for name in ENDS},
        retried=sums["retried__sum"],
        cost=sums["cost__sum"],
        workers=list(Worker.objects.filter(shown).order_by("pk")),
        breakers=list(Breaker.objects.select_related("policy_model", "environment").order_by("pk")),
        now=now,
    )


def _read_queues() -> list[Queue]:
    """Queued is what the collections' counters leave: nobody counts the queue's rows. Running rows are few.

    The counters and the running rows are read one after the other, so a row may for a moment be in neither or in both.
    """
    # By the index of leases, which holds running rows alone; an order, a group or a join would tempt planners elsewhere
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
    """Since its collection was planned. What is paused waits because somebody wants it to, and is not counted."""
    queued = Rollout.objects.filter(collection=OuterRef("pk"), status=Rollout.Status.QUEUED)
    # In the order of the index of queued rows, so that planners take it: as claiming does.
    first = Subquery(queued.order_by("lost", "id").values("pk")[:1])
    waiting = Collection.objects.filter(state=Collection.State.RUNNING).annotate(first=first).exclude(first=None)
    since = waiting.aggregate(since=Min("created_at"))["since"]
    return max(0.0, (now - since).total_seconds()) if since else 0.0
