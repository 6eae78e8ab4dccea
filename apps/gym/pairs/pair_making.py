"""Apply a pair rule to the attempts at one task: return the pairs, or the reason why there are none.

Verdicts of reviewers are used first, then rewards according to the rule's mode. All ties are broken by id, so the
result does not depend on the order of the attempts.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from apps.gym.pairs.candidate_order import (
    IN_ORDER,
    Candidate,
    best_first,
    by_chosen,
    find_reward_problem,
    reward_of,
    worst_first,
)
from apps.gym.pairs.nearest_length import (
    DivergencePoint,
    NearestSearch,
    find_divergences,
    length_ratio,
    select_representatives,
)
from apps.gym.pairs.pair_rule import OUTCOMES, Attempt, Level, Mode, Outcome, Pair, Rule, Verdict, find_exclusion
from apps.gym.pairs.transitive_preferences import find_worse
from apps.gym.traces.courses import Course, Divergence, find_divergence

Key = tuple[object, ...]
"""Identifies a pair: the prompt (and history) with two attempts or actions, unordered or as (better, worse)."""
COMPARISONS_PER_STEP = 1_000
"""Number of pairs compared between two calls of `on_step`."""
LARGE_GROUP = 64
"""Larger groups are first checked for any possible pair, because comparing many equal attempts is slow."""


class GroupPairs(msgspec.Struct, frozen=True, kw_only=True):
    pairs: list[Pair]
    outcome: Outcome


def pair_group(
    attempts: Iterable[Attempt],
    courses: Mapping[int, Course],
    rule: Rule,
    verdicts: Iterable[Verdict] = (),
    *,
    on_step: Callable[[], None] = lambda: None,
) -> GroupPairs:
    """Return the pairs of all attempts at one task, and the outcome.

    `courses` must contain the ids from `needed_courses`, unless `settle_by_rewards` returns an outcome. A large group
    takes seconds, so `on_step` is called regularly; it may raise to stop.
    """
    attempts, verdicts = list(attempts), list(verdicts)
    settled = settle_by_rewards(attempts, rule, verdicts)
    if settled is not None:
        return GroupPairs(pairs=[], outcome=settled)
    return _GroupPairing(usable_attempts(attempts, rule), courses, rule, on_step).make(verdicts)


def usable_attempts(attempts: Iterable[Attempt], rule: Rule) -> list[Attempt]:
    """Return the attempts that the rule does not exclude, by id.

    Attempts without a reward are included: they can be paired by verdict.
    """
    usable = (one for one in attempts if find_exclusion(one, rule) in (None, "no_reward"))
    return sorted(usable, key=lambda one: one.id)


def needed_courses(attempts: Iterable[Attempt], rule: Rule, verdicts: Iterable[Verdict] = ()) -> list[int]:
    """Return the ids of the attempts whose courses `pair_group` reads."""
    judged = {one for verdict in verdicts for one in (verdict.one, verdict.other)}
    return [one.id for one in usable_attempts(attempts, rule) if one.reward is not None or one.id in judged]


def settle_by_rewards(attempts: Iterable[Attempt], rule: Rule, verdicts: Iterable[Verdict] = ()) -> Outcome | None:
    """Return the outcome of the group if its rewards alone decide it. None means that the courses are needed."""
    usable = usable_attempts(attempts, rule)
    ids = {one.id for one in usable}
    if any(verdict.winner is not None and {verdict.one, verdict.other} <= ids for verdict in verdicts):
        return None
    rewards = [one.reward for one in usable if one.reward is not None]
    if len(rewards) < 2:
        return "too_few_attempts"
    return find_reward_problem(max(rewards), min(rewards), rule)


class _GroupPairing:
    def __init__(
        self, usable: Sequence[Attempt], courses: Mapping[int, Course], rule: Rule, on_step: Callable[[], None]
    ) -> None:
        self._usable = usable
        self._courses = courses
        self._rule = rule
        self._pairs: list[Pair] = []
        self._decided: dict[Key, Outcome] = {}
        """Pairs of attempts or actions that are already paired or must not be, with the reason."""
        self._preferences: set[Key] = set()
        """Preferences that follow from verdicts, as (better, worse). Rewards must not contradict them."""
        self._reasons: set[Outcome] = set()
        self._on_step = on_step
        self._compared = 0

    def make(self, verdicts: Sequence[Verdict]) -> GroupPairs:
        known = {one.id: one for one in self._usable}
        self._pair_by_verdicts(known, [one for one in verdicts if {one.one, one.other} <= known.keys()])
        self._add_implied_preferences(known, verdicts)
        judged = [self._courses[pair.chosen].prompt for pair in self._pairs]
        groups: dict[str, list[Attempt]] = defaultdict(list)
        for one in self._usable:
            if one.reward is not None:
                groups[self._courses[one.id].prompt].append(one)
        for prompt, group in groups.items():
            self._pair_by_rewards(group, judged.count(prompt))
        if self._pairs:
            return GroupPairs(pairs=self._pairs, outcome="paired")
        # Without any reason, no two attempts had the same prompt: `settle_by_rewards` found that rewards allow a pair.
        outcome: Outcome = max(self._reasons, key=OUTCOMES.index, default="different_prompts")
        return GroupPairs(pairs=[], outcome=outcome)

    def _pair_by_verdicts(self, known: Mapping[int, Attempt], verdicts: list[Verdict]) -> None:
        verdicts.sort(key=lambda one: (-one.strength, min(one.one, one.other), max(one.one, one.other)))
        for verdict in verdicts:
            if verdict.winner is None:
                continue
            loser = verdict.other if verdict.winner == verdict.one else verdict.one
            found = self._compare(known[verdict.winner], known[loser])
            if found is not None:
                people = {name: getattr(verdict, name) for name in _VERDICT_FIELDS}
                self._add(msgspec.structs.replace(found, source="verdict", margin=None, **people))
            # Rewards never reverse a verdict.
            self._decided.setdefault(_ids(verdict.one, verdict.other), "paired")
        # Only now, because another verdict may prefer a different attempt with the same actions.
        for verdict in sorted(verdicts, key=lambda one: one.winner is None):
            self._block(verdict, verdict.refusal if verdict.winner is None else "paired")

    def _block(self, verdict: Verdict, reason: Outcome) -> None:
        """Block this pair, and any other two attempts with the same actions."""
        self._decided.setdefault(_ids(verdict.one, verdict.other), reason)
        if (key := self._action_key(verdict.one, verdict.other)) is not None:
            self._decided.setdefault(key, reason)

    def _add_implied_preferences(self, known: Mapping[int, Attempt], verdicts: Iterable[Verdict]) -> None:
        """Add the preferences that follow from all verdicts, transitively.

        Verdicts about excluded attempts count too. Preferences also apply to other attempts with the same actions.
        """
        for better, worse in find_worse(verdicts).items():
            for other in worse & known.keys() if better in known else ():
                self._preferences.add((better, other))
                if (sides := self._ordered_action_key(better, other)) is not None:
                    self._preferences.add(sides)

    def _pair_by_rewards(self, group: list[Attempt], judged: int) -> None:
        best: int | None = None
        left = 1 - judged if self._rule.mode in _ONE_PAIR_MODES else None
        if left is not None and left <= 0:
            return
        candidates = IN_ORDER.get(self._rule.mode, by_chosen)
        if self._rule.mode == "nearest_length" or len(group) > LARGE_GROUP:
            nearest = self._find_nearest(group, self._rule.max_length_ratio)
            if nearest is None:
                self._explain(group)
                return
            if self._rule.mode == "nearest_length":
                candidates = partial(self._nearest_first, nearest)
        for chosen, rejected in candidates(group, self._rule):
            if self._rule.mode == "best_vs_all" and best not in (None, chosen.id):
                return
            found = self._compare(chosen, rejected)
            if found is None:
                continue
            if not self._add(found):
                return
            best = chosen.id
            if left is not None:
                return

    def _find_nearest(self, group: list[Attempt], max_ratio: float | None) -> Candidate | None:
        """Return the pair with the smallest length ratio that rewards and actions allow. Ties: the larger margin."""
        search = NearestSearch(
            best_first(group, self._rule),
            worst_first(group),
            passes=lambda chosen, rejected: (
                find_reward_problem(reward_of(chosen), reward_of(rejected), self._rule) is None
            ),
            max_ratio=max_ratio,
            on_step=self._on_step,
        )
        return search.find(self._divergence_points(group))

    def _nearest_first(self, nearest: Candidate, group: Sequence[Attempt], rule: Rule) -> Iterator[Candidate]:
        yield nearest
        # Rejected: both wrote the same text in different turns, which actions do not show. Compare all pairs instead.
        found: tuple[tuple[float, float], Candidate] | None = None
        for two in by_chosen(group, rule):
            pair = self._compare(*two)
            if pair is not None and (found is None or _nearness(pair) < found[0]):
                found = _nearness(pair), two
        if found is not None:
            yield found[1]

    def _explain(self, group: list[Attempt]) -> None:
        """Record why there is no pair, from the most promising candidates. Comparing all pairs would be too slow."""
        if self._pairs:
            return
        if self._rule.max_length_ratio is not None and (two := self._find_nearest(group, None)):
            self._compare(*two)
            return
        judged = {one for key in self._decided if len(key) == 1 and isinstance(key[0], frozenset) for one in key[0]}
        known = select_representatives(worst_first(group), self._courses) | judged
        few = [one for one in group if one.id in known]
        for two in by_chosen(few, self._rule):
            self._compare(*two)
            if _FURTHEST_OUTCOME[self._rule.level] in self._reasons:
                return

    def _divergence_points(self, group: list[Attempt]) -> Iterator[DivergencePoint]:
        """Yield the points where attempts at one prompt diverge, at the level of the rule."""
        courses = {one.id: self._courses[one.id] for one in group}
        prompt = self._courses[group[0].id].prompt
        if self._rule.level == "step":
            for way, actions_by_attempt in find_divergences(courses):
                yield self._divergence_point((prompt, way), actions_by_attempt)
            return
        by_actions = self._rule.same == "actions"
        actions_by_attempt = {
            pk: (one.actions if by_actions else one.completion, one.written) for pk, one in courses.items()
        }
        yield self._divergence_point((prompt,), actions_by_attempt)

    def _divergence_point(self, state: Key, actions_by_attempt: Mapping[int, tuple[Hashable, int]]) -> DivergencePoint:
        """Return a divergence point with the pairs that are already decided there."""
        decided = (key[-1] for key in self._decided if key[:-1] == state)
        reversed_pairs = (key[-2:] for key in self._preferences if key[:-2] == state)
        return DivergencePoint(
            actions_by_attempt=actions_by_attempt,
            decided=frozenset(two for two in decided if isinstance(two, frozenset)),
            reversed_pairs=frozenset((worse, better) for better, worse in reversed_pairs),
        )

    def _add(self, pair: Pair) -> bool:
        """Add a pair, or return False if the limit is reached."""
        if self._rule.cap is not None and len(self._pairs) >= self._rule.cap:
            return False
        self._pairs.append(pair)
        self._decided.setdefault(_ids(pair.chosen, pair.rejected), "paired")
        key = self._action_key(pair.chosen, pair.rejected)
        assert key is not None
        self._decided.setdefault(key, "paired")
        return True

    def _compare(self, chosen: Attempt, rejected: Attempt) -> Pair | None:
        """Return the pair of these two attempts, or record the reason why they form none and return None."""
        self._compared += 1
        if self._compared % COMPARISONS_PER_STEP == 0:
            self._on_step()
        found = self._try_pair(chosen, rejected)
        if isinstance(found, Pair):
            return found
        if found != "paired":
            self._reasons.add(found)
        return None

    def _try_pair(self, chosen: Attempt, rejected: Attempt) -> Pair | Outcome:
        if reason := self._find_conflict(chosen.id, rejected.id):
            return reason
        good, bad = self._courses[chosen.id], self._courses[rejected.id]
        turn = None
        if self._rule.level == "step":
            divergence = find_divergence(good, bad)
            if not isinstance(divergence, Divergence):
                return divergence
            turn, lengths = divergence.turn, (good.steps[divergence.place].written, bad.steps[divergence.place].written)
        elif self._rule.same == "actions" and good.actions == bad.actions:
            return "same_actions"
        else:
            lengths = good.written, bad.written
        pair = Pair(
            chosen=chosen.id,
            rejected=rejected.id,
            margin=_margin(chosen, rejected),
            source="override" if chosen.overridden or rejected.overridden else "reward",
            turn=turn,
            chosen_length=lengths[0],
            rejected_length=lengths[1],
        )
        max_ratio = self._rule.max_length_ratio
        too_long: Outcome | None = "lengths_differ" if max_ratio is not None and _ratio(pair) > max_ratio else None
        return self._find_decided(chosen.id, rejected.id) or too_long or pair

    def _find_conflict(self, one: int, other: int) -> Outcome | None:
        """Return why these two cannot form a pair in either order and at any level, or None."""
        mine, theirs = self._courses[one], self._courses[other]
        if mine.prompt != theirs.prompt:
            return "different_prompts"
        if reason := self._decided.get(_ids(one, other)):
            return reason
        return "identical_completions" if mine.completion == theirs.completion else None

    def _find_decided(self, chosen: int, rejected: int) -> Outcome | None:
        key = self._action_key(chosen, rejected)
        if key is not None and (reason := self._decided.get(key)):
            return reason
        reversed_pairs = {(rejected, chosen), self._ordered_action_key(rejected, chosen)}
        return None if self._preferences.isdisjoint(reversed_pairs) else "preference_cycle"

    def _action_key(self, one: int, other: int) -> Key | None:
        """Return the key of two attempts' actions at the level of the rule, or None if they cannot be compared.

        Another two attempts with the same key would repeat the pair.
        """
        sides = self._ordered_action_key(one, other)
        return (*sides[:-2], frozenset(sides[-2:])) if sides is not None else None

    def _ordered_action_key(self, one: int, other: int) -> Key | None:
        """Return `_action_key`, but ending in the two actions in this order."""
        mine, theirs = self._courses[one], self._courses[other]
        if mine.prompt != theirs.prompt:
            return None
        if self._rule.level == "step":
            divergence = find_divergence(mine, theirs)
            if not isinstance(divergence, Divergence):
                return None
            shared = tuple(step.digest for step in mine.steps[: divergence.place])
            return (mine.prompt, shared, *(course.steps[divergence.place].digest for course in (mine, theirs)))
        if self._rule.same == "actions":
            return (mine.prompt, mine.actions, theirs.actions)
        return (mine.prompt, mine.completion, theirs.completion)


def _ids(one: int, other: int) -> Key:
    return (frozenset({one, other}),)


def _margin(chosen: Attempt, rejected: Attempt) -> float | None:
    return None if chosen.reward is None or rejected.reward is None else chosen.reward - rejected.reward


def _ratio(pair: Pair) -> float:
    return length_ratio(pair.chosen_length, pair.rejected_length)


def _nearness(pair: Pair) -> tuple[float, float]:
    assert pair.margin is not None
    return _ratio(pair), -pair.margin


_FURTHEST_OUTCOME: Mapping[Level, Outcome] = {"step": "states_differ", "trajectory": "same_actions"}
"""By level, the last outcome that a group without a pair can have, apart from `lengths_differ`."""
_VERDICT_FIELDS = ("strength", "reviewers", "agreement", "adjudicated", "reviews")
_ONE_PAIR_MODES: frozenset[Mode] = frozenset({"best_worst", "best_mu_2sigma", "nearest_length"})
"""Modes with at most one pair per prompt."""
