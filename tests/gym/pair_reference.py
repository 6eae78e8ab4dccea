"""What a rule makes of a group, said once more as plainly as it can be: every two attempts are looked at, and sorted.

It shares no code with the rule but the words.
"""

from collections.abc import Iterable
from itertools import combinations, permutations
from typing import Any

from apps.gym.pairs.pair_rule import OUTCOMES, Attempt, Rule, Verdict
from apps.gym.traces.courses import Course

NEAR = 1e-9
Made = tuple[int, int, str, int | None]
"""Chosen, rejected, source, turn."""


def usable(attempts: Iterable[Attempt], rule: Rule) -> list[Attempt]:
    found = []
    for one in sorted(attempts, key=lambda one: one.id):
        whole = one.stop_reason in ("answered", "environment_done") or rule.include_truncated
        clean = not one.flagged or rule.include_redacted
        if one.status == "completed" and whole and clean:
            found.append(one)
    return found


def part(one: Course, other: Course) -> str | int:
    """The first place where they differ, if both act there."""
    for place in range(min(len(one.steps), len(other.steps))):
        if (one.steps[place].acts, one.steps[place].digest) != (other.steps[place].acts, other.steps[place].digest):
            return place if one.steps[place].acts and other.steps[place].acts else "states_differ"
    return "same_actions"


def by_reward(chosen: Attempt, rejected: Attempt, rule: Rule) -> str:
    assert chosen.reward is not None
    assert rejected.reward is not None
    if chosen.reward - rejected.reward <= NEAR:
        return "tie"
    if chosen.reward - rejected.reward < rule.margin - NEAR:
        return "below_margin"
    if rule.min_chosen_reward is not None and chosen.reward < rule.min_chosen_reward - NEAR:
        return "chosen_too_weak"
    return ""


def follows(verdicts: Iterable[Verdict]) -> set[tuple[int, int]]:
    """Better and worse, as said and through others; nothing follows from those in a ring."""
    said = {(one.winner, one.other if one.winner == one.one else one.one) for one in verdicts if one.winner is not None}
    every = close(said)
    return close({(better, worse) for better, worse in said if (worse, better) not in every})


def close(said: set[tuple[int, int]]) -> set[tuple[int, int]]:
    found = set(said)
    while further := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= further
    return found


class Reference:
    def __init__(self, attempts: list[Attempt], courses: dict[int, Course], rule: Rule, verdicts: list[Verdict]):
        self.rule, self.courses = rule, courses
        self.usable = {one.id: one for one in usable(attempts, rule)}
        self.verdicts = [one for one in verdicts if one.one in self.usable and one.other in self.usable]
        self.better = [two for two in follows(verdicts) if {*two} <= self.usable.keys()]
        self.made: list[Made] = []
        self.rewards_speak = False
        self.blocked: list[tuple[Any, str]] = []
        self.reasons: list[str] = []

    def result(self) -> tuple[list[Made], str]:
        winners = [one for one in self.verdicts if one.winner is not None]
        rewarded = [one for one in self.usable.values() if one.reward is not None]
        if not winners:
            if len(rewarded) < 2:
                return [], "too_few_attempts"
            # What comes farthest of all ordered twos, by rewards alone.
            ways = [by_reward(a, b, self.rule) for a, b in permutations(rewarded, 2)]
            if "" not in ways:
                return [], max(ways, key=["tie", "below_margin", "chosen_too_weak"].index)
        for verdict in sorted(winners, key=lambda one: (-one.strength, *sorted((one.one, one.other)))):
            assert verdict.winner is not None
            loser = {verdict.one: verdict.other, verdict.other: verdict.one}[verdict.winner]
            self.attempt(self.usable[verdict.winner], self.usable[loser], "verdict")
            self.blocked.append(({verdict.one, verdict.other}, ""))
        # What people preferred stands between any two that did the same; what they preferred none of, too.
        for verdict in sorted(self.verdicts, key=lambda one: one.winner is None):
            if verdict.winner is not None:
                self.blocked.append((self.deeds(verdict.one, verdict.other), ""))
            else:
                reason = f"judged_{verdict.without}"
                self.blocked.append(({verdict.one, verdict.other}, reason))
                self.blocked.append((self.deeds(verdict.one, verdict.other), reason))
        self.rewards_speak = True
        prompts = list(dict.fromkeys(self.courses[one.id].prompt for one in rewarded))
        for prompt in prompts:
            self.by_rewards([one for one in rewarded if self.courses[one.id].prompt == prompt])
        if self.made:
            return self.made, "paired"
        return [], max(self.reasons, key=OUTCOMES.index, default="different_prompts")

    def by_rewards(self, group: list[Attempt]) -> None:
        prompt = self.courses[group[0].id].prompt
        judged = sum(self.courses[chosen].prompt == prompt for chosen, _, source, _ in self.made if source == "verdict")
        ordered = sorted(self.candidates(group), key=lambda two: self.order(two, group))
        first: int | None = None
        for chosen, rejected in ordered:
            if self.rule.mode in ("best_worst", "best_mu_2sigma", "nearest_length") and judged:
                return
            if self.rule.mode == "best_vs_all" and first is not None and chosen.id != first:
                return
            source = "override" if chosen.overridden or rejected.overridden else "reward"
            if self.attempt(chosen, rejected, source):
                first = chosen.id
                judged += 1

    def candidates(self, group: list[Attempt]) -> list[tuple[Attempt, Attempt]]:
        return [two for two in permutations(group, 2) if not by_reward(*two, self.rule)]

    def order(self, two: tuple[Attempt, Attempt], group: list[Attempt]) -> tuple[Any, ...]:
        chosen, rejected = two
        assert chosen.reward is not None
        assert rejected.reward is not None
        best = (-chosen.reward, chosen.output_tokens, chosen.id)
        worst = (rejected.reward, rejected.output_tokens, rejected.id)
        gap = chosen.reward - rejected.reward
        if self.rule.mode in ("best_worst", "best_vs_all"):
            return (best, worst)
        if self.rule.mode == "all":
            return (-gap, best, worst)
        if self.rule.mode == "nearest_length":
            refused, _, ratio = self.look(chosen, rejected)
            return (ratio if not refused else float("inf"), -gap, best, worst)
        rewards = [one.reward for one in group if one.reward is not None]
        mean = sum(rewards) / len(rewards)
        deviation = (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
        return (best, abs(rejected.reward - (mean - 2 * deviation)), worst)

    def attempt(self, chosen: Attempt, rejected: Attempt, source: str) -> bool:
        refused, turn, _ = self.look(chosen, rejected)
        if refused is not None:
            if refused:
                self.reasons.append(refused)
            return False
        cap = self.rule.per_task if self.rule.per_task is not None else 10 if self.rule.mode == "all" else None
        if cap is not None and len(self.made) >= cap:
            return False
        self.made.append((chosen.id, rejected.id, source, turn))
        self.blocked.append(({chosen.id, rejected.id}, ""))
        self.blocked.append((self.deeds(chosen.id, rejected.id), ""))
        return True

    def look(self, chosen: Attempt, rejected: Attempt) -> tuple[str | None, int | None, float]:
        """Why not ("" where it is there already), the turn, and how the lengths of the sides differ."""
        good, bad = self.courses[chosen.id], self.courses[rejected.id]
        place = part(good, bad)
        turn, lengths = None, [sum(step.written for step in course.steps) for course in (good, bad)]
        if self.rule.level == "step" and isinstance(place, int):
            turn = sum(step.acts for step in good.steps[:place])
            lengths = [good.steps[place].written, bad.steps[place].written]
        ratio = max(1, *lengths) / max(1, min(lengths))
        if good.prompt != bad.prompt:
            return "different_prompts", turn, ratio
        for two, reason in self.blocked:
            if two == {chosen.id, rejected.id}:
                return reason, turn, ratio
        if good.completion == bad.completion:
            return "identical_completions", turn, ratio
        if self.rule.level == "step" and isinstance(place, str):
            return place, turn, ratio
        if self.rule.level == "trajectory" and self.rule.same == "actions" and good.actions == bad.actions:
            return "same_actions", turn, ratio
        for two, reason in self.blocked:
            if two is not None and two == self.deeds(chosen.id, rejected.id):
                return reason, turn, ratio
        if self.rewards_speak:
            # What each did, of the two the other way round: in this order.
            turned = self.sides(rejected.id, chosen.id)
            if any(two == (rejected.id, chosen.id) or turned == self.sides(*two) is not None for two in self.better):
                return "preference_cycle", turn, ratio
        if self.rule.max_length_ratio is not None and ratio > self.rule.max_length_ratio:
            return "lengths_differ", turn, ratio
        return None, turn, ratio

    def deeds(self, one: int, other: int) -> Any:
        sides = self.sides(one, other)
        return None if sides is None else (*sides[:-2], sorted(map(str, sides[-2:])))

    def sides(self, one: int, other: int) -> Any:
        mine, theirs = self.courses[one], self.courses[other]
        if mine.prompt != theirs.prompt:
            return None
        if self.rule.level == "trajectory":
            return (
                mine.prompt,
                *((each.actions if self.rule.same == "actions" else each.completion) for each in (mine, theirs)),
            )
        place = part(mine, theirs)
        if isinstance(place, str):
            return None
        shared = [step.digest for step in mine.steps[:place]]
        return (mine.prompt, shared, mine.steps[place].digest, theirs.steps[place].digest)


def every_two(ids: list[int]) -> list[tuple[int, int]]:
    return list(combinations(ids, 2))
