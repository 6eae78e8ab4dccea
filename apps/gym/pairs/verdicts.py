"""Convert a reviewer's choice or ranking to verdicts that do not depend on the sides of the rollouts on the page."""

from collections.abc import Sequence
from itertools import combinations

import msgspec

CHOICES: dict[str, str] = {
    "a_much": "A much better",
    "a": "A better",
    "equal": "Equal",
    "both_bad": "Both bad",
    "b": "B better",
    "b_much": "B much better",
}
_SIDES: dict[str, tuple[int | None, int]] = {
    "a_much": (0, 2),
    "a": (0, 1),
    "equal": (None, 0),
    "both_bad": (None, 0),
    "b": (1, 1),
    "b_much": (1, 2),
}
REASONS: dict[str, str] = {
    "correctness": "Correctness",
    "instructions": "Follows instructions",
    "reasoning": "Reasoning",
    "tool_use": "Tool use",
    "efficiency": "Efficiency",
    "safety": "Safety",
    "honesty": "Honesty",
    "style": "Style",
    "other": "Other",
}
CONFIDENCE: dict[int, str] = {1: "unsure", 2: "fairly sure", 3: "sure"}
FEWEST, MOST = 2, 6


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict about two rollouts. `low` is the lower id; `outcome` is `low`, `high`, `equal` or `both_bad`."""

    low: int
    high: int
    outcome: str
    strength: int


def read_choice(choice: str, shown: Sequence[int]) -> Verdict:
    """Return the verdict of a choice. `shown` are the ids of A and B."""
    side, strength = _SIDES[choice]
    one, other = shown
    return _verdict(one, other, None if side is None else shown[side], strength, otherwise=choice)


def read_ranks(ranks: Sequence[int], shown: Sequence[int]) -> list[Verdict]:
    """Return a verdict for every two rollouts of a ranking.

    The lower rank is better, equal ranks are ties, and a difference of two or more means "much better".
    """
    found = []
    for (one, first), (other, second) in combinations(zip(shown, ranks, strict=True), 2):
        best = None if first == second else one if first < second else other
        found.append(_verdict(one, other, best, min(2, abs(first - second)), otherwise="equal"))
    return found


def _verdict(one: int, other: int, best: int | None, strength: int, *, otherwise: str) -> Verdict:
    low, high = sorted((one, other))
    outcome = otherwise if best is None else "low" if best == low else "high"
    return Verdict(low=low, high=high, outcome=outcome, strength=strength)


def find_ranks_problem(ranks: object, size: int) -> str:
    """Return an error message if these are not valid ranks of `size` rollouts, else an empty string."""
    if not isinstance(ranks, list) or len(ranks) != size:
        return f"Give a rank for each of the {size} rollouts."
    if not all(isinstance(each, int) and not isinstance(each, bool) and 1 <= each <= size for each in ranks):
        return f"A rank is a whole number from 1 (best) to {size}."
    return "" if min(ranks) == 1 else "The best rollout must have rank 1."


def dense_ranks(ranks: Sequence[int]) -> list[int]:
    """Return the ranks without gaps: 1, 1, 3 becomes 1, 1, 2."""
    places = {rank: place for place, rank in enumerate(sorted(set(ranks)), start=1)}
    return [places[rank] for rank in ranks]


def mirror(choice: str) -> str:
    """Return the same choice with the sides swapped."""
    return {"a_much": "b_much", "a": "b", "b": "a", "b_much": "a_much"}.get(choice, choice)
