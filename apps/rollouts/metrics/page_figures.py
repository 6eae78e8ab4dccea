"""Compute all figures of a collection's page from one snapshot of the database."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils import timezone

from apps.rollouts.metrics.collection_figures import CollectionMetrics, measure_collection
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.label_figures import Breakdown, break_down
from apps.rollouts.metrics.labels import Facet
from apps.rollouts.models import Collection, Rollout

SHOWN = 400
_MOST_LOOKED_UP = 8_000


class ScatterPoint(NamedTuple):
    rollout: int
    reward: float
    output_tokens: int


def scatter_rewards(collection: Collection, *, most: int = SHOWN) -> list[ScatterPoint]:
    """Return about `most` rewarded rollouts, ordered by id; a random sample if there are more."""
    rewarded = Rollout.objects.filter(collection=collection).rewarded().order_by("pk")
    columns: QuerySet[Any, Any] = rewarded.values_list("pk", "reward", "output_tokens")
    if collection.rewarded <= most:
        return [ScatterPoint(*row) for row in columns[:most]]
    mine = Rollout.objects.filter(collection=collection)
    first = mine.order_by("pk").values_list("pk", flat=True).first() or 0
    last = mine.order_by("-pk").values_list("pk", flat=True).first() or 0
    # Draw more ids than needed: some belong to other collections or have no reward.
    among = last - first + 1
    wanted = min(_MOST_LOOKED_UP, among, 1 + round(1.3 * most * among / collection.rewarded))
    draw = random.Random(collection.pk)
    ids = draw.sample(range(first, last + 1), wanted)
    found = [ScatterPoint(*row) for row in columns.filter(pk__in=ids)]
    return sorted(draw.sample(found, most)) if len(found) > most else found


COUNTERS = (
    "total",
    "completed",
    "failed",
    "cancelled",
    "retried",
    "rewarded",
    "reward_sum",
    "input_tokens",
    "output_tokens",
    "judge_tokens",
    "calls_without_usage",
    "retried_calls",
    "cost",
)
STATE = ("state", "pause_reason", "started_at", "finished_at")


@dataclass(frozen=True, kw_only=True)
class PageFigures:
    """Consistent figures as of `as_of`.

    `counters` are the collection's counters by name, `running` is the number of running rollouts, and `points` is the
    sample for the scatter plot.
    """

    as_of: datetime
    counters: dict[str, int | float]
    running: int
    metrics: CollectionMetrics
    points: list[ScatterPoint]
    breakdowns: dict[Facet, Breakdown]


def measure_page(collection: Collection, facets: Iterable[Facet]) -> PageFigures:
    """Measure the figures, with a breakdown by each of `facets`.

    Updates the counters and the state of `collection`.
    """
    with consistent_reads():
        as_of = timezone.now()
        collection.refresh_from_db(fields=[*COUNTERS, *STATE])
        return PageFigures(
            as_of=as_of,
            counters={name: getattr(collection, name) for name in COUNTERS},
            running=count_running(collection),
            metrics=measure_collection(collection),
            points=scatter_rewards(collection),
            breakdowns={facet: break_down(collection, facet) for facet in facets},
        )


def count_running(collection: Collection) -> int:
    """Return the number of running rollouts, using the index of leases, which contains only those."""
    return Rollout.objects.filter(collection=collection, status=Rollout.Status.RUNNING, lease__gt=0).count()
