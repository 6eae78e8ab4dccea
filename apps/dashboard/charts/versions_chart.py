"""Geometry of the chart "Reward by version" as SVG attributes: a point per version with its 95 % interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, mean_range
from apps.rollouts.metrics.model_versions import VersionReward

WIDTH, HEIGHT, LEFT, RIGHT, FLOOR, CEILING = 480.0, 180.0, 44.0, 8.0, 152.0, 12.0
_MARGIN = 0.08
"""Margin above and below, as a share of the range, for rewards outside 0–1."""


@dataclass(frozen=True, slots=True)
class Point:
    """A version.

    `number` is its label on the axis and in the table; `low_y` and `high_y` are the ends of its interval.
    """

    number: int
    reward: VersionReward
    x: float
    y: float
    low_y: float | None
    high_y: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """Ticks are (y, value). `line` joins the points; numbers are shown where there is space."""

    points: list[Point]
    ticks: list[tuple[float, float]]
    line: str
    width, height, left, right, floor = WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, FLOOR

    @property
    def numbered(self) -> list[Point]:
        step = max(1, -(-len(self.points) // 16))
        return self.points[::step]


def draw_versions(rewards: Sequence[VersionReward], *, first: int = 1) -> Chart:
    """Draw the chart. `first` is the number of the first version."""
    low, high = mean_range([(each.mean_reward, each.confidence) for each in rewards], margin=_MARGIN)
    up = Axis(low, high, FLOOR, CEILING)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(rewards))
    points = [
        Point(
            number=first + index,
            reward=each,
            x=round(LEFT + step * (index + 0.5), 2),
            y=up.place(each.mean_reward),
            low_y=up.place(each.confidence[0]) if each.confidence else None,
            high_y=up.place(each.confidence[1]) if each.confidence else None,
        )
        for index, each in enumerate(rewards)
    ]
    ticks = [(up.place(value), value) for value in (low, (low + high) / 2, high)]
    return Chart(points=points, ticks=ticks, line=" ".join(f"{point.x},{point.y}" for point in points))
