"""Compare captured log probabilities with recomputed ones.

A server reported the captured ones while it sampled. The second computation reads all ids at once, like a trainer.
Differences come from the data type, the batch and the implementation, or from a wrong model. An importance ratio is
exp(recomputed − captured), here of a whole sequence.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

LIMITS = (0.001, 0.01, 0.1)
"""Differences of which the figures give the shares of larger ones."""
RATIO_LIMITS = (0.01, 0.05)
UNCERTAIN = 0.9
"""A token is uncertain if the model gave it a probability below this one. The others hardly differ in any data type."""
_LARGEST_EXPONENT = 50.0


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute differences in nats. `above` has the share of larger ones for each of LIMITS; None without tokens."""

    tokens: int
    largest: float | None = None
    p99: float | None = None
    mean: float | None = None
    above: dict[str, float] = {}


class LogprobComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a comparison.

    `ratio_mean` is the mean importance ratio of the sequences, and `ratio_outside` the share of ratios outside 1 ± each
    of RATIO_LIMITS.
    """

    sequences: int
    every: Differences
    uncertain: Differences
    ratio_mean: float | None = None
    ratio_outside: dict[str, float] = {}


def compare_logprobs(pairs: Iterable[tuple[Sequence[float], Sequence[float]]]) -> LogprobComparison:
    """Return the figures of sequences, each with the captured and the recomputed logprobs of its sampled tokens."""
    every: list[float] = []
    uncertain: list[float] = []
    ratios: list[float] = []
    for captured, recomputed in pairs:
        differences = [own - was for was, own in zip(captured, recomputed, strict=True)]
        every += map(abs, differences)
        threshold = math.log(UNCERTAIN)
        uncertain += [abs(one) for one, was in zip(differences, captured, strict=True) if was < threshold]
        ratios.append(math.exp(min(_LARGEST_EXPONENT, math.fsum(differences))))
    return LogprobComparison(
        sequences=len(ratios),
        every=_summarize(every),
        uncertain=_summarize(uncertain),
        ratio_mean=math.fsum(ratios) / len(ratios) if ratios else None,
        ratio_outside=_shares([abs(ratio - 1) for ratio in ratios], RATIO_LIMITS),
    )


def _summarize(differences: list[float]) -> Differences:
    if not differences:
        return Differences(tokens=0)
    ordered = sorted(differences)
    return Differences(
        tokens=len(ordered),
        largest=ordered[-1],
        # Nearest rank: the smallest difference that at least 99 % do not exceed.
        p99=ordered[math.ceil(0.99 * len(ordered)) - 1],
        mean=math.fsum(ordered) / len(ordered),
        above=_shares(ordered, LIMITS),
    )


def _shares(values: Sequence[float], limits: Sequence[float]) -> dict[str, float]:
    return {f"{limit:g}": sum(value > limit for value in values) / len(values) for limit in limits} if values else {}
