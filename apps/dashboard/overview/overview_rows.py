"""Rows of the overview: running collections with phases, and the latest results with the previous ones."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, OuterRef, Subquery
from django.utils import timezone

from apps.dashboard.overview.collection_progress import Progress
from apps.gym.outcomes import OUTCOMES
from apps.rollouts.metrics.mean_intervals import Interval, measure_intervals
from apps.rollouts.models import Collection, CollectionQuerySet, Rollout

SHOWN = 8
ACTIVE = [Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED]
SAME = ("dataset", "agent")
"""Collections that share these are compared with each other."""


@dataclass(frozen=True, slots=True)
class Latest:
    """`interval` is the 95 % interval of the mean reward.

    `previous` is the previous collection that can be compared and has rewards. All but `collection` may be None.
    """

    collection: Collection
    interval: Interval | None
    previous: Collection | None
    previous_interval: Interval | None = None

    @property
    def difference(self) -> float | None:
        """Return the difference of the mean reward to the previous collection."""
        if self.previous is None or self.collection.mean_reward is None or self.previous.mean_reward is None:
            return None
        return self.collection.mean_reward - self.previous.mean_reward

    @property
    def direction(self) -> str:
        """Return `same` unless both intervals are known and do not overlap."""
        own, previous = self.interval, self.previous_interval
        if own is None or previous is None:
            return "same"
        return "up" if own[0] > previous[1] else "down" if own[1] < previous[0] else "same"


@dataclass(frozen=True, slots=True)
class Failure:
    error_kind: str
    count: int
    meaning: str
    collections: list[int]

    @property
    def filter(self) -> str:
        """Return the filter of exactly these rollouts."""
        return f"error:{self.error_kind} collection:{','.join(map(str, self.collections))}"


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
    intervals = measure_intervals(list({each.pk: each for each in [*latest, *previous.values()]}.values()))
    return [
        Latest(each, intervals.get(each.pk), previous.get(each.previous_id), intervals.get(each.previous_id))
        if each.state not in ACTIVE
        else Latest(each, intervals.get(each.pk), None)
        for each in latest
    ]


def read_failures(collections: Sequence[Collection]) -> list[Failure]:
    """Return failed rollouts of these collections by cause, most frequent first."""
    touched = [collection.pk for collection in collections if collection.failed]
    counted = (
        Rollout.objects.filter(collection__in=touched or [0])
        .exclude(error_kind="")  # failed rollouts, counted from an index
        .order_by()
        .values_list("error_kind", "collection")
        .annotate(count=Count("pk"))
    )
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for kind, collection, count in counted:
        found[kind][collection] = count
    failures = [
        Failure(kind, sum(counts.values()), OUTCOMES[kind].sentence, sorted(counts)) for kind, counts in found.items()
    ]
    return sorted(failures, key=lambda failure: (-failure.count, failure.error_kind))
