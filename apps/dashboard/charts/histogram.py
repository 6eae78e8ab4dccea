"""Geometry of a histogram as SVG attributes; the content security policy forbids inline styles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, FLOOR, CEILING = 360.0, 190.0, 166.0, 18.0


@dataclass(frozen=True, slots=True)
class Bar:
    low: float
    high: float
    count: int
    x: float
    y: float
    width: float
    height: float
    is_last: bool = False

    @property
    def from_value(self) -> str:
        """Return the lower bound for a reward filter."""
        return f"{self.low:.12g}"

    @property
    def to_value(self) -> str:
        """Return the upper bound for a reward filter.

        It is just below `high`, which belongs to the next bar, except in the last bar.
        """
        return f"{self.high if self.is_last else self.high - 1e-6 * (self.high - self.low):.12g}"

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 2)

    @property
    def label_y(self) -> float:
        return round(self.y - 4, 2)


@dataclass(frozen=True, slots=True)
class Histogram:
    bars: list[Bar]
    width, height, floor = WIDTH, HEIGHT, FLOOR

    @property
    def low(self) -> float | None:
        return self.bars[0].low if self.bars else None

    @property
    def high(self) -> float | None:
        return self.bars[-1].high if self.bars else None


def draw_histogram(bins: Iterable[Mapping[str, Any]]) -> Histogram:
    """Return bars of equal width for `{"low", "high", "count"}` bins. The highest bar has the full height."""
    given = list(bins)
    tallest = max((int(each["count"]) for each in given), default=0)
    step = WIDTH / max(1, len(given))
    bars = []
    for index, each in enumerate(given):
        count = int(each["count"])
        height = (FLOOR - CEILING) * count / tallest if tallest else 0.0
        # A small count among large ones must still be visible.
        height = max(height, 2.0) if count else 0.0
        bars.append(
            Bar(
                low=float(each["low"]),
                high=float(each["high"]),
                count=count,
                x=round(index * step + 1, 2),
                y=round(FLOOR - height, 2),
                width=round(max(1.0, step - 2), 2),
                height=round(height, 2),
                is_last=index == len(given) - 1,
            )
        )
    return Histogram(bars=bars)
