"""What a rule of preference pairs can say, and what it is told of attempts: their rewards, and what people judged.

`pair_making.pair_group` applies it. Sources of the modes are in `docs/pairs.md`.
"""

import hashlib
from typing import Annotated, Any, Literal, get_args

import msgspec
import orjson

from apps.gym.specs import Option, spec_problems
from apps.gym.traces.stop_reasons import ENDED_BY_ITSELF

Mode = Literal["best_worst", "best_vs_all", "all", "best_mu_2sigma", "nearest_length"]
MODES: list[tuple[Mode, str]] = [
    ("best_worst", "Best with worst"),
    ("best_vs_all", "Best with each other attempt"),
    ("all", "All with all"),
    ("best_mu_2sigma", "Best with μ − 2σ"),
    ("nearest_length", "Nearest in length"),
]
Level = Literal["trajectory", "step"]
Source = Literal["reward", "override", "verdict"]

TOLERANCE = 1e-9
"""Rewards this close are equal: 1.0 − 0.9 is 0.09999999999999998 and is still a margin of 0.1."""
CAP_OF_ALL = 10
"""Pairs of one task in the mode `all` where the rule names no cap: a group of 64 would give 2,016."""
MAX_PER_TASK = 10_000
MAX_RATIO = 1e6
METHOD = 2
"""Changes where the same rule makes other pairs of the same attempts; a part of every digest."""

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
"""What became of a group. Where none of its possible pairs was made, it is the reason of the one that came farthest, in
this order."""

Exclusion = Literal["not_finished", "failed", "judge_failed", "cancelled", "truncated", "redacted", "no_reward"]
EXCLUSIONS: tuple[Exclusion, ...] = get_args(Exclusion)
"""Why an attempt is not used. One without a reward is still paired where people judged it."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pairs are made. A pair is of one task and prompt with the same tools, of two that did not do the same."""

    mode: Annotated[
        Mode,
        Option(
            "Pairing",
            "Which attempts at a task form pairs",
            names=dict(MODES),
        ),
    ] = "best_worst"
    level: Annotated[
        Level,
        Option(
            "Level",
            "Compare whole attempts, or the first action that differs after the same state",
            names={"trajectory": "Whole attempts", "step": "First differing action"},
        ),
    ] = "trajectory"
    margin: Annotated[
        float, Option("Margin", "Chosen reward minus rejected reward is at least this; equal rewards never pair", low=0)
    ] = 0.1
    min_chosen_reward: Annotated[
        float | None, Option("Minimum chosen reward", "Of the better attempt", none="any", example=0.5)
    ] = None
    per_task: Annotated[
        int | None,
        Option(
            "Pairs per task",
            "At most so many pairs of a task",
            low=1,
            high=MAX_PER_TASK,
            none=f"all pairs, {CAP_OF_ALL} when all are paired with all",
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
    include_truncated: Annotated[
        bool, Option("Include truncated attempts", "Attempts that hit a limit; models do not learn to stop from them")
    ] = False
    include_redacted: Annotated[
        bool, Option("Include redacted attempts", "Attempts with credentials in their traces")
    ] = False
    reward_from: Annotated[
        Literal["verifier", "override"],
        Option(
            "Rewards",
            "Which reward counts if a reviewer changed it",
            names={"verifier": "From the verifier", "override": "Overrides first"},
        ),
    ] = "verifier"

    @property
    def cap(self) -> int | None:
        return self.per_task if self.per_task is not None or self.mode != "all" else CAP_OF_ALL


class RuleRefused(Exception):
    """No pair could ever be made like this; `field` is what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule needs to know of a rollout. `reward` is the one that counts, None where it has none;
    `overridden` says that people set it, and `verifier_reward` is then what it was."""

    id: int
    reward: float | None
    status: str = "completed"
    error_kind: str = ""
    stop_reason: str = "answered"
    redacted: bool = False
    output_tokens: int = 0
    answer: str = ""
    overridden: bool = False
    verifier_reward: float | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What stands after all that people said of two attempts. `winner` is one of them; where there is none, `without`
    says what they found instead, and there is no pair, whatever the rewards are."""

    one: int
    other: int
    winner: int | None = None
    without: Literal["equal", "both_bad", "split"] = "equal"
    strength: int = 1
    """1 is better, 2 is much better."""
    reviewers: int = 1
    agreement: float | None = None
    """The share of them that said so; None where nobody but an adjudicator did."""
    adjudicated: bool = False
    reviews: tuple[int, ...] = ()
    """Where it was read."""

    @property
    def refusal(self) -> Outcome:
        refusals: dict[str, Outcome] = {
            "equal": "judged_equal",
            "both_bad": "judged_both_bad",
            "split": "judged_split",
        }
        return refusals[self.without]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """`margin` is by how much the rewards that counted prefer the chosen one. None where people chose it: rewards then
    say nothing of the preference, whatever they are. `turn` is where the two part, of the level `step`."""

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
    """Raises RuleRefused."""
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
    """The same for the same settings, by whatever way they were given."""
    told = {**rule_fields(rule), "per_task": rule.cap, "method": METHOD}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def find_exclusion(attempt: Attempt, rule: Rule) -> Exclusion | None:
    """Why the attempt is not paired by its reward; all but `no_reward` keep it from pairs of people's verdicts too."""
    if attempt.status != "completed":
        if attempt.error_kind == "judge_error":
            return "judge_failed"
        return (
            "failed" if attempt.status == "failed" else "cancelled" if attempt.status == "cancelled" else "not_finished"
        )
    if not rule.include_truncated and attempt.stop_reason not in ENDED_BY_ITSELF:
        return "truncated"
    if not rule.include_redacted and attempt.redacted:
        return "redacted"
    return "no_reward" if attempt.reward is None else None
