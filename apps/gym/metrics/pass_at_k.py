"""Statistics of a collection's rewards: pass@k, mean, spread, groups, histogram."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

SOLVED = 1.0
"""An attempt with at least this reward solves its task."""

Z_95 = 1.959963984540054
"""The normal distribution's 97.5 % quantile: a 95 % confidence interval is the mean ± this many standard errors."""


def pass_at_k(size: int, solved: int, k: int) -> float:
    """Return the probability that k attempts, drawn without replacement from `size`, include one of the `solved`.

    1 − C(n−c, k) / C(n, k): the unbiased estimator of Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code" (arXiv:2107.03374), equation 1, multiplied out so that no binomial overflows. Needs 1 ≤ k ≤ size.
    """
    if not 1 <= k <= size or not 0 <= solved <= size:
        raise ValueError(f"pass@{k} of {solved} solved in {size} is not defined")
    if size - solved < k:
        return 1.0
    return 1.0 - math.prod((size - solved - i) / (size - i) for i in range(k))


def powers_of_two(largest: int) -> list[int]:
    """Return the k = 1, 2, 4, … up to `largest` for which figures are shown."""
    return [1 << power for power in range(largest.bit_length())]


def mean_pass_at_k(shapes: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """Return pass@k for k = 1, 2, 4, … averaged over groups.

    `shapes` counts the groups of each (size, solved).

    Groups smaller than k are left out of the average for k.
    """
    averages: dict[int, float] = {}
    for k in powers_of_two(max((size for size, _ in shapes), default=0)):
        eligible = {shape: count for shape, count in shapes.items() if shape[0] >= k}
        total = sum(pass_at_k(size, solved, k) * count for (size, solved), count in eligible.items())
        averages[k] = total / sum(eligible.values())
    return averages


def mean_average_of_k(means: Mapping[int, tuple[int, float]]) -> dict[int, float]:
    """Return the mean reward of k attempts, averaged over groups, for k = 1, 2, 4, …

    `means` maps the size of a group to the number of groups and the sum of their mean rewards. The expected average of
    k attempts drawn from a group is the group's mean, whatever k; only the set of groups that are large enough changes.
    """
    averages: dict[int, float] = {}
    for k in powers_of_two(max(means, default=0)):
        eligible = [found for size, found in means.items() if size >= k]
        averages[k] = math.fsum(total for _, total in eligible) / sum(groups for groups, _ in eligible)
    return averages


def sample_std(size: int, squared_deviations: float) -> float | None:
    """Return the sample standard deviation from the sum of squared deviations.

    None for fewer than two values.
    """
    return math.sqrt(max(squared_deviations, 0.0) / (size - 1)) if size > 1 else None


def standard_error_from(squares: float, size: int, groups: int) -> float | None:
    """Return the standard error of the mean reward, or None for fewer than two groups.

    `squares` is the sum of squared deviations of each group's sum of rewards, `size` the number of attempts.

    Attempts at one task are not independent, so deviations are summed per group before they are squared: Miller 2024,
    "Adding Error Bars to Evals" (arXiv:2411.00640), section 2.2.
    """
    return math.sqrt(max(squares, 0.0)) / size if groups > 1 else None


def confidence_interval(average: float, standard_error: float) -> tuple[float, float]:
    """Return the 95 % interval by the normal approximation."""
    return average - Z_95 * standard_error, average + Z_95 * standard_error


def solve_buckets(shapes: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """Count the groups that were never, sometimes and always solved.

    Only the middle ones provide contrast to learn from.
    """
    buckets = Counter({"never": 0, "sometimes": 0, "always": 0})
    for (size, solved), count in shapes.items():
        buckets["never" if solved == 0 else "always" if solved == size else "sometimes"] += count
    return dict(buckets)


def histogram_edges(low: float, high: float, bins: int = 10) -> list[float]:
    """Return `bins` + 1 edges covering [low, high].

    Rewards within 0–1 get the full range, so that charts are comparable.
    """
    if low >= 0.0 and high <= 1.0:
        low, high = 0.0, 1.0
    elif low == high:
        high = low + 1.0
    return [low + (high - low) * step / bins for step in range(bins)] + [high]


def bin_counts(edges: Sequence[float], counts: Mapping[int, int]) -> list[dict[str, float | int]]:
    """Return bars [{"low", "high", "count"}]. The last one includes its upper edge."""
    return [
        {"low": low, "high": high, "count": counts.get(index, 0)} for index, (low, high) in enumerate(pairwise(edges))
    ]
