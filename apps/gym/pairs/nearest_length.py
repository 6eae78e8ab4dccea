"""Find the pair of a group whose sides are most alike in length, without comparing every two attempts.

Attempts are visited from the lowest reward up, so that all attempts that each may beat are already there, sorted by
length. From its own length outwards, an attempt meets the nearest of them first.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge

import msgspec

from apps.gym.pairs.pair_rule import Attempt
from apps.gym.traces.courses import Course

Order = tuple[float, float, int, int]
"""Sort key of a pair: the length ratio, the negated margin, and the ranks among the best and the worst."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The options at a diverging step: the action of each attempt (equal actions form no pair), and its length.

    `closed` holds pairs of actions that already have a pair or must have none. In `turned` pairs, the first must not be
    chosen.
    """

    deeds: Mapping[int, tuple[Hashable, int]]
    closed: frozenset[frozenset[Hashable]] = frozenset()
    turned: frozenset[tuple[Hashable, Hashable]] = frozenset()


def stand_for(group: Sequence[Attempt], courses: Mapping[int, Course]) -> set[int]:
    """Return the attempts that are enough to find whether a group has a pair.

    From attempts with equal actions and observations these are the best and the worst, and the best and worst with
    different reasoning. If any two of all attempts can form a pair, so can two of these. `group` is ordered by reward.
    """
    same: dict[Hashable, list[int]] = {}
    for one in group:
        course = courses[one.id]
        same.setdefault((course.actions, tuple((step.acts, step.digest) for step in course.steps)), []).append(one.id)
    found: set[int] = set()
    for ids in same.values():
        ends = ids[0], ids[-1]
        said = {courses[one].completion for one in ends}
        others = [one for one in ids if courses[one].completion not in said] if len(said) == 1 else []
        found.update(ends, others[:1], others[-1:])
    return found


def unlike(one: int, other: int) -> float:
    """Return how many times longer the longer side is."""
    return max(1, one, other) / max(1, min(one, other))


def find_partings(courses: Mapping[int, Course]) -> Iterator[tuple[tuple[bytes, ...], dict[int, tuple[Hashable, int]]]]:
    """Yield every state after which attempts acted differently.

    Each has its history, and the action and length of each attempt there.
    """
    open_ways = [(0, list(courses))]
    while open_ways:
        place, ids = open_ways.pop()
        same: dict[tuple[bool, bytes], list[int]] = {}
        for one in ids:
            if place < len(steps := courses[one].steps):
                same.setdefault((steps[place].acts, steps[place].digest), []).append(one)
        acted = {one: digest for (acts, digest), those in same.items() if acts for one in those}
        if len(set(acted.values())) > 1:
            way = tuple(step.digest for step in courses[ids[0]].steps[:place])
            yield way, {one: (digest, courses[one].steps[place].written) for one, digest in acted.items()}
        open_ways += [(place + 1, those) for those in same.values() if len(those) > 1]


class NearestSearch:
    """Find the pair nearest in length.

    `best` and `worst` are the attempts in the order in which they are chosen and rejected. `passes` returns whether two
    rewards make a pair; it must be monotonic in both.
    """

    def __init__(
        self,
        best: Sequence[Attempt],
        worst: Sequence[Attempt],
        *,
        passes: Callable[[Attempt, Attempt], bool],
        most: float | None,
        on_step: Callable[[], None],
    ) -> None:
        self._best, self._worst = best, worst
        self._passes = passes
        self._rank = {one.id: rank for rank, one in enumerate(best)}
        self._place = {one.id: place for place, one in enumerate(worst)}
        self._on_step = on_step
        self._bound = float("inf") if most is None else most
        self._found: tuple[Order, tuple[Attempt, Attempt]] | None = None

    def find(self, places: Iterable[Place]) -> tuple[Attempt, Attempt] | None:
        """Return the pair nearest in length over all places; ties by the largest margin, then the best."""
        for place in places:
            if len({deed for deed, _ in place.deeds.values()}) > 1:
                self._search(place)
        return self._found[1] if self._found else None

    def _search(self, place: Place) -> None:
        worst = [self._worst[at] for at in sorted(self._place[one] for one in place.deeds)]
        beaten = 0
        lengths: list[int] = []
        buckets: dict[int, dict[Hashable, Attempt]] = {}
        met: set[Hashable] = set()
        for chosen in self._leads(place):
            self._on_step()
            while beaten < len(worst) and self._passes(chosen, worst[beaten]):
                deed, length = place.deeds[worst[beaten].id]
                if length not in buckets:
                    buckets[length] = {}
                    insort(lengths, length)
                # The worst attempt with this action and length has the largest margin.
                buckets[length].setdefault(deed, worst[beaten])
                met.add(deed)
                beaten += 1
            if met - {place.deeds[chosen.id][0]}:
                self._look_around(place, chosen, lengths, buckets)

    def _leads(self, place: Place) -> list[Attempt]:
        """Return the best of the attempts with equal actions and length, lowest reward first.

        It beats every attempt that the others beat.
        """
        leads: dict[tuple[Hashable, int], Attempt] = {}
        for rank in sorted(self._rank[one] for one in place.deeds if one in self._rank):
            leads.setdefault(place.deeds[self._best[rank].id], self._best[rank])
        return list(leads.values())[::-1]

    def _look_around(
        self, place: Place, chosen: Attempt, lengths: list[int], buckets: dict[int, dict[Hashable, Attempt]]
    ) -> None:
        deed, length = place.deeds[chosen.id]
        middle = bisect_left(lengths, length)
        shorter = (lengths[at] for at in range(middle - 1, -1, -1))
        longer = (lengths[at] for at in range(middle, len(lengths)))
        for near in merge(shorter, longer, key=partial(unlike, length)):
            ratio = unlike(length, near)
            if ratio > self._bound:
                return
            for other, rejected in buckets[near].items():
                if other != deed and frozenset((deed, other)) not in place.closed and (deed, other) not in place.turned:
                    self._offer(ratio, chosen, rejected)
                    break

    def _offer(self, ratio: float, chosen: Attempt, rejected: Attempt) -> None:
        assert chosen.reward is not None
        assert rejected.reward is not None
        margin = rejected.reward - chosen.reward
        order = (ratio, margin, self._rank[chosen.id], self._place[rejected.id])
        if self._found is None or order < self._found[0]:
            self._found = order, (chosen, rejected)
            self._bound = ratio
