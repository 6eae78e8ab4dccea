"""Positions of values on an axis, and round values for its ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

MARGIN = 0.06
"""Margin above and below, as a share of the range, for rewards outside 0–1."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` at `start` to `high` at `end`, in units of the picture."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + (self.end - self.start) * part, 2)

    @property
    def ticks(self) -> list[tuple[float, float]]:
        """Return (position, value) of at most six ticks at round values."""
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        values = [round(index * step, 12) for index in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [(self.place(value), value) for value in values]


def reward_range(low: float, high: float, *, margin: float = MARGIN) -> tuple[float, float]:
    """Return (0, 1) if all values are within it, so that charts are comparable; else the range with a margin."""
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    added = (high - low) * margin or max(1.0, abs(high)) * margin
    return low - added, high + added


Interval = tuple[float, float] | None


def mean_range(means: Sequence[tuple[float, Interval]], *, margin: float = MARGIN) -> tuple[float, float]:
    """Return (0, 1) if all means are within it, else the range with a margin.

    Intervals are clipped to 0–1 then, because no reward is outside.
    """
    if all(0.0 <= mean <= 1.0 for mean, _ in means):
        return 0.0, 1.0
    ends = [end for mean, interval in means for end in (mean, *(interval or ()))]
    return reward_range(min(ends), max(ends), margin=margin)


def _round_step(least: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least * (1 - 1e-9)), 10 * power)
