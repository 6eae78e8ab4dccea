"""The figures of a collection's page as tables: header and rows by the name of the file."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from apps.rollouts.breakdowns import Share
from apps.rollouts.measuring import CollectionMetrics
from apps.rollouts.scattering import Scattered


class Table(NamedTuple):
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


def _attempts(metrics: CollectionMetrics) -> Table:
    curves = (metrics.pass_at_k, metrics.majority_at_k, metrics.average_of_k)
    ks = sorted({k for curve in curves for k in curve})
    return Table(
        ("k", "pass_at_k", "majority_at_k", "average_of_k"), [(k, *(curve.get(k) for curve in curves)) for k in ks]
    )


def _components(metrics: CollectionMetrics) -> Table:
    rows = [
        (each.name, each.count, each.mean, each.std, each.median, *(each.confidence or (None, None)))
        for each in metrics.component_figures
    ]
    return Table(("component", "rollouts", "mean", "std", "median", "low_95", "high_95"), rows)


FIGURES: dict[str, Callable[[CollectionMetrics], Table]] = {
    "rewards": lambda metrics: Table(
        ("from", "to", "rollouts"), [(bar["low"], bar["high"], bar["count"]) for bar in metrics.histogram]
    ),
    "lengths": lambda metrics: Table(
        ("output_tokens_from", "output_tokens_to", "rollouts", "mean_reward"),
        [(bar.low, bar.high, bar.count, bar.mean_reward) for bar in metrics.by_length],
    ),
    "attempts": _attempts,
    "components": _components,
    "solved": lambda metrics: Table(("solved", "tasks"), list(metrics.groups.items())),
    "latency": lambda metrics: Table(("phase", "mean_seconds"), list(metrics.latency.items())),
    "tools": lambda metrics: Table(
        ("tool", "rollouts", "calls", "errors", "mean_seconds"),
        [(each.name, each.rollouts, each.calls, each.errors, each.mean_duration) for each in metrics.tools],
    ),
    "endings": lambda metrics: Table(
        ("ended", "kind", "rollouts"),
        [
            *(("stop_reason", name, count) for name, count in metrics.stop_reasons.items()),
            *(("error_kind", name, count) for name, count in metrics.errors.items()),
        ],
    ),
}


def tabulate_shares(shares: Sequence[Share]) -> Table:
    rows = [
        (
            share.label,
            share.rollouts,
            share.rewarded,
            share.tasks,
            share.mean_reward,
            *(share.confidence or (None, None)),
            share.pass_at_1,
        )
        for share in shares
    ]
    return Table(("label", "rollouts", "rewarded", "tasks", "mean_reward", "low_95", "high_95", "pass_at_1"), rows)


def tabulate_points(points: Sequence[Scattered]) -> Table:
    return Table(("rollout", "reward", "output_tokens"), points)
