"""The geometry of "reward by version" as SVG attributes: a point a version with its 95 % interval, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.rollouts.metrics.model_versions import VersionReward

WIDTH, HEIGHT, LEFT, RIGHT, FLOOR, CEILING = 480.0, 180.0, 44.0, 8.0, 152.0, 12.0
_MARGIN = 0.08
"""Of the range, above and below, where rewards leave 0–1."""


@dataclass(frozen=True, slots=True)
class Point:
    """`number` is how the axis and the table name the version; `low_y` and `high_y` are the ends of its interval."""

    number: int
    reward: VersionReward
    x: float
    y: float
    low_y: float | None
    high_y: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """Ticks are (y, what it stands for). `line` joins the points; numbers are shown where they have room."""

    points: list[Point]
    ticks: list[tuple[float, float]]
    line: str
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    floor: float = FLOOR

    @property
    def numbered(self) -> list[Point]:
        step = max(1, -(-len(self.points) // 16))
        return self.points[::step]


def draw_versions(rewards: Sequence[VersionReward], *, first: int = 1) -> Chart:
    """`first` is the number of the first version."""
    low, high = _range(rewards)

    def height_of(value: float) -> float:
        part = (min(max(value, low), high) - low) / (high - low)
        return round(FLOOR - (FLOOR - CEILING) * part, 2)

    step = (WIDTH - LEFT - RIGHT) / max(1, len(rewards))
    points = [
        Point(
            number=first + index,
            reward=each,
            x=round(LEFT + step * (index + 0.5), 2),
            y=height_of(each.mean_reward),
            low_y=height_of(each.confidence[0]) if each.confidence else None,
            high_y=height_of(each.confidence[1]) if each.confidence else None,
        )
        for index, each in enumerate(rewards)
    ]
    ticks = [(height_of(value), value) for value in (low, (low + high) / 2, high)]
    return Chart(points=points, ticks=ticks, line=" ".join(f"{point.x},{point.y}" for point in points))


def _range(rewards: Sequence[VersionReward]) -> tuple[float, float]:
    """0–1 where all means lie within, so that charts compare; else what the means and intervals span."""
    means = [each.mean_reward for each in rewards]
    if not means or (min(means) >= 0.0 and max(means) <= 1.0):
        return 0.0, 1.0
    ends = [end for each in rewards for end in each.confidence or ()]
    low, high = min(means + ends), max(means + ends)
    margin = (high - low) * _MARGIN or max(1.0, abs(high)) * _MARGIN
    return low - margin, high + margin
