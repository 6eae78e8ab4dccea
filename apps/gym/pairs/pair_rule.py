"""The settings of a pair rule, and its inputs: rewards of attempts and verdicts of reviewers.

`pair_making.pair_group` applies it. `docs/use/pairs.md` cites the papers behind the modes.
"""

import hashlib
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
import orjson

from apps.gym.attempt_options import REWARD_SOURCES, IncludeAmbiguous, IncludeNoticed, IncludeTruncated
from apps.gym.specs import Option, spec_problems
from apps.gym.trainability import find_reason

Mode = Literal["best_worst", "best_vs_all", "all", "best_mu_2sigma", "nearest_length"]
MODES: list[tuple[Mode, str]] = [
    ("best_worst", "Best vs worst"),
    ("best_vs_all", "Best vs every other"),
    ("all", "All combinations"),
    ("best_mu_2sigma", "Best vs reward nearest to μ − 2σ"),
    ("nearest_length", "Closest in length"),
]
Level = Literal["trajectory", "step"]
LEVELS: list[tuple[Level, str]] = [("trajectory", "Whole rollouts"), ("step", "First differing action")]
Source = Literal["reward", "override", "verdict"]

TOLERANCE = 1e-9
"""Rewards this close count as equal: 1.0 − 0.9 is 0.09999999999999998 and still a margin of 0.1."""
CAP_OF_ALL = 10
"""Default maximum of pairs per task in the mode `all`: a group of 64 would give 2,016."""
MAX_PER_TASK = 10_000
MAX_RATIO = 1e6
METHOD = 2
"""Version of the algorithm, part of every digest. Increment it when the same rule builds different pairs."""

Outcome = Literal[
    "paired",
    "too_few_attempts",
    "tie",
    "below_margin",
    "chosen_too_weak",
    "different_prompts",
    "judged_equal",
    "judged_both_bad",
    "judged_split",
    "preference_cycle",
    "identical_completions",
    "same_actions",
    "states_differ",
    "lengths_differ",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Outcomes of a group, in the order of the checks. A group without pairs has the last check that a candidate failed."""

Exclusion = Literal[
    "not_finished",
    "failed",
    "judge_failed",
    "cancelled",
    "masked",
    "ambiguous_path",
    "setup_notice",
    "truncated",
    "redacted",
    "no_reward",
]
"""Why an attempt is not used. An attempt without a reward can still be paired by a verdict."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pairs are made. Both attempts of a pair have the same task, prompt and tools, and they differ."""

    mode: Annotated[
        Mode,
        Option(
            "Pairing",
            "Which rollouts of a task form pairs",
            names=dict(MODES),
        ),
    ] = "best_worst"
    level: Annotated[
        Level,
        Option(
            "Level",
            "Compare whole rollouts, or only the first action that differs after an identical history",
            names=dict(LEVELS),
        ),
    ] = "trajectory"
    margin: Annotated[
        float,
        Option(
            "Margin",
            "Minimum difference between the chosen and the rejected reward. Equal rewards never form a pair.",
            low=0,
        ),
    ] = 0.1
    min_chosen_reward: Annotated[
        float | None, Option("Minimum chosen reward", "Minimum reward of the chosen rollout", none="any", example=0.5)
    ] = None
    per_task: Annotated[
        int | None,
        Option(
            "Pairs per task",
            "Maximum pairs per task",
            low=1,
            high=MAX_PER_TASK,
            none=f"no limit, or {CAP_OF_ALL} for “All combinations”",
        ),
    ] = None
    max_length_ratio: Annotated[
        float | None,
        Option(
            "Maximum length ratio",
            "Characters of the longer side divided by those of the shorter side",
            low=1,
            high=MAX_RATIO,
            none="any",
            example=2.0,
        ),
    ] = None
    same: Annotated[
        Literal["actions", "completions"],
        Option(
            "Treat as duplicates",
            "Duplicates never form a pair",
            names={"actions": "Same actions", "completions": "Same actions and same reasoning"},
        ),
    ] = "actions"
    include_truncated: IncludeTruncated = False
    include_ambiguous: IncludeAmbiguous = False
    include_noticed: IncludeNoticed = False
    include_redacted: Annotated[bool, Option("Include rollouts with redacted credentials", "Left out by default")] = (
        False
    )
    reward_from: Annotated[
        Literal["override", "verifier"],
        Option(
            "Rewards",
            "Which reward to use if a reviewer overrode it",
            names=REWARD_SOURCES,
        ),
    ] = "override"

    @property
    def cap(self) -> int | None:
        return self.per_task if self.per_task is not None or self.mode != "all" else CAP_OF_ALL


class RuleRefused(Exception):
    """Raised for a rule that cannot make any pair. `field` is the setting to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a rollout that a rule needs.

    `reward` is the effective reward, or None. If a reviewer overrode it, `overridden` is True and `verifier_reward` is
    the original.
    """

    id: int
    reward: float | None
    status: str = "completed"
    error_kind: str = ""
    stop_reason: str = "answered"
    masked: str = ""
    ambiguous_path: bool = False
    notices: str = ""
    flagged: bool = False
    """True if credentials were redacted."""
    output_tokens: int = 0
    answer: str = ""
    overridden: bool = False
    verifier_reward: float | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The combined verdict of all reviews of two attempts.

    `winner` is the id of the better one. If it is None, `without` is the reason, and the two never form a pair,
    whatever their rewards.
    """

    one: int
    other: int
    winner: int | None = None
    without: Literal["equal", "both_bad", "split"] = "equal"
    strength: int = 1
    """1 is better, 2 is much better."""
    reviewers: int = 1
    agreement: float | None = None
    """Share of reviewers who agree; None if only an adjudicator decided."""
    adjudicated: bool = False
    reviews: tuple[int, ...] = ()
    """Ids of the reviews."""

    @property
    def refusal(self) -> Outcome:
        refusals: dict[str, Outcome] = {
            "equal": "judged_equal",
            "both_bad": "judged_both_bad",
            "split": "judged_split",
        }
        return refusals[self.without]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A preference pair.

    `margin` is the chosen minus the rejected reward, or None for a verdict, which may contradict the rewards. `turn` is
    the turn, from 0, where the two diverge; None at level `trajectory`. Lengths are in characters.
    """

    chosen: int
    rejected: int
    margin: float | None
    source: Source = "reward"
    strength: int = 0
    reviewers: int = 0
    agreement: float | None = None
    adjudicated: bool = False
    reviews: tuple[int, ...] = ()
    turn: int | None = None
    chosen_length: int = 0
    rejected_length: int = 0


def read_rule(given: dict[str, Any]) -> Rule:
    """Return the validated rule. Raise RuleRefused."""
    try:
        rule = msgspec.convert(given, Rule)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise RuleRefused(where.rstrip("`"), what + ".") from None
    check_rule(rule)
    return rule


def check_rule(rule: Rule) -> None:
    """Raise RuleRefused for a value out of range."""
    for field, problem in spec_problems(Rule, rule_fields(rule)).items():
        raise RuleRefused(field, problem)


def rule_fields(rule: Rule) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    return fields


def rule_digest(rule: Rule) -> str:
    """Return the SHA-256 of the settings, with defaults filled in, as hex."""
    told = {**rule_fields(rule), "per_task": rule.cap, "method": METHOD}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def find_exclusion(attempt: Attempt, rule: Rule) -> Exclusion | None:
    """Return why the attempt cannot be paired by its reward, or None.

    Every reason except `no_reward` also excludes it from pairs by verdict.
    """
    if attempt.status == "failed" and attempt.error_kind == "judge_error":
        return "judge_failed"
    reason = find_reason(
        attempt,
        include_flagged=rule.include_redacted,
        include_truncated=rule.include_truncated,
        include_ambiguous=rule.include_ambiguous,
        include_noticed=rule.include_noticed,
    )
    return "redacted" if reason == "flagged" else cast("Exclusion", reason) or None
