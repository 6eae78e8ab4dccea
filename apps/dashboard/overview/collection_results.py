"""Results of a collection for its page."""

from dataclasses import dataclass
from datetime import datetime

from apps.dashboard.charts.curves import Curves, draw_curves
from apps.dashboard.charts.histogram import Histogram, draw_histogram
from apps.dashboard.charts.intervals import IntervalBar, draw_intervals
from apps.dashboard.charts.scatter import Scatter, draw_scatter
from apps.dashboard.charts.shares import Part, draw_shares
from apps.dashboard.overview.error_causes import Failure, say_why
from apps.rollouts.metrics.cached_figures import Kept
from apps.rollouts.metrics.collection_figures import CollectionMetrics
from apps.rollouts.metrics.components import ComponentFigures
from apps.rollouts.metrics.page_figures import PageFigures
from apps.rollouts.models import Collection


@dataclass(frozen=True, slots=True)
class Results:
    """Uses lists of pairs instead of dicts: a template would take a key named `items` for the method."""

    metrics: CollectionMetrics
    is_fresh: bool  # if False, a worker computes newer ones
    as_of: datetime
    margin_of_error: float | None  # half the 95 % interval of the mean reward
    most_attempts: int
    groups: list[Part]
    stop_reasons: list[tuple[str, int]]
    errors: list[Failure]
    components: list[tuple[ComponentFigures, IntervalBar | None]]
    histogram: Histogram
    scatter: Scatter
    curves: Curves
    latency: list[Part]

    @property
    def pass_at_most(self) -> float | None:
        return self.metrics.pass_at_k.get(self.most_attempts)

    @property
    def majority_at_most(self) -> tuple[int, float] | None:
        """Return majority@k for the largest k."""
        return max(self.metrics.majority_at_k.items(), default=None)


def read_results(collection: Collection, kept: Kept[PageFigures]) -> Results | None:
    """Return the figures of `read_figures` as charts; None if they were never measured."""
    if kept.figures is None:
        return None
    metrics = kept.figures.metrics
    figures = metrics.component_figures
    bars = draw_intervals([(each.mean, each.confidence) for each in figures])
    return Results(
        metrics=metrics,
        is_fresh=kept.is_fresh,
        as_of=kept.figures.as_of,
        margin_of_error=metrics.confidence and (metrics.confidence[1] - metrics.confidence[0]) / 2,
        most_attempts=max(metrics.pass_at_k, default=1),
        groups=draw_shares([(name, metrics.groups.get(name, 0), tone) for name, tone in _BUCKETS]),
        stop_reasons=_by_count(metrics.stop_reasons),
        errors=say_why(collection, metrics.errors),
        components=list(zip(figures, bars, strict=True)),
        histogram=draw_histogram(metrics.histogram),
        scatter=draw_scatter(kept.figures.points, metrics.by_length, whole=metrics.rewarded),
        curves=draw_curves(
            [
                ("pass@k", "round", metrics.pass_at_k),
                ("majority@k", "square", metrics.majority_at_k),
                ("average@k", "cross", metrics.average_of_k),
            ]
        ),
        latency=_latency(metrics),
    )


_BUCKETS = (("never", "bad"), ("sometimes", "warn"), ("always", "ok"))


def _latency(metrics: CollectionMetrics) -> list[Part]:
    """Return the mean duration by phase. Concurrent tools may make the sum longer than the duration."""
    if not metrics.latency or not metrics.mean_duration:
        return []
    phases = [(name, metrics.latency[name], f"tone-{place}") for place, name in enumerate(metrics.latency, start=1)]
    rest = max(0.0, metrics.mean_duration - sum(seconds for _, seconds, _ in phases))
    return draw_shares([*phases, ("the rest", rest, "muted")])


def _by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))
