"""Compare two sets of attempts at the same tasks. Paired by task, because tasks differ more than models do."""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from apps.gym.metrics.clustered_intervals import MIN_TASKS, t_quantile

MAX_PERMUTED = 400
"""Above this number of tasks the permutation test uses the normal approximation."""
_FLIPS = 5_000
_MAX_WORK = 200_000
_UNIT = 1e-9


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


def permutation_test(differences: Sequence[float], *, seed: int = 0) -> float:
    """Return the two-sided p-value that each task's difference is equally likely to have the opposite sign.

    Fisher 1935, "The Design of Experiments", section 21: the share of all sign changes with a mean at least as far from
    zero. Exact if there are few different sums, else from 5,000 random sign changes that include the observed one
    (Phipson and Smyth 2010, arXiv:1603.05766). For at most MAX_PERMUTED differences. Differences below 1e-9 are ties.
    """
    signed = [step for each in differences if (step := round(each / _UNIT))]
    steps, observed = [abs(step) for step in signed], abs(sum(signed))
    if not steps or not observed:
        return 1.0
    chances = _sign_sums(steps)
    if chances is not None:
        return min(1.0, math.fsum(chance for total, chance in chances.items() if abs(total) >= observed))
    draw, whole, extreme = random.Random(seed), sum(steps), 1
    for _ in range(_FLIPS - 1):
        signs = map(int, f"{draw.getrandbits(len(steps)):0{len(steps)}b}")
        extreme += abs(2 * sum(compress(steps, signs)) - whole) >= observed
    return extreme / _FLIPS


def permutation_from(size: int, mean: float, squares: float) -> float:
    """Return the p-value of many differences, from the sum of squared deviations from their mean.

    With random signs the sum of differences has mean 0 and the variance Σd²; it is nearly normal.
    """
    variance = squares + size * mean**2
    return math.erfc(abs(size * mean) / math.sqrt(2 * variance)) if variance > 0 else 1.0


def _sign_sums(steps: Sequence[int]) -> dict[int, float] | None:
    """Return the probability of each sum of the steps with random signs, or None if there are too many sums."""
    chances, work = {0: 1.0}, 0
    for step in steps:
        work += len(chances)
        if work > _MAX_WORK:
            return None
        grown: defaultdict[int, float] = defaultdict(float)
        for total, chance in chances.items():
            grown[total + step] += chance / 2
            grown[total - step] += chance / 2
        chances = grown
    return chances


def interval_from(size: int, mean: float, squares: float) -> Interval | None:
    """Return the t interval of a mean difference, from the sum of squared deviations. None for few tasks."""
    if size < MIN_TASKS:
        return None
    spread = t_quantile(size - 1) * math.sqrt(squares / (size - 1) / size)
    return Interval(mean, mean - spread, mean + spread)
