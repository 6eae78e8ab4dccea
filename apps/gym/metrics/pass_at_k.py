"""Statistics of a collection's rewards: pass@k, average@k, spread, groups, histogram."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

SOLVED = 1.0
"""Default solve threshold: an attempt with at least this reward solves its task. Environments can set another."""

EVERY_K = 128
"""Figures are given for every k up to this one, and for powers of two above it."""


def pass_at_k(size: int, solved: int, k: int) -> float:
    """Return the probability that k attempts, drawn without replacement from `size`, include one of the `solved`.

    1 − C(n−c, k) / C(n, k): the unbiased estimator of Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code" (arXiv:2107.03374), equation 1, multiplied out so that no binomial overflows. Needs 1 ≤ k ≤ size.
    """
    if not 1 <= k <= size or not 0 <= solved <= size:
        raise ValueError(f"pass@{k} of {solved} solved in {size} is not defined")
    return next(pass_curve(size, solved, [k]))


def pass_curve(size: int, solved: int, ks: Sequence[int]) -> Iterator[float]:
    """Yield pass@k for each k of `ks`, which must be ascending and at most `size`."""
    failing, drawn = 1.0, 0
    for k in ks:
        while drawn < k:
            failing *= max(0, size - solved - drawn) / (size - drawn)
            drawn += 1
        yield 1.0 - failing


def attempt_counts(largest: int) -> list[int]:
    """Return the k for which figures are given: 1 to EVERY_K, then powers of two, and `largest`."""
    if largest <= EVERY_K:
        return list(range(1, largest + 1))
    doubled = [EVERY_K << power for power in range(1, largest.bit_length())]
    return [*range(1, EVERY_K + 1), *(k for k in doubled if k < largest), largest]


def mean_pass_at_k(shapes: Mapping[tuple[int, int], int]) -> dict[int, float]:
    """Return pass@k by k averaged over groups.

    `shapes` counts the groups of each (size, solved).

    Groups smaller than k are left out of the average for k.
    """
    ks = attempt_counts(max((size for size, _ in shapes), default=0))
    totals, groups = [0.0] * len(ks), [0] * len(ks)
    for (size, solved), count in shapes.items():
        for place, chance in enumerate(pass_curve(size, solved, ks[: bisect_right(ks, size)])):
            totals[place] += chance * count
            groups[place] += count
    return {k: total / count for k, total, count in zip(ks, totals, groups, strict=True)}


def mean_average_of_k(means: Mapping[int, tuple[int, float]]) -> dict[int, float]:
    """Return the expected mean reward of k attempts by k, averaged over groups with at least k attempts.

    `means` maps the size of a group to the number of groups and the sum of their mean rewards. The expected average of
    k attempts drawn from a group is the group's mean, whatever k; only the set of groups that are large enough changes.
    """
    averages: dict[int, float] = {}
    for k in attempt_counts(max(means, default=0)):
        eligible = [found for size, found in means.items() if size >= k]
        averages[k] = math.fsum(total for _, total in eligible) / sum(groups for groups, _ in eligible)
    return averages


def sample_std(size: int, squared_deviations: float) -> float | None:
    """Return the sample standard deviation from the sum of squared deviations.

    None for fewer than two values.
    """
    return math.sqrt(max(squared_deviations, 0.0) / (size - 1)) if size > 1 else None


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
