"""Results of a collection for its page."""

import math
from typing import Any

from apps.dashboard.charts.curves import draw_curves
from apps.dashboard.charts.histogram import draw_histogram
from apps.dashboard.charts.intervals import draw_intervals
from apps.dashboard.charts.scatter import draw_scatter
from apps.dashboard.charts.shares import Part, draw_shares
from apps.dashboard.overview.error_causes import say_why
from apps.dashboard.overview.server_metric_rows import read_server_metrics
from apps.reviews.agreement.reward_agreement import read_reward_agreement
from apps.rollouts.metrics.cached_figures import CachedFigures, is_measured_on_request
from apps.rollouts.metrics.collection_figures import CollectionMetrics
from apps.rollouts.metrics.figure_names import CURVES, FIRST_K
from apps.rollouts.metrics.page_figures import PageFigures
from apps.rollouts.models import Collection


def read_results(collection: Collection, kept: CachedFigures[PageFigures]) -> dict[str, Any] | None:
    """Return the figures of `read_figures` as charts; None if they were never measured.

    Uses lists of pairs instead of dicts, because a template would take a key named `items` for the method.
    `majority_at_most` is majority@k for the largest k.
    `low` counts rewards below the solve threshold; None for a collection that a worker measures.
    best-of-k is left out if it equals pass@k, as for rewards of 0 and 1, and majority@k without any answer.
    """
    if kept.figures is None:
        return None
    metrics = kept.figures.metrics
    figures = metrics.component_figures
    bars = draw_intervals([(each.mean, each.confidence) for each in figures])
    most_attempts = max(metrics.pass_at_k, default=1)
    is_pass = all(math.isclose(metrics.best_of_k[k], value) for k, value in metrics.pass_at_k.items())
    best = {} if is_pass else metrics.best_of_k
    majority: dict[int, float] = {} if metrics.no_answer == 1.0 else metrics.majority_at_k
    shown = {"best_of_k": best, "majority_at_k": majority}
    return {
        "metrics": metrics,
        "is_fresh": kept.is_fresh,
        "as_of": kept.figures.as_of,
        "most_attempts": most_attempts,
        "pass_at_most": metrics.pass_at_k.get(most_attempts),
        "majority_at_most": max(majority.items(), default=None),
        "groups": draw_shares([(name, metrics.groups.get(name, 0), tone) for name, tone in _BUCKETS]),
        "stop_reasons": _by_count(metrics.stop_reasons),
        "low": _count_low(collection) if is_measured_on_request(collection) else None,
        "errors": say_why(collection, metrics.errors),
        "components": list(zip(figures, bars, strict=True)),
        "histogram": draw_histogram(metrics.histogram),
        "scatter": draw_scatter(kept.figures.points, metrics.by_length, whole=metrics.rewarded),
        "best_at_most": best.get(most_attempts),
        "curves": draw_curves(
            [
                (each.label, mark, shown.get(each.name, getattr(metrics, each.name)))
                for each, mark in zip(CURVES, _MARKS, strict=True)
            ]
        ),
        "curve_names": CURVES,
        "first_names": FIRST_K,
        "first_k": [(each.k, [getattr(each, name.name) for name in FIRST_K]) for each in metrics.first_k],
        "latency": _latency(metrics),
        "server": read_server_metrics(collection),
        "blind_reviews": read_reward_agreement(collection) if metrics.judge else [],
    }


_MARKS = ("round", "triangle", "square", "cross")
_BUCKETS = (("never", "bad"), ("sometimes", "warn"), ("always", "ok"))


def _latency(metrics: CollectionMetrics) -> list[Part]:
    """Return the mean duration by phase. Concurrent tools may make the sum longer than the duration."""
    if not metrics.latency or not metrics.mean_duration:
        return []
    phases = [(name, metrics.latency[name], f"tone-{place}") for place, name in enumerate(metrics.latency, start=1)]
    rest = max(0.0, metrics.mean_duration - sum(seconds for _, seconds, _ in phases))
    return draw_shares([*phases, ("other", rest, "muted")])


def _count_low(collection: Collection) -> int:
    return collection.rollouts.rewarded().filter(reward__lt=collection.solve_threshold).count()


def _by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))
