"""What a collection's rewards say: pass@k, mean, spread, groups, histogram. Plain numbers in, plain numbers out."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

SOLVED = 1.0
"""An attempt solves its task with at least this reward: full marks."""

Z_95 = 1.959963984540054
"""The normal distribution's 97.5 % quantile: a 95 % confidence interval is the mean ± this many standard errors."""


class Group(NamedTuple):
    """The rewarded attempts at one task."""

    size: int
    solved: int
    reward_sum: float


def pass_at_k(size: int, solved: int, k: int) -> float:
    """The chance that at least one of k attempts, drawn without replacement from `size`, is one of the `solved`.

    1 − C(n−c, k) / C(n, k): the unbiased estimator of Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code" (arXiv:2107.03374), equation 1, multiplied out so that no binomial overflows. Needs 1 ≤ k ≤ size.
    """
    if not 1 <= k <= size or not 0 <= solved <= size:
        raise ValueError(f"pass@{k} of {solved} solved in {size} is not defined")
    if size - solved < k:
        return 1.0
    return 1.0 - math.prod((size - solved - i) / (size - i) for i in range(k))


def mean_pass_at_k(shapes: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, … averaged over groups. `shapes` counts the groups of each (size, solved).

    A group smaller than k says nothing about pass@k and is left out of that average.
    """
    largest = max((size for size, _ in shapes), default=0)
    averages: dict[int, float] = {}
    k = 1
    while k <= largest:
        eligible = {shape: count for shape, count in shapes.items() if shape[0] >= k}
        total = sum(pass_at_k(size, solved, k) * count for (size, solved), count in eligible.items())
        averages[k] = total / sum(eligible.values())
        k *= 2
    return averages


def mean_average_of_k(means: Mapping[int, tuple[int, float]]) -> dict[int, float]:
    """The mean reward of k attempts, averaged over groups, for k = 1, 2, 4, …

    `means` has, by the size of a group, how many groups there are and the sum of their mean rewards. The average of k
    attempts drawn from a group is its mean, whatever k: what differs is which groups are large enough.
    """
    averages: dict[int, float] = {}
    k = 1
    while k <= max(means, default=0):
        eligible = [found for size, found in means.items() if size >= k]
        averages[k] = math.fsum(total for _, total in eligible) / sum(groups for groups, _ in eligible)
        k *= 2
    return averages


def sample_std(size: int, squared_deviations: float) -> float | None:
    """With n − 1, from the sum of squared deviations from the mean; None for fewer than two values."""
    return math.sqrt(max(squared_deviations, 0.0) / (size - 1)) if size > 1 else None


def clustered_standard_error(groups: Iterable[Group], average: float) -> float | None:
    """The standard error of the mean reward; None for fewer than two groups.

    Attempts at one task are not independent, so deviations are summed per group before they are squared: Miller 2024,
    "Adding Error Bars to Evals" (arXiv:2411.00640), section 2.2.
    """
    squares, size, count = 0.0, 0, 0
    for group in groups:
        squares += (group.reward_sum - group.size * average) ** 2
        size += group.size
        count += 1
    return standard_error_from(squares, size, count)


def standard_error_from(squares: float, size: int, groups: int) -> float | None:
    """The same from sums: squared deviations of each group's sum of rewards, attempts, groups."""
    return math.sqrt(max(squares, 0.0)) / size if groups > 1 else None


def confidence_interval(average: float, standard_error: float) -> tuple[float, float]:
    """95 %, by the normal approximation."""
    return average - Z_95 * standard_error, average + Z_95 * standard_error


def solve_buckets(shapes: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """How many groups were never, sometimes and always solved. Only the middle ones can be learnt from by contrast."""
    buckets = Counter({"never": 0, "sometimes": 0, "always": 0})
    for (size, solved), count in shapes.items():
        buckets["never" if solved == 0 else "always" if solved == size else "sometimes"] += count
    return dict(buckets)


def histogram_edges(low: float, high: float, bins: int = 10) -> list[float]:
    """`bins` + 1 edges that hold [low, high]: rewards within 0–1 get the whole of it, so that charts compare."""
    if low >= 0.0 and high <= 1.0:
        low, high = 0.0, 1.0
    elif low == high:
        high = low + 1.0
    return [low + (high - low) * step / bins for step in range(bins)] + [high]


def bin_counts(edges: Sequence[float], counts: Mapping[int, int]) -> list[dict[str, float | int]]:
    """Bars [{"low", "high", "count"}]; the last one includes its upper edge."""
    return [
        {"low": low, "high": high, "count": counts.get(index, 0)} for index, (low, high) in enumerate(pairwise(edges))
    ]
