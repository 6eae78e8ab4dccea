"""Find the pair with the most similar lengths in a group without comparing all pairs.

Attempts are visited by ascending reward. All attempts that the current one may beat are kept sorted by length. The
search starts at its own length and moves outward, so the first match is the nearest.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge

import msgspec

from apps.gym.pairs.pair_rule import Attempt
from apps.gym.traces.courses import Course

Order = tuple[float, float, int, int]
"""Sort key of a pair: length ratio, negated margin, rank of the chosen attempt, rank of the rejected attempt."""


class DivergencePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A state after which attempts act differently.

    `actions_by_attempt` maps each attempt id to its action and the length of the action in characters. Equal actions
    never form a pair. `decided` holds pairs of actions that already form a pair or must not. In `reversed_pairs`, the
    first action must not be chosen over the second.
    """

    actions_by_attempt: Mapping[int, tuple[Hashable, int]]
    decided: frozenset[frozenset[Hashable]] = frozenset()
    reversed_pairs: frozenset[tuple[Hashable, Hashable]] = frozenset()


def select_representatives(group: Sequence[Attempt], courses: Mapping[int, Course]) -> set[int]:
    """Return the ids of a subset of attempts that can form a pair if and only if the whole group can.

    For each set of attempts with equal actions and observations, these are the best and the worst, and the best and
    worst with different reasoning. `group` must be ordered by reward.
    """
    same: dict[Hashable, list[int]] = {}
    for one in group:
        course = courses[one.id]
        same.setdefault((course.actions, tuple((step.acts, step.digest) for step in course.steps)), []).append(one.id)
    found: set[int] = set()
    for ids in same.values():
        ends = ids[0], ids[-1]
        reasonings = {courses[one].completion for one in ends}
        others = [one for one in ids if courses[one].completion not in reasonings] if len(reasonings) == 1 else []
        found.update(ends, others[:1], others[-1:])
    return found


def length_ratio(one: int, other: int) -> float:
    """Return the longer length divided by the shorter one."""
    return max(1, one, other) / max(1, min(one, other))


def find_divergences(
    courses: Mapping[int, Course],
) -> Iterator[tuple[tuple[bytes, ...], dict[int, tuple[Hashable, int]]]]:
    """Yield every state after which attempts act differently.

    Yields (digests of the steps before it, {attempt id: (action digest, length in characters)}).
    """
    to_visit = [(0, list(courses))]
    while to_visit:
        depth, ids = to_visit.pop()
        same: dict[tuple[bool, bytes], list[int]] = {}
        for one in ids:
            if depth < len(steps := courses[one].steps):
                same.setdefault((steps[depth].acts, steps[depth].digest), []).append(one)
        acted = {one: digest for (acts, digest), members in same.items() if acts for one in members}
        if len(set(acted.values())) > 1:
            history = tuple(step.digest for step in courses[ids[0]].steps[:depth])
            yield history, {one: (digest, courses[one].steps[depth].written) for one, digest in acted.items()}
        to_visit += [(depth + 1, members) for members in same.values() if len(members) > 1]


class NearestSearch:
    """Find the pair with the smallest length ratio, at most `max_ratio`.

    `best` and `worst` list the attempts in the order in which they are chosen and rejected. `passes(chosen, rejected)`
    tells whether the rewards allow a pair; it must be monotonic in both rewards.
    """

    def __init__(
        self,
        best: Sequence[Attempt],
        worst: Sequence[Attempt],
        *,
        passes: Callable[[Attempt, Attempt], bool],
        max_ratio: float | None,
        on_step: Callable[[], None],
    ) -> None:
        self._best, self._worst = best, worst
        self._passes = passes
        self._rank = {one.id: rank for rank, one in enumerate(best)}
        self._worst_rank = {one.id: rank for rank, one in enumerate(worst)}
        self._on_step = on_step
        self._bound = float("inf") if max_ratio is None else max_ratio
        self._found: tuple[Order, tuple[Attempt, Attempt]] | None = None

    def find(self, points: Iterable[DivergencePoint]) -> tuple[Attempt, Attempt] | None:
        """Return (chosen, rejected) with the smallest length ratio over all points, or None.

        Ties: the largest margin, then the best attempts.
        """
        for point in points:
            if len({action for action, _ in point.actions_by_attempt.values()}) > 1:
                self._search(point)
        return self._found[1] if self._found else None

    def _search(self, point: DivergencePoint) -> None:
        worst = [self._worst[at] for at in sorted(self._worst_rank[one] for one in point.actions_by_attempt)]
        beaten = 0
        lengths: list[int] = []
        buckets: dict[int, dict[Hashable, Attempt]] = {}
        beaten_actions: set[Hashable] = set()
        for chosen in self._best_per_action(point):
            self._on_step()
            while beaten < len(worst) and self._passes(chosen, worst[beaten]):
                action, length = point.actions_by_attempt[worst[beaten].id]
                if length not in buckets:
                    buckets[length] = {}
                    insort(lengths, length)
                # The worst attempt with this action and length has the largest margin.
                buckets[length].setdefault(action, worst[beaten])
                beaten_actions.add(action)
                beaten += 1
            if beaten_actions - {point.actions_by_attempt[chosen.id][0]}:
                self._search_outward(point, chosen, lengths, buckets)

    def _best_per_action(self, point: DivergencePoint) -> list[Attempt]:
        """Return the best attempt for each action and length, lowest reward first.

        Whatever another attempt with this action and length beats, the best one beats too.
        """
        leads: dict[tuple[Hashable, int], Attempt] = {}
        for rank in sorted(self._rank[one] for one in point.actions_by_attempt if one in self._rank):
            leads.setdefault(point.actions_by_attempt[self._best[rank].id], self._best[rank])
        return list(leads.values())[::-1]

    def _search_outward(
        self, point: DivergencePoint, chosen: Attempt, lengths: list[int], buckets: dict[int, dict[Hashable, Attempt]]
    ) -> None:
        action, length = point.actions_by_attempt[chosen.id]
        middle = bisect_left(lengths, length)
        shorter = (lengths[at] for at in range(middle - 1, -1, -1))
        longer = (lengths[at] for at in range(middle, len(lengths)))
        for near in merge(shorter, longer, key=partial(length_ratio, length)):
            ratio = length_ratio(length, near)
            if ratio > self._bound:
                return
            for other, rejected in buckets[near].items():
                if (
                    other != action
                    and frozenset((action, other)) not in point.decided
                    and (action, other) not in point.reversed_pairs
                ):
                    self._keep_if_nearer(ratio, chosen, rejected)
                    break

    def _keep_if_nearer(self, ratio: float, chosen: Attempt, rejected: Attempt) -> None:
        assert chosen.reward is not None
        assert rejected.reward is not None
        margin = rejected.reward - chosen.reward
        order = (ratio, margin, self._rank[chosen.id], self._worst_rank[rejected.id])
        if self._found is None or order < self._found[0]:
            self._found = order, (chosen, rejected)
            self._bound = ratio
