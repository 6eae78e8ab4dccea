"""Apply a rule of preference pairs to the attempts at one task: the pairs, or the reason why there is none.

What people judged comes first, then what the mode makes of the rewards. Every order ends in ids, so that the same
attempts give the same pairs, whatever order they come in.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge

import msgspec

from apps.gym.courses import Course, Parting, find_parting
from apps.gym.pairs import OUTCOMES, TOLERANCE, Attempt, Mode, Outcome, Pair, Rule, Verdict, find_exclusion
from apps.gym.preferring import find_worse

Two = tuple[Attempt, Attempt]
"""Chosen and rejected."""
Key = tuple[object, ...]
"""Two attempts, or what two did: the same whichever of them is chosen."""


class GroupPairs(msgspec.Struct, frozen=True, kw_only=True):
    pairs: list[Pair]
    outcome: Outcome


def pair_group(
    attempts: Iterable[Attempt], courses: Mapping[int, Course], rule: Rule, verdicts: Iterable[Verdict] = ()
) -> GroupPairs:
    """All attempts at one task. Needs the courses of the usable ones, unless `settle_by_rewards` has an outcome."""
    attempts, verdicts = list(attempts), list(verdicts)
    settled = settle_by_rewards(attempts, rule, verdicts)
    if settled is not None:
        return GroupPairs(pairs=[], outcome=settled)
    return _Maker(usable_attempts(attempts, rule), courses, rule).make(verdicts)


def usable_attempts(attempts: Iterable[Attempt], rule: Rule) -> list[Attempt]:
    """Those that may stand in a pair, by id; those without a reward only where people judged them."""
    usable = (one for one in attempts if find_exclusion(one, rule) in (None, "no_reward"))
    return sorted(usable, key=lambda one: one.id)


def needed_courses(attempts: Iterable[Attempt], rule: Rule, verdicts: Iterable[Verdict] = ()) -> list[int]:
    """The ids of the attempts whose courses `pair_group` reads."""
    judged = {one for verdict in verdicts for one in (verdict.one, verdict.other)}
    return [one.id for one in usable_attempts(attempts, rule) if one.reward is not None or one.id in judged]


def settle_by_rewards(attempts: Iterable[Attempt], rule: Rule, verdicts: Iterable[Verdict] = ()) -> Outcome | None:
    """What becomes of the group where its rewards alone decide it, else None: then its courses have to be read."""
    usable = usable_attempts(attempts, rule)
    ids = {one.id for one in usable}
    if any(verdict.winner is not None and {verdict.one, verdict.other} <= ids for verdict in verdicts):
        return None
    rewards = [one.reward for one in usable if one.reward is not None]
    if len(rewards) < 2:
        return "too_few_attempts"
    return _weigh(max(rewards), min(rewards), rule)


def _weigh(chosen: float, rejected: float, rule: Rule) -> Outcome | None:
    """Why two rewards make no pair."""
    gap = chosen - rejected
    if gap <= TOLERANCE:
        return "tie"
    if gap < rule.margin - TOLERANCE:
        return "below_margin"
    if rule.min_chosen_reward is not None and chosen < rule.min_chosen_reward - TOLERANCE:
        return "chosen_too_weak"
    return None


class _Maker:
    def __init__(self, usable: Sequence[Attempt], courses: Mapping[int, Course], rule: Rule) -> None:
        self._usable = usable
        self._courses = courses
        self._rule = rule
        self._pairs: list[Pair] = []
        self._taken: dict[Key, Outcome] = {}
        """What has its pair, or must have none, with the reason."""
        self._settled: set[Key] = set()
        """Which of two is better by what people said of others, the better one first: no reward turns it round."""
        self._reasons: set[Outcome] = set()

    def make(self, verdicts: Sequence[Verdict]) -> GroupPairs:
        known = {one.id: one for one in self._usable}
        self._make_judged(known, [one for one in verdicts if {one.one, one.other} <= known.keys()])
        self._settle(known, verdicts)
        judged = [self._courses[pair.chosen].prompt for pair in self._pairs]
        groups: dict[str, list[Attempt]] = defaultdict(list)
        for one in self._usable:
            if one.reward is not None:
                groups[self._courses[one.id].prompt].append(one)
        for prompt, group in groups.items():
            self._make_by_rewards(group, judged.count(prompt))
        if self._pairs:
            return GroupPairs(pairs=self._pairs, outcome="paired")
        # Rewards would have made a pair, else they had settled it; no two of one prompt came so far.
        outcome: Outcome = max(self._reasons, key=OUTCOMES.index, default="different_prompts")
        return GroupPairs(pairs=[], outcome=outcome)

    def _make_judged(self, known: Mapping[int, Attempt], verdicts: list[Verdict]) -> None:
        verdicts.sort(key=lambda one: (-one.strength, min(one.one, one.other), max(one.one, one.other)))
        for verdict in verdicts:
            if verdict.winner is None:
                continue
            loser = verdict.other if verdict.winner == verdict.one else verdict.one
            found = self._compare(known[verdict.winner], known[loser])
            if found is not None:
                people = {name: getattr(verdict, name) for name in _SAID}
                self._add(msgspec.structs.replace(found, source="verdict", margin=None, **people))
            # Whatever came of it, rewards do not turn it round.
            self._taken.setdefault(_ids(verdict.one, verdict.other), "paired")
        # Nor between two others that did the same; only now, since people may have preferred another of such twins.
        for verdict in verdicts:
            if verdict.winner is not None:
                self._block(verdict, "paired")
        for verdict in verdicts:
            if verdict.winner is None:
                self._block(verdict, verdict.refusal)

    def _block(self, verdict: Verdict, reason: Outcome) -> None:
        """The two, and any other two that did what these did."""
        self._taken.setdefault(_ids(verdict.one, verdict.other), reason)
        if (key := self._deeds(verdict.one, verdict.other)) is not None:
            self._taken.setdefault(key, reason)

    def _settle(self, known: Mapping[int, Attempt], verdicts: Iterable[Verdict]) -> None:
        """What follows from all verdicts, also through attempts that are not used; between two others that did the
        same as well."""
        for better, worse in find_worse(verdicts).items():
            for other in worse & known.keys() if better in known else ():
                self._settled.add((better, other))
                if (sides := self._sides(better, other)) is not None:
                    self._settled.add(sides)

    def _make_by_rewards(self, group: list[Attempt], judged: int) -> None:
        best: int | None = None
        left = 1 - judged if self._rule.mode in _ONE else None
        for chosen, rejected in self._candidates(group):
            if left is not None and left <= 0:
                return
            if self._rule.mode == "best_vs_all" and best not in (None, chosen.id):
                return
            found = self._compare(chosen, rejected)
            if found is None:
                continue
            if not self._add(found):
                return
            best = chosen.id
            left = None if left is None else left - 1

    def _candidates(self, group: list[Attempt]) -> Iterator[Two]:
        if self._rule.mode != "nearest_length":
            return _IN_ORDER[self._rule.mode](group, self._rule)
        return self._nearest_first(group)

    def _nearest_first(self, group: list[Attempt]) -> Iterator[Two]:
        """Those alike in length first, then the larger margin. What differs in length depends on the level, so that
        all have to be compared before one is taken."""
        compared = [(self._compare(*two), two) for two in _widest_first(group, self._rule)]
        found = [(_ratio(pair), two) for pair, two in compared if pair is not None]
        yield from (two for _, two in sorted(found, key=lambda each: each[0]))

    def _add(self, pair: Pair) -> bool:
        """Whether there was room for it."""
        if self._rule.cap is not None and len(self._pairs) >= self._rule.cap:
            return False
        self._pairs.append(pair)
        self._taken.setdefault(_ids(pair.chosen, pair.rejected), "paired")
        key = self._deeds(pair.chosen, pair.rejected)
        assert key is not None
        self._taken.setdefault(key, "paired")
        return True

    def _compare(self, chosen: Attempt, rejected: Attempt) -> Pair | None:
        """The pair as rewards make it, or None with the reason among the reasons."""
        found = self._contrast(chosen, rejected)
        if isinstance(found, Pair):
            return found
        if found != "paired":
            self._reasons.add(found)
        return None

    def _contrast(self, chosen: Attempt, rejected: Attempt) -> Pair | Outcome:
        if reason := self._refuse_two(chosen.id, rejected.id):
            return reason
        good, bad = self._courses[chosen.id], self._courses[rejected.id]
        turn, lengths = None, (good.written, bad.written)
        if self._rule.level == "step":
            parting = find_parting(good, bad)
            if not isinstance(parting, Parting):
                return parting
            turn, lengths = parting.turn, (good.steps[parting.place].written, bad.steps[parting.place].written)
        elif self._rule.same == "actions" and good.actions == bad.actions:
            return "same_actions"
        pair = Pair(
            chosen=chosen.id,
            rejected=rejected.id,
            margin=_margin(chosen, rejected),
            source="override" if chosen.overridden or rejected.overridden else "reward",
            turn=turn,
            chosen_length=lengths[0],
            rejected_length=lengths[1],
        )
        most = self._rule.max_length_ratio
        too_long: Outcome | None = "lengths_differ" if most is not None and _ratio(pair) > most else None
        return self._find_taken(chosen.id, rejected.id) or too_long or pair

    def _refuse_two(self, one: int, other: int) -> Outcome | None:
        """Why these two make no pair, whichever of them is chosen, and at whatever level."""
        mine, theirs = self._courses[one], self._courses[other]
        if mine.prompt != theirs.prompt:
            return "different_prompts"
        if reason := self._taken.get(_ids(one, other)):
            return reason
        return "identical_completions" if mine.completion == theirs.completion else None

    def _find_taken(self, chosen: int, rejected: int) -> Outcome | None:
        key = self._deeds(chosen, rejected)
        if key is not None and (reason := self._taken.get(key)):
            return reason
        turned = {(rejected, chosen), self._sides(rejected, chosen)}
        return None if self._settled.isdisjoint(turned) else "preference_cycle"

    def _deeds(self, one: int, other: int) -> Key | None:
        """What the two did, at the level of the rule: another two that did so would be the same pair once more.
        None where they cannot be compared."""
        sides = self._sides(one, other)
        return (*sides[:-2], frozenset(sides[-2:])) if sides is not None else None

    def _sides(self, one: int, other: int) -> Key | None:
        """The same, ending in what each of them did, in this order."""
        mine, theirs = self._courses[one], self._courses[other]
        if mine.prompt != theirs.prompt:
            return None
        if self._rule.level == "step":
            parting = find_parting(mine, theirs)
            if not isinstance(parting, Parting):
                return None
            shared = tuple(step.digest for step in mine.steps[: parting.place])
            return (mine.prompt, shared, *(course.steps[parting.place].digest for course in (mine, theirs)))
        if self._rule.same == "actions":
            return (mine.prompt, mine.actions, theirs.actions)
        return (mine.prompt, mine.completion, theirs.completion)


def _ids(one: int, other: int) -> Key:
    return (frozenset({one, other}),)


def _margin(chosen: Attempt, rejected: Attempt) -> float | None:
    return None if chosen.reward is None or rejected.reward is None else chosen.reward - rejected.reward


def _ratio(pair: Pair) -> float:
    longer, shorter = sorted((pair.chosen_length, pair.rejected_length), reverse=True)
    return max(1, longer) / max(1, shorter)


def _reward(attempt: Attempt) -> float:
    assert attempt.reward is not None
    return attempt.reward


def _best_first(group: Iterable[Attempt], rule: Rule) -> list[Attempt]:
    """Those good enough to be chosen; of equals the one of fewest tokens, then of lowest id."""
    ordered = sorted(group, key=lambda one: (-_reward(one), one.output_tokens, one.id))
    least = rule.min_chosen_reward
    return ordered if least is None else [one for one in ordered if _reward(one) >= least - TOLERANCE]


def _worst_first(group: Iterable[Attempt]) -> list[Attempt]:
    return sorted(group, key=lambda one: (_reward(one), one.output_tokens, one.id))


def _by_chosen(group: Sequence[Attempt], rule: Rule) -> Iterator[Two]:
    """The best with the worst, the next worst, and so on; then the next best."""
    worst = _worst_first(group)
    for chosen in _best_first(group, rule):
        yield from _below(chosen, worst, rule)


def _below(chosen: Attempt, worst_first: Iterable[Attempt], rule: Rule) -> Iterator[Two]:
    for rejected in worst_first:
        if _weigh(_reward(chosen), _reward(rejected), rule) is not None:
            return
        yield chosen, rejected


def _widest_first(group: Sequence[Attempt], rule: Rule) -> Iterator[Two]:
    """All of them, the largest margin first; of equals, the better chosen. Lazily: large groups have very many."""
    best, worst = _best_first(group, rule), _worst_first(group)

    def row(rank: int) -> Iterator[tuple[float, int, int]]:
        chosen = _reward(best[rank])
        return ((_reward(rejected) - chosen, rank, place) for place, rejected in enumerate(worst))

    for _, rank, place in merge(*map(row, range(len(best)))):
        if _weigh(_reward(best[rank]), _reward(worst[place]), rule) is not None:
            return
        yield best[rank], worst[place]


def _near_two_sigma(group: Sequence[Attempt], rule: Rule) -> Iterator[Two]:
    """The best with those whose rewards are nearest to two standard deviations below the mean of the group."""
    rewards = [_reward(one) for one in group]
    mean = sum(rewards) / len(rewards)
    target = mean - 2 * (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
    # A stable sort: of those as near, the worst comes first.
    nearest = sorted(_worst_first(group), key=lambda one: abs(_reward(one) - target))
    for chosen in _best_first(group, rule):
        for rejected in nearest:
            if _weigh(_reward(chosen), _reward(rejected), rule) is None:
                yield chosen, rejected


_IN_ORDER: Mapping[Mode, Callable[[Sequence[Attempt], Rule], Iterator[Two]]] = {
    "best_worst": _by_chosen,
    "best_vs_all": _by_chosen,
    "all": _widest_first,
    "best_mu_2sigma": _near_two_sigma,
}
_SAID = ("strength", "reviewers", "agreement", "adjudicated", "reviews")
_ONE: frozenset[Mode] = frozenset({"best_worst", "best_mu_2sigma", "nearest_length"})
"""Modes of at most one pair of a prompt."""
