"""Parts of a whole as one bar: (name, amount, tone) left to right."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """`x` and `width` are per cent of the bar."""

    name: str
    amount: float
    tone: str
    x: float
    width: float


def draw_shares(parts: Sequence[tuple[str, float, str]]) -> list[Part]:
    """Every part is in the list, those of nothing with no width."""
    whole = sum(amount for _, amount, _ in parts)
    drawn, x = [], 0.0
    for name, amount, tone in parts:
        width = 100 * amount / whole if whole else 0.0
        drawn.append(Part(name, amount, tone, round(x, 3), round(width, 3)))
        x += width
    return drawn
