"""best-of-k: the expected largest reward of k attempts."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import mul

from apps.gym.metrics.pass_at_k import attempt_counts


def best_of_k(rewards: Sequence[float], k: int) -> float:
    """Return the mean largest reward over all draws of k from these rewards, without replacement.

    For rewards of 0 and 1 this is pass@k. Needs 1 ≤ k ≤ number of rewards.
    """
    if not 1 <= k <= len(rewards):
        raise ValueError(f"best-of-{k} of {len(rewards)} attempts is not defined")
    return _weigh(sorted(rewards), k)


def mean_best_of_k(ranks: Mapping[int, tuple[int, Sequence[float]]]) -> dict[int, float]:
    """Return best-of-k by k averaged over groups with at least k attempts, as `mean_pass_at_k` does.

    `ranks` has for each size of a group the number of groups, and the sums over these groups of their smallest reward,
    their second smallest reward and so on. The mean over draws is linear in the sorted rewards, so sums are enough.
    """
    averages: dict[int, float] = {}
    for k in attempt_counts(max(ranks, default=0)):
        eligible = [found for size, found in ranks.items() if size >= k]
        total = sum(_weigh(sums, k) for _, sums in eligible)
        averages[k] = total / sum(groups for groups, _ in eligible)
    return averages


def _weigh(ascending: Sequence[float], k: int) -> float:
    return float(sum(map(mul, _weights(len(ascending), k), ascending[k - 1 :])))


@lru_cache(maxsize=20_000)
def _weights(size: int, k: int) -> tuple[float, ...]:
    """Return the chance of each reward, from the k-th smallest, to be the largest of k: C(i−1, k−1) / C(size, k)."""
    weights = [k / size]
    for rank in range(size, k, -1):
        weights.append(weights[-1] * (rank - k) / (rank - 1))
    return tuple(reversed(weights))
