"""All figures of a collection's page, read from one state of the database."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from apps.rollouts.metrics.breakdowns import Breakdown, break_down
from apps.rollouts.metrics.collection_figures import CollectionMetrics, measure_collection
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.labels import Facet
from apps.rollouts.metrics.reward_sample import Scattered, scatter_rewards
from apps.rollouts.models import Collection, Rollout

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
    "cost",
)
STATE = ("state", "pause_reason", "started_at", "finished_at")


@dataclass(frozen=True, kw_only=True)
class PageFigures:
    """Figures that agree with each other. They count everything that was stored before `as_of`.

    `counters` holds the collection's counters by name, `running` is the number of its running rollouts, `points` is the
    sample that the scatter plot draws.
    """

    as_of: datetime
    counters: dict[str, int | float]
    running: int
    metrics: CollectionMetrics
    points: list[Scattered]
    breakdowns: dict[Facet, Breakdown]


def measure_page(collection: Collection, facets: Iterable[Facet]) -> PageFigures:
    """Measure the figures now, with a breakdown by each of `facets`. Updates the counters and the state of
    `collection`."""
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
    """Return the number of running rollouts. Uses the index of leases, which holds only those."""
    return Rollout.objects.filter(collection=collection, status=Rollout.Status.RUNNING, lease__gt=0).count()
