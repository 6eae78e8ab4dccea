"""The pair rule: the best against the worst attempt of a group, if they differ enough to say something.

A group is all attempts at one task in a collection. Maximum against minimum is the pairing that online DPO found best
(RLHFlow); the margin keeps out pairs that only the verifier's noise tells apart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from apps.gym.stopping import ENDED_BY_ITSELF

GroupOutcome = Literal[
    "paired",
    "too_few_attempts",
    "tie",
    "below_margin",
    "chosen_too_weak",
    "different_prompts",
    "identical_completions",
]

OUTCOMES: tuple[GroupOutcome, ...] = (
    "paired",
    "too_few_attempts",
    "tie",
    "below_margin",
    "chosen_too_weak",
    "different_prompts",
    "identical_completions",
)

TOLERANCE = 1e-9
"""Rewards this close are equal: 1.0 − 0.9 is 0.09999999999999998 and is still a margin of 0.1."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What the rule needs to know of a rollout; `reward` is None where it has none."""

    id: int
    reward: float | None
    output_tokens: int = 0
    stop_reason: str = "answered"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    chosen: int
    rejected: int
    margin: float


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    completion: str


def usable_attempts(group: Iterable[Attempt]) -> list[Attempt]:
    """Those with a reward that ended by themselves (see stopping.ENDED_BY_ITSELF)."""
    return [one for one in group if one.reward is not None and one.stop_reason in ENDED_BY_ITSELF]


def pair_group(
    group: Iterable[Attempt],
    fingerprint: Callable[[int], Fingerprint],
    *,
    margin: float = 0.1,
    min_chosen_reward: float | None = None,
) -> tuple[Pair | None, GroupOutcome]:
    """The group's one pair, or the reason why it has none.

    Chosen is the highest reward (of equals the one of fewest output tokens, then of lowest id), rejected the lowest
    (of equals likewise). Where these two started from different prompts or did the same thing, the next worst and
    then the next best are tried. Ties never pair, whatever the margin. `fingerprint` is asked only for attempts that
    rewards alone would pair, since it may have to read a trace.
    """
    attempts = usable_attempts(group)
    if len(attempts) < 2:
        return None, "too_few_attempts"
    best_first = sorted(attempts, key=lambda one: (-_reward(one), one.output_tokens, one.id))
    worst_first = sorted(attempts, key=lambda one: (_reward(one), one.output_tokens, one.id))
    widest = _reward(best_first[0]) - _reward(worst_first[0])
    if widest <= TOLERANCE:
        return None, "tie"
    if widest < margin - TOLERANCE:
        return None, "below_margin"
    if min_chosen_reward is not None and _reward(best_first[0]) < min_chosen_reward - TOLERANCE:
        return None, "chosen_too_weak"
    return _first_honest_pair(best_first, worst_first, fingerprint, margin, min_chosen_reward)


def _first_honest_pair(
    best_first: Sequence[Attempt],
    worst_first: Sequence[Attempt],
    fingerprint: Callable[[int], Fingerprint],
    margin: float,
    min_chosen_reward: float | None,
) -> tuple[Pair | None, GroupOutcome]:
    outcome: GroupOutcome = "different_prompts"
    for chosen in best_first:
        if min_chosen_reward is not None and _reward(chosen) < min_chosen_reward - TOLERANCE:
            break
        for rejected in worst_first:
            gap = _reward(chosen) - _reward(rejected)
            if gap <= TOLERANCE or gap < margin - TOLERANCE:
                break
            good, bad = fingerprint(chosen.id), fingerprint(rejected.id)
            if good.prompt != bad.prompt:
                continue
            if good.completion != bad.completion:
                return Pair(chosen=chosen.id, rejected=rejected.id, margin=gap), "paired"
            outcome = "identical_completions"
    return None, outcome


def _reward(attempt: Attempt) -> float:
    assert attempt.reward is not None
    return attempt.reward
