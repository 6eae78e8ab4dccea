"""Means with their intervals as bars in the cells of a table, all on one axis."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, reward_range

WIDTH, HEIGHT = 160.0, 14.0


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A bar from zero, or from the left end where zero is not on the axis, to the mean."""

    x: float
    width: float
    mean: float
    low: float | None
    high: float | None


def draw_intervals(means: Sequence[tuple[float | None, tuple[float, float] | None]]) -> list[IntervalBar | None]:
    """For each (mean, its interval) a bar; None where there is no mean."""
    axis = Axis(*_range(means), 1.0, WIDTH - 1)
    zero = axis.place(0.0)
    bars: list[IntervalBar | None] = []
    for mean, interval in means:
        if mean is None:
            bars.append(None)
            continue
        at = axis.place(mean)
        low, high = (axis.place(end) for end in interval) if interval else (None, None)
        bars.append(IntervalBar(x=min(zero, at), width=round(max(abs(at - zero), 0.5), 2), mean=at, low=low, high=high))
    return bars


def _range(means: Sequence[tuple[float | None, tuple[float, float] | None]]) -> tuple[float, float]:
    """0–1 where all means lie within: an interval that leaves it is cut there, since no reward does."""
    known = [(mean, interval) for mean, interval in means if mean is not None]
    if all(0.0 <= mean <= 1.0 for mean, _ in known):
        return 0.0, 1.0
    ends = [end for mean, interval in known for end in (mean, *(interval or ()))]
    return reward_range(min(ends), max(ends))
