"""Where a value stands along an axis, and which round values its ticks name."""

import math
from dataclasses import dataclass

MARGIN = 0.06
"""Of the range, above and below, where rewards leave 0–1."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` at `start` to `high` at `end`, in the units of the picture."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + (self.end - self.start) * part, 2)

    @property
    def ticks(self) -> list[tuple[float, float]]:
        """(place, value), at most six, at round values."""
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [round(index * step, 12) for index in range(first, last + 1)]
        return [(self.place(value), value) for value in values]


def reward_range(low: float, high: float) -> tuple[float, float]:
    """0–1 where all lies within, so that figures compare; else what it spans, with a margin."""
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    margin = (high - low) * MARGIN or max(1.0, abs(high)) * MARGIN
    return low - margin, high + margin


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least `least`."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least * (1 - 1e-9)), 10 * power)
