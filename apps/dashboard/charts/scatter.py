"""Scatter plot of rewards against lengths: a sample of rollouts, and the mean reward by length."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, reward_range
from apps.rollouts.metrics.collection_figures import LengthBar
from apps.rollouts.metrics.page_figures import ScatterPoint

WIDTH, HEIGHT, LEFT, RIGHT, FLOOR, CEILING = 360.0, 190.0, 34.0, 8.0, 156.0, 10.0


@dataclass(frozen=True, slots=True)
class Point:
    rollout: ScatterPoint
    x: float
    y: float
    tone: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """`course` is the line of mean rewards by length; empty with fewer than two."""

    points: list[Point]
    x_ticks: list[tuple[float, float]]
    y_ticks: list[tuple[float, float]]
    course: str
    whole: int
    width, height, left, right, floor = WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, FLOOR

    @property
    def is_sample(self) -> bool:
        return len(self.points) < self.whole


def draw_scatter(rollouts: Sequence[ScatterPoint], lengths: Sequence[LengthBar], *, whole: int) -> Scatter:
    """Draw the scatter plot. `whole` is the number of rollouts with a reward."""
    rewards = [each.reward for each in rollouts] or [0.0, 1.0]
    longest = max([each.output_tokens for each in rollouts] + [bar.high for bar in lengths], default=0)
    across = Axis(0.0, float(max(1, longest)), LEFT, WIDTH - RIGHT)
    up = Axis(*reward_range(min(rewards), max(rewards)), FLOOR, CEILING)
    points = [
        Point(
            each,
            across.place(each.output_tokens),
            _spread(up.place(each.reward), each.rollout),
            "ok" if each.reward >= 1 else "bad" if each.reward <= 0 else "warn",
        )
        for each in rollouts
    ]
    middles = [(across.place((bar.low + bar.high) / 2), up.place(bar.mean_reward)) for bar in lengths]
    course = " ".join(f"{x},{y}" for x, y in middles) if len(middles) > 1 else ""
    return Scatter(points=points, x_ticks=across.ticks, y_ticks=up.ticks, course=course, whole=whole)


def _spread(height: float, rollout: int) -> float:
    """Return the height, shifted a little by the rollout's id, so that points with equal rewards do not overlap."""
    return round(height + (rollout * 37 % 11 - 5) * 0.8, 2)
