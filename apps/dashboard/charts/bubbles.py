"""Bubble chart of the mean rewards of two collections: a bubble for tasks with about the same means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, reward_range
from apps.rollouts.metrics.collection_comparison import GridCell

SIZE, LEFT, RIGHT, FLOOR, CEILING = 300.0, 40.0, 14.0, 256.0, 30.0
_LARGEST = 11.0
_SMALLEST = 2.5


@dataclass(frozen=True, slots=True)
class Bubble:
    cell: GridCell
    x: float
    y: float
    r: float
    tone: str


@dataclass(frozen=True, slots=True)
class Bubbles:
    """On the diagonal from `start` to `end` both collections are equal; above it the second is better."""

    bubbles: list[Bubble]
    x_ticks: list[tuple[float, float]]
    y_ticks: list[tuple[float, float]]
    start: tuple[float, float]
    end: tuple[float, float]
    width, height, left, right, floor = SIZE, SIZE, LEFT, SIZE - RIGHT, FLOOR


def draw_bubbles(cells: Sequence[GridCell]) -> Bubbles:
    values = [value for cell in cells for value in (round(cell.x, 9), round(cell.y, 9))] or [0.0, 1.0]
    low, high = reward_range(min(values), max(values))
    across, up = Axis(low, high, LEFT + _LARGEST, SIZE - RIGHT), Axis(low, high, FLOOR - _LARGEST, CEILING)
    most = max((cell.tasks for cell in cells), default=1)
    bubbles = [
        Bubble(
            cell,
            across.place(cell.x),
            up.place(cell.y),
            round(_SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(cell.tasks / most), 2),
            "ok" if cell.y > cell.x + 1e-9 else "bad" if cell.y < cell.x - 1e-9 else "even",
        )
        # Largest first, so that no bubble hides a smaller one.
        for cell in sorted(cells, key=lambda cell: -cell.tasks)
    ]
    ends = (across.place(low), up.place(low)), (across.place(high), up.place(high))
    return Bubbles(bubbles=bubbles, x_ticks=across.ticks, y_ticks=up.ticks, start=ends[0], end=ends[1])
