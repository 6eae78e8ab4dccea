"""Summarize what a reverification changes: counts, means and a histogram, from a few aggregate queries."""

from collections import Counter

import msgspec
from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet
from django.db.models.functions import Floor

from apps.gym.metrics.pass_at_k import bin_counts
from apps.rollouts.models import Reverification, ReverifiedReward

BINS = 10


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`histogram` counts the differences new − old of changed rewards. Means cover rollouts with both rewards."""

    total: int
    verified: int
    changed: int
    unchanged: int
    failed: int
    better: int
    worse: int
    newly_rewarded: int
    old_mean: float | None
    new_mean: float | None
    errors: dict[str, int]
    histogram: list[dict[str, float | int]]


def compare_rewards(reverification: Reverification) -> Comparison:
    rewards = reverification.rewards.order_by()
    changed = rewards.filter(changed=True)
    both = rewards.filter(difference__isnull=False).aggregate(old=Avg("old_reward"), new=Avg("new_reward"))
    counts = changed.aggregate(
        better=Count("pk", filter=Q(difference__gt=0)),
        worse=Count("pk", filter=Q(difference__lt=0)),
        newly=Count("pk", filter=Q(old_reward__isnull=True)),
    )
    errors = rewards.exclude(error_kind="").values_list("error_kind").annotate(number=Count("pk")).order_by("-number")
    return Comparison(
        total=reverification.total,
        verified=reverification.verified,
        changed=reverification.changed,
        unchanged=reverification.verified - reverification.changed,
        failed=reverification.failed,
        better=counts["better"],
        worse=counts["worse"],
        newly_rewarded=counts["newly"],
        old_mean=both["old"],
        new_mean=both["new"],
        errors=dict(errors),
        histogram=_histogram(changed.filter(difference__isnull=False)),
    )


def _histogram(changed: QuerySet[ReverifiedReward]) -> list[dict[str, float | int]]:
    ends = changed.aggregate(low=Min("difference"), high=Max("difference"))
    if ends["low"] is None:
        return []
    # Zero is always visible, so that readers see which side is better.
    low, high = min(ends["low"], 0.0), max(ends["high"], 0.0)
    width = (high - low or 1.0) / BINS
    place = Floor((F("difference") - low) / width + 1e-9)
    counts: Counter[int] = Counter()
    for index, count in changed.values_list(place).annotate(count=Count("pk")):
        counts[min(int(index), BINS - 1)] += count
    return bin_counts([low + width * step for step in range(BINS + 1)], counts)
