"""The order in which each mode of a pair rule tries candidate pairs, by reward."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge

from apps.gym.pairs.pair_rule import TOLERANCE, Attempt, Mode, Outcome, Rule

Candidate = tuple[Attempt, Attempt]
"""A candidate pair: (chosen, rejected)."""


def find_reward_problem(chosen: float, rejected: float, rule: Rule) -> Outcome | None:
    """Return why these two rewards cannot form a pair, or None if they can."""
    gap = chosen - rejected
    if gap <= TOLERANCE:
        return "tie"
    if gap < rule.margin - TOLERANCE:
        return "below_margin"
    if rule.min_chosen_reward is not None and chosen < rule.min_chosen_reward - TOLERANCE:
        return "chosen_too_weak"
    return None


def reward_of(attempt: Attempt) -> float:
    assert attempt.reward is not None
    return attempt.reward


def best_first(group: Iterable[Attempt], rule: Rule) -> list[Attempt]:
    """Return the attempts that may be chosen, best first. Ties: fewest output tokens, then lowest id."""
    ordered = sorted(group, key=lambda one: (-reward_of(one), one.output_tokens, one.id))
    min_reward = rule.min_chosen_reward
    return ordered if min_reward is None else [one for one in ordered if reward_of(one) >= min_reward - TOLERANCE]


def worst_first(group: Iterable[Attempt]) -> list[Attempt]:
    return sorted(group, key=lambda one: (reward_of(one), one.output_tokens, one.id))


def by_chosen(group: Sequence[Attempt], rule: Rule) -> Iterator[Candidate]:
    """Yield the best attempt with each worse one, worst first; then the second best, and so on."""
    worst = worst_first(group)
    for chosen in best_first(group, rule):
        for rejected in worst:
            if find_reward_problem(reward_of(chosen), reward_of(rejected), rule) is not None:
                break
            yield chosen, rejected


def _widest_first(group: Sequence[Attempt], rule: Rule) -> Iterator[Candidate]:
    """Yield all pairs, largest margin first, ties by the better chosen attempt. Lazy: large groups have many pairs."""
    best, worst = best_first(group, rule), worst_first(group)

    def row(rank: int) -> Iterator[tuple[float, int, int]]:
        chosen = reward_of(best[rank])
        return ((reward_of(rejected) - chosen, rank, place) for place, rejected in enumerate(worst))

    for _, rank, place in merge(*map(row, range(len(best)))):
        if find_reward_problem(reward_of(best[rank]), reward_of(worst[place]), rule) is not None:
            return
        yield best[rank], worst[place]


def _near_two_sigma(group: Sequence[Attempt], rule: Rule) -> Iterator[Candidate]:
    """Yield the best attempt with the others, nearest to two standard deviations below the mean reward first."""
    rewards = [reward_of(one) for one in group]
    mean = sum(rewards) / len(rewards)
    target = mean - 2 * (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
    # The sort is stable: at equal distance, the worst comes first.
    nearest = sorted(worst_first(group), key=lambda one: abs(reward_of(one) - target))
    for chosen in best_first(group, rule):
        for rejected in nearest:
            if find_reward_problem(reward_of(chosen), reward_of(rejected), rule) is None:
                yield chosen, rejected


IN_ORDER: Mapping[Mode, Callable[[Sequence[Attempt], Rule], Iterator[Candidate]]] = {
    "best_worst": by_chosen,
    "best_vs_all": by_chosen,
    "all": _widest_first,
    "best_mu_2sigma": _near_two_sigma,
}
