"""A line of mean rewards without axes, for a cell of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, reward_range

WIDTH, HEIGHT, MARGIN = 72.0, 20.0, 3.0


@dataclass(frozen=True, slots=True)
class Sparkline:
    """`points` are positions from the oldest to the latest value; `values` are the values, for the text."""

    points: list[tuple[float, float]]
    values: list[float]
    width, height = WIDTH, HEIGHT

    @property
    def line(self) -> str:
        return " ".join(f"{x},{y}" for x, y in self.points)

    @property
    def last(self) -> tuple[float, float]:
        return self.points[-1]

    @property
    def text(self) -> str:
        shown = ", ".join(f"{value:.3f}" for value in self.values)
        return f"Mean rewards of the last {len(self.values)} collections, oldest first: {shown}"


def draw_sparkline(values: Sequence[float]) -> Sparkline | None:
    """Draw the values at equal distances, or return None for fewer than two."""
    if len(values) < 2:
        return None
    across = Axis(0.0, len(values) - 1.0, MARGIN, WIDTH - MARGIN)
    up = Axis(*reward_range(min(values), max(values)), HEIGHT - MARGIN, MARGIN)
    points = [(across.place(float(index)), up.place(value)) for index, value in enumerate(values)]
    return Sparkline(points, list(values))
