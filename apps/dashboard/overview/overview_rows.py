"""Rows of the overview: running collections with phases, and the latest results with the previous ones."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, OuterRef, Subquery
from django.utils import timezone

from apps.dashboard.overview.collection_progress import Progress
from apps.dashboard.overview.error_causes import CAUSES
from apps.rollouts.metrics.mean_intervals import measure_margins
from apps.rollouts.models import Collection, CollectionQuerySet, Rollout

SHOWN = 8
ACTIVE = [Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED]
SAME = ("dataset", "agent")
"""Collections that share these are compared with each other."""

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Latest:
    """`margin` is half the 95 % interval of the mean reward.

    `previous` is the previous collection of the same dataset and agent that has rewards. Both may be None.
    """

    collection: Collection
    margin: float | None
    previous: Collection | None
    previous_margin: float | None = None

    @property
    def difference(self) -> float | None:
        """Return the difference of the mean reward to the previous collection."""
        if self.previous is None or self.collection.mean_reward is None or self.previous.mean_reward is None:
            return None
        return self.collection.mean_reward - self.previous.mean_reward

    @property
    def direction(self) -> str:
        """Return `same` if the difference is within the margin of error."""
        difference = self.difference or 0.0
        noise = max(_EQUAL, math.hypot(self.margin or 0.0, self.previous_margin or 0.0))
        return "up" if difference > noise else "down" if difference < -noise else "same"


@dataclass(frozen=True, slots=True)
class Failure:
    error_kind: str
    count: int
    meaning: str
    collections: int


def _listed() -> CollectionQuerySet:
    return Collection.objects.listed().select_related("dataset", "policy_model", "agent")


def read_active() -> list[Progress]:
    """Return running collections. Their own pages show why they wait."""
    active = list(_listed().filter(state__in=ACTIVE)[:SHOWN])
    # Uses the index of leases, which holds only running rows.
    held = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__gt=0, collection__in=active).order_by()
    running = Counter(dict(held.values_list("collection").annotate(rows=Count("pk"))))
    now = timezone.now()
    return [
        Progress(collection=each, running=running[each.pk], as_of=now, mean_reward=each.mean_reward) for each in active
    ]


def read_latest() -> list[Latest]:
    return with_previous(_listed().exclude(state__in=ACTIVE).annotate(previous_id=previous_id())[:SHOWN])


def previous_id(same: Sequence[str] = SAME) -> Subquery:
    """Return the id of the previous ended collection with rewards that has the `same` values."""
    equal = {name: OuterRef(name) for name in same}
    before = Collection.objects.listed().filter(**equal, pk__lt=OuterRef("pk"), rewarded__gt=0)
    return Subquery(before.exclude(state__in=ACTIVE).order_by("-pk").values("pk")[:1])


def with_previous(collections: Iterable[Any]) -> list[Latest]:
    """Return the collections, which have `previous_id`, with intervals and the previous collection.

    A running collection is not compared: its first rewards come from its shortest rollouts.
    """
    latest = list(collections)
    wanted = {each.previous_id for each in latest if each.state not in ACTIVE}
    previous = Collection.objects.in_bulk(wanted | {0})
    margins = measure_margins(list({each.pk: each for each in [*latest, *previous.values()]}.values()))
    return [
        Latest(each, margins.get(each.pk), previous.get(each.previous_id), margins.get(each.previous_id))
        if each.state not in ACTIVE
        else Latest(each, margins.get(each.pk), None)
        for each in latest
    ]


def read_failures(collections: Sequence[Collection]) -> list[Failure]:
    """Return failed rollouts of these collections by cause, most frequent first."""
    touched = [collection.pk for collection in collections if collection.failed]
    counted = (
        Rollout.objects.filter(collection__in=touched or [0], status=Rollout.Status.FAILED)
        .values_list("error_kind")
        .annotate(count=Count("pk"), collections=Count("collection", distinct=True))
        .order_by("-count", "error_kind")
    )
    return [Failure(kind, count, CAUSES.get(kind, ""), places) for kind, count, places in counted]
