"""End finished collections, and pause collections that reached a limit."""

from collections import abc
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.rollouts.collection_alerts import record_ended, record_paused
from apps.rollouts.equal_attempts import shows_common_notice
from apps.rollouts.models import Collection
from apps.rollouts.server_metrics.aggregate_requests import queue_server_metrics

FIRST_CLAIM = 2
"""How many rollouts a collection with a budget starts with, while the use per rollout is unknown."""

_DONE = Q(total__lte=F("completed") + F("failed") + F("cancelled"))
_TOKENS_SPENT = Q(max_tokens__lte=F("input_tokens") + F("output_tokens") + F("judge_tokens"))
_MONEY_SPENT = Q(max_cost__lte=F("cost"))


def lock_collections(collection_ids: abc.Collection[int]) -> None:
    """Lock several collections in a fixed order, to prevent deadlocks."""
    if len(collection_ids) > 1 and connection.vendor == "postgresql":
        rows = Collection.objects.filter(pk__in=collection_ids).order_by("pk")
        list(rows.select_for_update(no_key=True).values_list("pk", flat=True))


def settle_collections(collection_ids: abc.Collection[int]) -> None:
    """End collections without unfinished rollouts, and pause collections at a token or cost limit.

    Rollouts in flight continue. If they use more than `rollouts_within_budget` expected, the limit is exceeded.
    """
    given = Collection.objects.filter(pk__in=collection_ids)
    open_ones = given.filter(state__in=[Collection.State.RUNNING, Collection.State.PAUSED])
    # A single query in the common case that no collection has finished.
    if not open_ones.filter(_DONE | _TOKENS_SPENT | _MONEY_SPENT).exists():
        return
    finished = list(open_ones.filter(_DONE).values_list("pk", flat=True))
    open_ones.filter(_DONE).update(state=Collection.State.COMPLETED, pause_reason="", finished_at=timezone.now())
    if finished:
        queue_server_metrics(finished)
        record_ended(finished)
    running = given.filter(state=Collection.State.RUNNING)
    pause_collections(running.filter(_TOKENS_SPENT), Collection.PauseReason.MAX_TOKENS)
    pause_collections(running.filter(_MONEY_SPENT), Collection.PauseReason.MAX_COST)


def pause_noticed(collection_ids: abc.Collection[int]) -> None:
    """Pause collections whose ended rollouts all show the same set-up notice."""
    broken = [one.pk for one in Collection.objects.filter(pk__in=collection_ids) if shows_common_notice(one)]
    pause_collections(
        Collection.objects.filter(pk__in=broken, state=Collection.State.RUNNING), Collection.PauseReason.NOTICE
    )


def pause_collections(rows: QuerySet[Collection], reason: Collection.PauseReason) -> list[int]:
    """Pause these running collections. Return the ids of the collections that this call paused."""
    paused = []
    with transaction.atomic():
        for pk in rows.order_by("pk").values_list("pk", flat=True):
            # Conditional, because another worker may pause it first.
            running = Collection.objects.filter(pk=pk, state=Collection.State.RUNNING)
            if running.update(state=Collection.State.PAUSED, pause_reason=reason):
                paused.append(pk)
        if paused:
            record_paused(paused, reason)
    return paused


class Budget(NamedTuple):
    """The budget of a collection, and its use so far. Costs are in USD."""

    max_tokens: int | None
    max_cost: float | None
    input_tokens: int
    output_tokens: int
    judge_tokens: int
    cost: float
    completed: int

    @property
    def is_limited(self) -> bool:
        return self.max_tokens is not None or self.max_cost is not None


def rollouts_within_budget(budget: Budget) -> int:
    """Return how many rollouts in flight are expected to fit into the rest of the budget; at least one.

    The expected use is the average so far, including failed and retried attempts. The number starts small and grows
    with the completed rollouts, because short rollouts finish first and bias the average.
    """
    room = FIRST_CLAIM + budget.completed
    tokens = budget.input_tokens + budget.output_tokens + budget.judge_tokens
    for limit, used in ((budget.max_tokens, tokens), (budget.max_cost, budget.cost)):
        if limit is not None and used > 0:
            room = min(room, int(max(0, limit - used) * max(1, budget.completed) // used))
    # At least one, so that a collection just below its limit goes on until it reaches it.
    return max(1, room)


def pause_overdue() -> list[int]:
    """Pause collections that reached their time limit. Return their ids."""
    now = timezone.now()
    limited = Collection.objects.filter(
        state=Collection.State.RUNNING, started_at__isnull=False, max_seconds__isnull=False
    ).only("started_at", "max_seconds")
    overdue = [collection.pk for collection in limited if _is_overdue(collection, now)]
    if overdue:
        pause_collections(limited.filter(pk__in=overdue), Collection.PauseReason.MAX_SECONDS)
    return overdue


def spent_limit(collection: Collection) -> Collection.PauseReason | None:
    """Return the limit that this collection has reached, if any."""
    tokens = collection.input_tokens + collection.output_tokens + collection.judge_tokens
    if collection.max_tokens is not None and tokens >= collection.max_tokens:
        return Collection.PauseReason.MAX_TOKENS
    if collection.max_cost is not None and collection.cost >= collection.max_cost:
        return Collection.PauseReason.MAX_COST
    return Collection.PauseReason.MAX_SECONDS if _is_overdue(collection, timezone.now()) else None


def _is_overdue(collection: Collection, now: datetime) -> bool:
    if collection.max_seconds is None or collection.started_at is None:
        return False
    return collection.started_at + timedelta(seconds=collection.max_seconds) <= now
