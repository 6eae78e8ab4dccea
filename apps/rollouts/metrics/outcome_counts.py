"""Outcomes, usage and reward distribution of rollouts, by label."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from apps.gym.judging.judge import CONTRADICTION
from apps.gym.setup_notices import OF_ROLLOUTS
from apps.rollouts.metrics.distributions import Distribution, distribute
from apps.rollouts.metrics.labels import Labels, read_by_label
from apps.rollouts.metrics.task_ranges import IN_RANGE, TaskRange

Outcome = dict[str, Any]
"""Rollouts with the same `status`, `stop_reason` and `error_kind`, with the figures in _FIGURES."""

_UNRESERVED = "NOT r.flagged AND r.masked = '' AND NOT r.ambiguous_path"
_USED = f"CASE WHEN r.reward IS NOT NULL AND r.notices = '' AND {_UNRESERVED} THEN r.{{}}_tokens END"
_FIGURES: dict[str, tuple[str, str]] = {
    "count": ("COUNT(*)", "SUM"),
    "rewarded": ("COUNT(r.reward)", "SUM"),
    "masked": ("COUNT(CASE WHEN r.masked <> '' THEN 1 END)", "SUM"),
    "flagged": ("COUNT(CASE WHEN r.flagged AND r.masked = '' THEN 1 END)", "SUM"),
    "ambiguous": ("COUNT(CASE WHEN r.ambiguous_path AND NOT r.flagged AND r.masked = '' THEN 1 END)", "SUM"),
    "noticed": (f"COUNT(CASE WHEN r.notices <> '' AND {_UNRESERVED} THEN 1 END)", "SUM"),
    "unrewarded": (
        f"COUNT(CASE WHEN r.reward IS NULL AND r.notices = '' AND {_UNRESERVED} THEN 1 END)",
        "SUM",
    ),
    "sampled_sum": ("SUM(r.sampled_tokens)", "SUM"),
    "trainable_sum": ("SUM(r.trainable_tokens)", "SUM"),
    "used_sampled": (f"SUM({_USED.format('sampled')})", "SUM"),
    "used_trainable": (f"SUM({_USED.format('trainable')})", "SUM"),
    "reward_sum": ("SUM(r.reward)", "SUM"),
    "low": ("MIN(r.reward)", "MIN"),
    "high": ("MAX(r.reward)", "MAX"),
    "input_sum": ("SUM(r.input_tokens)", "SUM"),
    "output_sum": ("SUM(r.output_tokens)", "SUM"),
    "cost_sum": ("SUM(r.cost)", "SUM"),
    "judge_calls_sum": ("SUM(r.judge_calls)", "SUM"),
    "judge_tokens_sum": ("SUM(r.judge_tokens)", "SUM"),
    "turns_sum": ("SUM(r.turns)", "SUM"),
    "tool_calls_sum": ("SUM(r.tool_calls)", "SUM"),
    "duration_sum": ("SUM(r.duration)", "SUM"),
    "model_sum": ("SUM(r.model_time)", "SUM"),
    "tools_sum": ("SUM(r.tool_time)", "SUM"),
    "verify_sum": ("SUM(r.verify_time)", "SUM"),
    "contradicted": (
        "COUNT(CASE WHEN r.error_kind = 'judge_error' AND r.error_message LIKE %s THEN 1 END)",
        "SUM",
    ),
    # A doubled percent sign, because the statement has parameters.
    **{name: (f"COUNT(CASE WHEN r.notices LIKE '%%{name}%%' THEN 1 END)", "SUM") for name in OF_ROLLOUTS},
    "longest": ("MAX(CASE WHEN r.reward IS NOT NULL THEN r.output_tokens END)", "MAX"),
}
"""SQL that computes each figure over rollouts, and the aggregate that combines partial values."""
_OUTCOMES = f"""
    WITH {{known}}
    SELECT {{label}}, status, stop_reason, error_kind,
        {", ".join(f"{together}({name})" for name, (_, together) in _FIGURES.items())}
    FROM (
        SELECT {{raw}} AS raw, r.status, r.stop_reason, r.error_kind,
            {", ".join(f"{counted} AS {name}" for name, (counted, _) in _FIGURES.items())}
        FROM rollouts_rollout r {{join}} WHERE {IN_RANGE}
        GROUP BY {{by}}r.status, r.stop_reason, r.error_kind
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1, 2, 3, 4
"""  # noqa: S608 (constants alone are formatted in)
_REWARDS = f"""
    WITH {{known}}
    SELECT {{label}}, reward, SUM(size) FROM (
        SELECT {{raw}} AS raw, r.reward, COUNT(*) AS size FROM rollouts_rollout r {{join}}
        WHERE {IN_RANGE} AND r.reward IS NOT NULL GROUP BY {{by}}r.reward
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1, 2
"""  # noqa: S608
_NAMES = ("status", "stop_reason", "error_kind", *_FIGURES)
_COMBINE: dict[str, Callable[[Iterable[Any]], Any]] = {"SUM": sum, "MIN": min, "MAX": max}


def read_outcomes(tasks: TaskRange, labels: Labels) -> dict[str, list[Outcome]]:
    """Return the outcomes by label, in one pass over the rollouts."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for label, *values in read_by_label(_OUTCOMES, labels, [f"%{CONTRADICTION}%", *tasks]):
        # PostgreSQL returns sums of integers as Decimal.
        plain = [int(value) if isinstance(value, Decimal) else value for value in values]
        found[label].append(dict(zip(_NAMES, plain, strict=True)))
    return found


def combine_outcomes(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Combine the outcomes with the same status, stop reason and error kind."""
    by_end: dict[tuple[str, str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_end[outcome["status"], outcome["stop_reason"], outcome["error_kind"]].append(outcome)
    return [_combine(rows) for rows in by_end.values()]


def _combine(rows: list[Outcome]) -> Outcome:
    combined = dict(rows[0])
    for name, (_, together) in _FIGURES.items():
        known = [row[name] for row in rows if row[name] is not None]
        combined[name] = _COMBINE[together](known) if known else None
    return combined


def read_rewards(tasks: TaskRange, labels: Labels) -> dict[str, Distribution]:
    """Return the distribution of rewards by label, with one query."""
    rows: dict[str, list[tuple[float, int, float]]] = defaultdict(list)
    for label, reward, count in read_by_label(_REWARDS, labels, [*tasks]):
        rows[label].append((reward, int(count), 0.0))
    return {label: distribute(found) for label, found in rows.items()}


def mean_over(rows: Sequence[Outcome]) -> Callable[[str], float | None]:
    count = add_up(rows, "count")
    return lambda field: math.fsum(row[field] for row in rows) / count if count else None


def add_up(rows: Sequence[Outcome], field: str) -> int:
    return int(sum(row[field] or 0 for row in rows))


def count_by(rows: Sequence[Outcome], field: str) -> dict[str, int]:
    """Return the number of rollouts by `field`, most frequent first."""
    counts: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: str(row[field])):
        counts[row[field]] += int(row["count"])
    return dict(counts.most_common())
