"""Compare two sets of attempts at the same tasks. Paired by task, because tasks differ more than models do."""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from apps.gym.metrics.pass_at_k import Z_95

RESAMPLES = 2_000
MAX_RESAMPLED = 2_000
"""Above this number of tasks the normal interval is used; it agrees with the bootstrap to the second digit."""


class Interval(NamedTuple):
    """The mean of paired differences and its 95 % interval."""

    mean: float
    low: float
    high: float


def mcnemar(improved: int, regressed: int) -> float:
    """Return the exact two-sided p-value that a changed task is equally likely to improve or regress.

    McNemar 1947 by the binomial distribution: twice the smaller tail of B(improved + regressed, ½), at most 1.
    """
    changed, fewer = improved + regressed, min(improved, regressed)
    if improved < 0 or regressed < 0:
        raise ValueError("the numbers of tasks that changed cannot be negative")
    if changed > 10_000:
        # The tail by the normal approximation with continuity correction, because the sum would take seconds.
        return min(1.0, math.erfc(max(0.0, abs(improved - regressed) - 1) / math.sqrt(2 * changed)))
    tail = sum(math.comb(changed, each) for each in range(fewer + 1))
    # Integer division is exact for any length; a float would overflow.
    return min(1.0, 2 * tail / (1 << changed))


def paired_bootstrap(differences: Sequence[float], *, seed: int = 0) -> Interval | None:
    """Return the mean difference with a 95 % percentile interval over resampled tasks.

    None for fewer than two tasks.

    Efron 1979. Tasks are drawn with replacement, so attempts at one task stay together.
    """
    size = len(differences)
    if size < 2:
        return None
    mean = math.fsum(differences) / size
    if size > MAX_RESAMPLED:
        return interval_from(size, mean, math.fsum((each - mean) ** 2 for each in differences))
    draw = random.Random(seed)
    means = sorted(math.fsum(draw.choices(differences, k=size)) / size for _ in range(RESAMPLES))
    return Interval(mean, means[int(RESAMPLES * 0.025)], means[int(RESAMPLES * 0.975) - 1])


def interval_from(size: int, mean: float, squares: float) -> Interval:
    """Return the normal interval of a mean difference, from the sum of squared deviations. Needs two tasks."""
    spread = math.sqrt(squares / (size - 1) / size)
    return Interval(mean, mean - Z_95 * spread, mean + Z_95 * spread)
