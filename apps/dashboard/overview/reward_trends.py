"""The latest result of a dataset, model, agent or environment, and the trend that led to it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, OuterRef, Subquery, Window
from django.db.models.functions import RowNumber

from apps.dashboard.charts.sparkline import Sparkline, draw_sparkline
from apps.dashboard.overview.overview_rows import ACTIVE, SAME, Latest, previous_id, with_previous
from apps.rollouts.models import Collection

POINTS = 12
"""Maximum number of collections in a trend."""


@dataclass(frozen=True, slots=True)
class Trend:
    """`sparkline` is None for fewer than two collections that can be compared."""

    latest: Latest
    sparkline: Sparkline | None

    @property
    def mean_reward(self) -> float | None:
        return self.latest.collection.mean_reward


def latest_result(owner: str) -> Subquery:
    """Return the id of the latest ended collection with rewards. `owner` is the field of Collection for the row."""
    ended = Collection.objects.listed().filter(rewarded__gt=0, **{owner: OuterRef("pk")}).exclude(state__in=ACTIVE)
    return Subquery(ended.order_by("-pk").values("pk")[:1])


def add_trends(rows: Iterable[Any], *, same: Sequence[str] = SAME) -> list[Any]:
    """Return the rows, which have `latest_id` from `latest_result`, with a Trend or None as `trend`.

    A trend has the latest collection and earlier ones with the `same` values.
    """
    found = list(rows)
    wanted = {row.latest_id for row in found} - {None}
    collections = Collection.objects.filter(pk__in=wanted).select_related("dataset", "agent", "policy_model")
    latest = {each.collection.pk: each for each in with_previous(collections.annotate(previous_id=previous_id(same)))}
    before = _rewards_before([each.collection for each in latest.values()], same)
    for row in found:
        each = latest.get(row.latest_id)
        row.trend = each and Trend(each, draw_sparkline(before[each.collection.pk]))
    return found


def _rewards_before(collections: Sequence[Collection], same: Sequence[str]) -> dict[int, list[float]]:
    """Return by collection the mean rewards of its trend, itself included, oldest first."""
    columns = [f"{name}_id" for name in same]
    shared = {pk: tuple(getattr(each, column) for column in columns) for pk, each in ((c.pk, c) for c in collections)}
    counted = (
        Collection.objects.listed()
        .filter(rewarded__gt=0, **{f"{column}__in": {getattr(c, column) for c in collections} for column in columns})
        .exclude(state__in=ACTIVE)
        .annotate(place=Window(RowNumber(), partition_by=[*same], order_by="-pk"), mean=F("reward_sum") / F("rewarded"))
        .filter(place__lte=POINTS)
        .order_by("pk")
    )
    series: defaultdict[tuple[int, ...], list[float]] = defaultdict(list)
    for mean, *values in counted.values_list("mean", *columns):
        series[tuple(values)].append(mean)
    return {pk: series[values] for pk, values in shared.items()}
