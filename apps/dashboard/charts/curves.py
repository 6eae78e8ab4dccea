"""Curves of pass@k and similar figures over k on a logarithmic axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.dashboard.charts.axes import Axis, reward_range

WIDTH, HEIGHT, LEFT, RIGHT, FLOOR, CEILING = 360.0, 190.0, 34.0, 100.0, 156.0, 10.0
_APART = 15.0
"""Minimum distance between labels, at the ends of curves and on the axis."""


@dataclass(frozen=True, slots=True)
class Curve:
    """`label_y` is the height of the name beside the end of the curve, where it overlaps no other name."""

    name: str
    mark: str
    points: list[tuple[float, float]]
    label_y: float

    @property
    def line(self) -> str:
        return " ".join(f"{x},{y}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class Curves:
    curves: list[Curve]
    x_ticks: list[tuple[float, int]]
    y_ticks: list[tuple[float, float]]
    rows: list[tuple[int, list[float | None]]]
    """Rows of the table: every k, and the value of each curve. Points are drawn at the labels of the axis."""
    width, height, left, right, floor = WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, FLOOR

    @property
    def names(self) -> list[str]:
        return [curve.name for curve in self.curves]


def draw_curves(given: Sequence[tuple[str, str, Mapping[int, float]]]) -> Curves:
    """Draw curves from (name, mark, value by k). Curves without values are left out."""
    known = [(name, mark, values) for name, mark, values in given if values]
    ks = sorted({k for _, _, values in known for k in values})
    if not ks:
        return Curves([], [], [], [])
    every = [value for _, _, values in known for value in values.values()]
    across = Axis(0.0, max(1.0, math.log2(ks[-1])), LEFT, WIDTH - RIGHT)
    up = Axis(*reward_range(min(every), max(every)), FLOOR, CEILING)
    ticks = _ticks(ks, across)
    drawn = [
        (name, mark, [(x, up.place(values[k])) for x, k in _own_ticks(ticks, max(values), across) if k in values])
        for name, mark, values in known
    ]
    labels = _spread([points[-1][1] for _, _, points in drawn])
    return Curves(
        curves=[Curve(name, mark, points, round(y, 2)) for (name, mark, points), y in zip(drawn, labels, strict=True)],
        x_ticks=ticks,
        y_ticks=up.ticks,
        rows=[(k, [values.get(k) for _, _, values in known]) for k in ks],
    )


def _ticks(ks: Sequence[int], across: Axis) -> list[tuple[float, int]]:
    """Return the positions of powers of two and of the largest k. Powers too close to the largest k are left out."""
    last = across.place(math.log2(ks[-1]))
    placed = [(across.place(math.log2(k)), k) for k in ks[:-1] if not k & (k - 1)]
    return [*((x, k) for x, k in placed if last - x >= _APART), (last, ks[-1])]


def _own_ticks(ticks: list[tuple[float, int]], last: int, across: Axis) -> list[tuple[float, int]]:
    """Return the labels up to the end of a curve, and its end."""
    return [*((x, k) for x, k in ticks if k < last), (across.place(math.log2(last)), last)]


def _spread(heights: list[float]) -> list[float]:
    """Return the heights, moved down where labels would overlap."""
    places, last = [0.0] * len(heights), -math.inf
    for index in sorted(range(len(heights)), key=lambda index: heights[index]):
        last = max(heights[index], last + _APART)
        places[index] = last
    return places
