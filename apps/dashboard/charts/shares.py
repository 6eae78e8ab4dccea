"""A stacked bar of the parts of a whole, from (name, amount, tone), left to right."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the bar. `x` and `width` are percentages of the bar."""

    name: str
    amount: float
    tone: str
    x: float
    width: float


def draw_shares(parts: Sequence[tuple[str, float, str]]) -> list[Part]:
    """Return all parts. Empty parts have no width."""
    whole = sum(amount for _, amount, _ in parts)
    drawn, x = [], 0.0
    for name, amount, tone in parts:
        width = 100 * amount / whole if whole else 0.0
        drawn.append(Part(name, amount, tone, round(x, 3), round(width, 3)))
        x += width
    return drawn
