"""Figures of the first k attempts in the order they were planned, as NeMo Gym reports them.

The figures of other modules average over all draws of k attempts, so they do not depend on the order.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from apps.gym.metrics.pass_at_k import EVERY_K, attempt_counts, pass_curve, sample_std

Attempt = tuple[float, str]
"""The reward and the answer of an attempt. The answer is empty if there is none."""


class Sums(msgspec.Struct, array_like=True):
    """Sums over groups of the figures of their first k attempts."""

    groups: int = 0
    average: float = 0.0
    best: float = 0.0
    majority: float = 0.0
    no_answer: float = 0.0
    spread: float = 0.0


class OrderedAttempts(msgspec.Struct, array_like=True):
    """Sums over groups of attempts. They can be added up, because no task is in two parts.

    `ranks` has for each size of a group the number of groups and the sums of their sorted rewards, see
    `best_of_k.mean_best_of_k`. `runs` has the number of rewards and their sum for the first attempts of all groups, the
    second attempts and so on. `reached` has the sums of the first k attempts of groups with at least k, for k = 1, 2,
    …; `ended` has, by size, the sums of groups whose attempts are all included.
    """

    ranks: dict[int, tuple[int, list[float]]] = {}
    runs: list[tuple[int, float]] = []
    reached: list[Sums] = []
    ended: dict[int, Sums] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAttempts:
    """Figures of the first k attempts of each task, averaged over tasks. A task with fewer attempts counts with all.

    `average` is the mean reward; NeMo Gym calls it pass@1[avg-of-k]. `best` is NeMo Gym's pass@k, over tasks with at
    least k attempts: pass@k for tasks with rewards of 0 and 1, else the largest reward of the first k. `majority` is
    the reward of the most frequent pair of answer and reward. Pairs with equal votes are averaged; without an answer it
    is 0. `no_answer` is the share of attempts without an answer.

    A run is the first attempts of all tasks, the second attempts and so on. `std_across_runs` is the sample standard
    deviation of the mean rewards of the first k runs, `error_across_runs` its standard error. `mean_std` is the mean
    over tasks of the sample standard deviation of the first k rewards. They are None for k = 1.
    """

    k: int
    average: float
    best: float
    majority: float
    no_answer: float
    std_across_runs: float | None
    error_across_runs: float | None
    mean_std: float | None


def order_attempts(groups: Iterable[Sequence[Attempt]]) -> OrderedAttempts:
    """Return the sums over groups. A group has the attempts at one task, in the order they were planned."""
    # Groups with the same rewards and the same equalities of answers have the same figures.
    patterns: Counter[tuple[tuple[float, ...], tuple[int, ...]]] = Counter()
    for group in groups:
        codes: dict[str, int] = {"": 0}
        answers = tuple([codes.setdefault(answer, len(codes)) for _, answer in group])
        patterns[tuple([reward for reward, _ in group]), answers] += 1
    ranks: dict[int, tuple[int, list[float]]] = {}
    longest = min(EVERY_K, max((len(rewards) for rewards, _ in patterns), default=0))
    runs = [[0, 0.0] for _ in range(longest)]
    reached, ended = ([Sums() for _ in range(longest)] for _ in range(2))
    for (rewards, answers), times in patterns.items():
        size = len(rewards)
        groups_before, sums = ranks.get(size, (0, [0.0] * size))
        ranks[size] = (
            groups_before + times,
            [before + times * reward for before, reward in zip(sums, sorted(rewards), strict=True)],
        )
        _add_curve(reached, ended[min(size, EVERY_K) - 1], rewards, answers, times)
        for run, reward in zip(runs, rewards, strict=False):
            run[0] += times
            run[1] += times * reward
    return OrderedAttempts(
        ranks,
        [(int(count), total) for count, total in runs],
        reached,
        {place + 1: found for place, found in enumerate(ended) if found.groups},
    )


def combine_ordered(parts: Iterable[OrderedAttempts]) -> OrderedAttempts:
    """Add up parts with disjoint tasks."""
    parts = list(parts)
    ranks: dict[int, tuple[int, list[float]]] = {}
    ended: defaultdict[int, Sums] = defaultdict(Sums)
    longest = max((len(part.runs) for part in parts), default=0)
    runs = [(0, 0.0)] * longest
    reached = [Sums() for _ in range(longest)]
    for part in parts:
        for size, (groups, sums) in part.ranks.items():
            groups_before, before = ranks.get(size, (0, [0.0] * size))
            ranks[size] = groups_before + groups, list(map(float.__add__, before, sums))
        for place, (count, total) in enumerate(part.runs):
            runs[place] = runs[place][0] + count, runs[place][1] + total
            _add(reached[place], part.reached[place])
        for size, found in part.ended.items():
            _add(ended[size], found)
    return OrderedAttempts(ranks, runs, reached, dict(ended))


def figures_of_first(found: OrderedAttempts) -> list[FirstAttempts]:
    """Return the figures for k = 1, 2, … up to EVERY_K."""
    figures = []
    done = Sums()
    for k in attempt_counts(min(len(found.reached), EVERY_K)):
        every = Sums()
        _add(every, done)
        _add(every, found.reached[k - 1])
        single = found.ended[1].groups if k > 1 and 1 in found.ended else 0
        means = [total / count for count, total in found.runs[:k]]
        mean = math.fsum(means) / k
        std = sample_std(k, math.fsum((each - mean) ** 2 for each in means))
        several = every.groups - single
        figures.append(
            FirstAttempts(
                k=k,
                average=every.average / every.groups,
                best=found.reached[k - 1].best / found.reached[k - 1].groups,
                majority=every.majority / every.groups,
                no_answer=every.no_answer / every.groups,
                std_across_runs=std,
                error_across_runs=None if std is None else std / math.sqrt(k),
                mean_std=every.spread / several if k > 1 and several else None,
            )
        )
        if k in found.ended:
            _add(done, found.ended[k])
    return figures


def _add(one: Sums, other: Sums) -> None:
    one.groups += other.groups
    one.average += other.average
    one.best += other.best
    one.majority += other.majority
    one.no_answer += other.no_answer
    one.spread += other.spread


def _add_curve(
    reached: Sequence[Sums], ended: Sums, rewards: Sequence[float], answers: Sequence[int], times: int
) -> None:
    """Add the figures of the first 1, 2, … attempts to `reached`, and the figures of all attempts to `ended`.

    Each figure is added `times` times.
    """
    size = len(rewards)
    chances = _chances(size, int(sum(rewards))) if all(reward in (0.0, 1.0) for reward in rewards) else None
    counts: dict[tuple[int, float], int] = {}
    largest = rewards[0]
    total = mean = squares = votes_sum = 0.0
    votes = winners = silent = 0
    last = min(size, EVERY_K)
    for place, (sums, reward, answer) in enumerate(zip(reached, rewards, answers, strict=False)):
        number = place + 1
        total += reward
        # Welford 1962: precise for large, close rewards.
        off = reward - mean
        mean += off / number
        squares += off * (reward - mean)
        largest = max(largest, reward)
        if answer:
            given = counts[answer, reward] = counts.get((answer, reward), 0) + 1
            if given > votes:
                votes, winners, votes_sum = given, 1, reward
            elif given == votes:
                winners += 1
                votes_sum += reward
        else:
            silent += 1
        best = largest if chances is None else chances[place]
        majority = votes_sum / winners if winners else 0.0
        spread = math.sqrt(squares / place) if squares > 0.0 else 0.0
        for each in (sums, ended) if number == last else (sums,):
            each.groups += times
            each.average += times * total / number
            each.best += times * best
            each.majority += times * majority
            each.no_answer += times * silent / number
            each.spread += times * spread


@lru_cache(maxsize=2_000)
def _chances(size: int, solved: int) -> tuple[float, ...]:
    return tuple(pass_curve(size, solved, range(1, min(size, EVERY_K) + 1)))
