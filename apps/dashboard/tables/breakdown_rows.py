"""Rows of the table of a breakdown."""

from collections.abc import Sequence
from typing import NamedTuple

from apps.dashboard.charts.intervals import IntervalBar, draw_intervals
from apps.rollouts.metrics.label_figures import LabelFigures


class ShareRow(NamedTuple):
    """A row. `attempts` has a value for each name in `name_attempts`."""

    share: LabelFigures
    bar: IntervalBar | None
    attempts: list[float | None]


def name_attempts(shares: Sequence[LabelFigures]) -> list[str]:
    """Return the columns by number of attempts: for one attempt, and for the largest number in any share."""
    return [f"{name}@{k}" for name, k in _chosen(shares)]


def lay_out_shares(shares: Sequence[LabelFigures]) -> list[ShareRow]:
    bars = draw_intervals([(share.mean_reward, share.confidence) for share in shares])
    chosen = _chosen(shares)
    return [
        ShareRow(share, bar, [_attempts(share, name).get(k) for name, k in chosen])
        for share, bar in zip(shares, bars, strict=True)
    ]


def _chosen(shares: Sequence[LabelFigures]) -> list[tuple[str, int]]:
    most = {
        name: max((k for share in shares for k in _attempts(share, name)), default=1) for name in ("pass", "majority")
    }
    return [("pass", 1), *((name, k) for name, k in most.items() if k > 1)]


def _attempts(share: LabelFigures, name: str) -> dict[int, float]:
    return share.pass_at_k if name == "pass" else share.majority_at_k
