"""How rollouts ended, what they used, and how their rewards spread, by label."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from apps.gym.judging.judge import CONTRADICTION
from apps.gym.metrics.pass_at_k import sample_std
from apps.rollouts.metrics.labels import Labels, read_by_label
from apps.rollouts.models import Collection

Outcome = dict[str, Any]
"""Rollouts with the same end: `status`, `stop_reason`, `error_kind`, and the figures of _FIGURES."""

_FIGURES: dict[str, tuple[str, str]] = {
    "count": ("COUNT(*)", "SUM"),
    "rewarded": ("COUNT(r.reward)", "SUM"),
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
    "longest": ("MAX(CASE WHEN r.reward IS NOT NULL THEN r.output_tokens END)", "MAX"),
}
"""How each figure is counted over rollouts, and how partial counts are combined."""
_OUTCOMES = f"""
    WITH {{known}}
    SELECT {{label}}, status, stop_reason, error_kind,
        {", ".join(f"{together}({name})" for name, (_, together) in _FIGURES.items())}
    FROM (
        SELECT {{raw}} AS raw, r.status, r.stop_reason, r.error_kind,
            {", ".join(f"{counted} AS {name}" for name, (counted, _) in _FIGURES.items())}
        FROM rollouts_rollout r {{join}} WHERE r.collection_id = %s
        GROUP BY {{by}}r.status, r.stop_reason, r.error_kind
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1, 2, 3, 4
"""  # noqa: S608 (constants alone are formatted in)
# Equal rewards are counted first. Deviations are taken from each label's own mean before they are squared: the one-pass
# formula loses precision where rewards are large and close together. The two middle values are the first ones with at
# least as many values at or below them.
_SPREADS = """
    WITH {known}
    SELECT label, SUM(size * (reward - mean) * (reward - mean)),
        MIN(CASE WHEN passed * 2 >= whole THEN reward END), MIN(CASE WHEN passed * 2 > whole THEN reward END)
    FROM (
        SELECT known.label, reward, size, n0 AS mean, SUM(size) OVER (PARTITION BY known.label) AS whole,
            SUM(size) OVER (PARTITION BY known.label ORDER BY reward) AS passed
        FROM (
            SELECT {label} AS label, reward, SUM(size) AS size FROM (
                SELECT {raw} AS raw, r.reward, COUNT(*) AS size FROM rollouts_rollout r {join}
                WHERE r.collection_id = %s AND r.reward IS NOT NULL GROUP BY {by}r.reward
            ) stored {parts} GROUP BY 1, 2
        ) rewards JOIN known ON known.label = rewards.label
    ) passing GROUP BY label
"""


class Spread(NamedTuple):
    """Spread of the rewards with one label."""

    size: int
    mean: float | None = None
    std: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None


def read_outcomes(collection: Collection, labels: Labels) -> dict[str, list[Outcome]]:
    """Return the outcomes by label, in one pass over the collection."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    names = ("status", "stop_reason", "error_kind", *_FIGURES)
    for label, *values in read_by_label(_OUTCOMES, labels, [f"%{CONTRADICTION}%", collection.pk]):
        found[label].append(dict(zip(names, values, strict=True)))
    return found


def read_spreads(
    collection: Collection, labels: Labels, outcomes: dict[str, list[Outcome]]
) -> defaultdict[str, Spread]:
    """Return the spread of rewards by label, in a second pass over the rewards."""
    spreads: defaultdict[str, Spread] = defaultdict(lambda: Spread(0))
    for label, rows in outcomes.items():
        if size := add_up(rows, "rewarded"):
            having = [row for row in rows if row["rewarded"]]
            spreads[label] = Spread(
                size,
                math.fsum(row["reward_sum"] for row in having) / size,
                low=min(row["low"] for row in having),
                high=max(row["high"] for row in having),
            )
    means = {label: [spread.mean] for label, spread in spreads.items() if spread.mean is not None}
    if not means:
        return spreads
    for label, squares, below, above in read_by_label(_SPREADS, labels, [collection.pk], means):
        std = sample_std(spreads[label].size, squares)
        spreads[label] = spreads[label]._replace(std=std, median=statistics.mean((below, above)))
    return spreads


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
