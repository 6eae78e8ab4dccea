"""Bars for means with their intervals in table cells, all on one axis."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, Interval, mean_range

WIDTH, HEIGHT = 160.0, 14.0


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A bar from zero, or from the left end if zero is not on the axis, to the mean."""

    x: float
    width: float
    mean: float
    low: float | None
    high: float | None


def draw_intervals(means: Sequence[tuple[float | None, Interval]]) -> list[IntervalBar | None]:
    """Return a bar for each (mean, interval); None without a mean."""
    known = [(mean, interval) for mean, interval in means if mean is not None]
    axis = Axis(*mean_range(known), 1.0, WIDTH - 1)
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
