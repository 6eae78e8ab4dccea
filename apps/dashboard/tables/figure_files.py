"""Figures of a collection's page as tables, by file name: header and rows."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from apps.rollouts.metrics.collection_figures import CollectionMetrics
from apps.rollouts.metrics.components import ComponentFigures
from apps.rollouts.metrics.figure_names import CURVES, FIRST_K
from apps.rollouts.metrics.label_figures import LabelFigures
from apps.rollouts.metrics.page_figures import ScatterPoint


class Table(NamedTuple):
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


def _attempts(metrics: CollectionMetrics) -> Table:
    curves = [getattr(metrics, each.name) for each in CURVES]
    ks = sorted({k for curve in curves for k in curve})
    return Table(("k", *(each.name for each in CURVES)), [(k, *(curve.get(k) for curve in curves)) for k in ks])


def _first_attempts(metrics: CollectionMetrics) -> Table:
    names = ["k", *(each.name for each in FIRST_K)]
    return Table(names, [[getattr(first, name) for name in names] for first in metrics.first_k])


def _components(metrics: CollectionMetrics) -> Table:
    return Table(
        ("component", *_COMPONENT_COLUMNS), [(each.name, *_component(each)) for each in metrics.component_figures]
    )


FIGURES: dict[str, Callable[[CollectionMetrics], Table]] = {
    "rewards": lambda metrics: Table(
        ("from", "to", "rollouts"), [(bar["low"], bar["high"], bar["count"]) for bar in metrics.histogram]
    ),
    "lengths": lambda metrics: Table(
        ("output_tokens_from", "output_tokens_to", "rollouts", "mean_reward"),
        [(bar.low, bar.high, bar.count, bar.mean_reward) for bar in metrics.by_length],
    ),
    "attempts": _attempts,
    "first_attempts": _first_attempts,
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


def tabulate_shares(shares: Sequence[LabelFigures]) -> Table:
    """Return a table with a column for each k and each component in any share."""
    ks = sorted({k for share in shares for k in share.pass_at_k})
    names = sorted({name for share in shares for name in share.components})
    header = [
        *_SHARE_COLUMNS,
        *(f"{curve}_{k}" for curve in ("pass_at", "majority_at", "average_of") for k in ks),
        *(f"{phase}_seconds" for phase in _PHASES),
        *(f"{name}: {figure}" for name in names for figure in _COMPONENT_COLUMNS),
    ]
    return Table(header, [_share(share, ks, names) for share in shares])


_PHASES = ("model", "tools", "verify")
_COMPONENT_COLUMNS = ("rollouts", "mean", "std", "median", "low_95", "high_95")
_SHARE_COLUMNS = (
    "label",
    "rollouts",
    "completed",
    "failed",
    "rewarded",
    "missing",
    "no_answer",
    "tasks",
    "mean_reward",
    "standard_error",
    "low_95",
    "high_95",
    "std",
    "median",
    "min_reward",
    "max_reward",
    "input_tokens",
    "output_tokens",
    "cost",
    "mean_turns",
    "mean_tool_calls",
    "mean_seconds",
)


def _share(share: LabelFigures, ks: Sequence[int], names: Sequence[str]) -> list[object]:
    by_name = {each.name: each for each in share.component_figures}
    low, high = share.confidence or (None, None)
    derived = {
        "low_95": low,
        "high_95": high,
        "input_tokens": share.tokens["input"],
        "output_tokens": share.tokens["output"],
        "mean_seconds": share.mean_duration,
    }
    return [
        *(derived[name] if name in derived else getattr(share, name) for name in _SHARE_COLUMNS),
        *(curve.get(k) for curve in (share.pass_at_k, share.majority_at_k, share.average_of_k) for k in ks),
        *(share.latency.get(phase) for phase in _PHASES),
        *(value for name in names for value in _component(by_name.get(name))),
    ]


def _component(found: ComponentFigures | None) -> Sequence[object]:
    if found is None:
        return [None] * len(_COMPONENT_COLUMNS)
    return [found.count, found.mean, found.std, found.median, *(found.confidence or (None, None))]


def tabulate_points(points: Sequence[ScatterPoint]) -> Table:
    return Table(("rollout", "reward", "output_tokens"), points)
