"""Figures of the rollouts under each label. A whole collection is measured as a single label."""

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

from apps.gym.metrics.majority_at_k import mean_majority_at_k
from apps.gym.metrics.pass_at_k import (
    confidence_interval,
    mean_average_of_k,
    mean_pass_at_k,
    solve_buckets,
    standard_error_from,
)
from apps.rollouts.metrics.attempt_groups import Groups, read_groups
from apps.rollouts.metrics.components import ComponentFigures, read_components
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.labels import Facet, Labels, find_labels
from apps.rollouts.metrics.outcomes import Outcome, Spread, add_up, count_by, mean_over, read_outcomes, read_spreads
from apps.rollouts.models import Collection, Rollout


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of rollouts with one label.

    Means cover rewarded rollouts only; a failed rollout has no reward and does not count as zero. Durations are in
    seconds.

    `tasks` counts tasks with a reward. `confidence` is the 95 % interval of the mean reward, clustered by task.
    `pass_at_k` is keyed by k = 1, 2, 4, …; `groups` by never, sometimes and always solved; `tokens` by input and
    output. A figure is None if it cannot be computed yet.

    `average_of_k` and `majority_at_k` have the same keys as `pass_at_k` (apps.gym.metrics). `components` has the mean
    of each reward component, `component_figures` its other figures. `latency` has the mean seconds of a completed
    rollout by phase: model, tools, verify.
    """

    rollouts: int
    completed: int
    failed: int
    cancelled: int
    rewarded: int
    tasks: int
    mean_reward: float | None
    std: float | None
    median: float | None
    min_reward: float | None
    max_reward: float | None
    confidence: tuple[float, float] | None
    pass_at_1: float | None
    pass_at_k: dict[int, float]
    average_of_k: dict[int, float]
    majority_at_k: dict[int, float]
    groups: dict[str, int]
    stop_reasons: dict[str, int]
    errors: dict[str, int]
    components: dict[str, float]
    component_figures: list[ComponentFigures]
    tokens: dict[str, int]
    cost: float
    mean_turns: float | None
    mean_duration: float | None
    mean_tool_calls: float | None
    latency: dict[str, float]


class Part(NamedTuple):
    """Figures of the rollouts with one label, and the counts behind them."""

    label: str
    figures: Figures
    outcomes: list[Outcome]


def figure(collection: Collection, labels: Labels) -> list[Part]:
    """Return a Part per label, in the order of the labels.

    The number of queries does not depend on the number of labels.
    """
    outcomes = read_outcomes(collection, labels)
    spreads = read_spreads(collection, labels, outcomes)
    means = {label: spread.mean for label, spread in spreads.items() if spread.mean is not None}
    groups = read_groups(collection.pk, labels, means)
    components = read_components(collection, labels)
    return [
        Part(label, _figures(outcomes[label], spreads[label], groups[label], components[label]), outcomes[label])
        for label in labels.names
    ]


def _figures(outcomes: list[Outcome], spread: Spread, groups: Groups, components: list[ComponentFigures]) -> Figures:
    statuses = count_by(outcomes, "status")
    completed = [row for row in outcomes if row["status"] == Rollout.Status.COMPLETED]
    failed = [row for row in outcomes if row["status"] == Rollout.Status.FAILED]
    passes = mean_pass_at_k(groups.solved)
    error = None if spread.mean is None else standard_error_from(groups.squares, spread.size, groups.known)
    mean = mean_over(completed)
    return Figures(
        rollouts=sum(statuses.values()),
        completed=statuses.get(Rollout.Status.COMPLETED, 0),
        failed=statuses.get(Rollout.Status.FAILED, 0),
        cancelled=statuses.get(Rollout.Status.CANCELLED, 0),
        rewarded=spread.size,
        tasks=groups.known,
        mean_reward=spread.mean,
        std=spread.std,
        median=spread.median,
        confidence=None if spread.mean is None or error is None else confidence_interval(spread.mean, error),
        min_reward=spread.low,
        max_reward=spread.high,
        pass_at_1=passes.get(1),
        pass_at_k=passes,
        average_of_k=mean_average_of_k(groups.means),
        majority_at_k=mean_majority_at_k(groups.votes),
        groups=solve_buckets(groups.solved),
        stop_reasons=count_by(completed, "stop_reason"),
        errors=count_by(failed, "error_kind"),
        components={each.name: each.mean for each in components},
        component_figures=components,
        tokens={"input": add_up(outcomes, "input_sum"), "output": add_up(outcomes, "output_sum")},
        cost=math.fsum(row["cost_sum"] for row in outcomes),
        mean_turns=mean("turns_sum"),
        mean_tool_calls=mean("tool_calls_sum"),
        mean_duration=mean("duration_sum"),
        latency={phase: mean(f"{phase}_sum") or 0.0 for phase in ("model", "tools", "verify")} if completed else {},
    )


@dataclass(frozen=True, kw_only=True)
class Share(Figures):
    """Figures of the rollouts with one label. The label is empty for tasks or rollouts without one.

    A group is all attempts at one task; by model version, all attempts that started with the same version.
    """

    label: str


class Breakdown(NamedTuple):
    """Shares, largest first, and the number of shares left out."""

    shares: list[Share]
    left_out: int


def break_down(collection: Collection, facet: Facet) -> Breakdown:
    """Return the figures by label. By tag, a task counts once for each of its tags."""
    with consistent_reads():
        labels = find_labels(collection, facet)
        parts = figure(collection, labels)
    shares = [
        Share(
            label=part.label,
            **{field.name: getattr(part.figures, field.name) for field in dataclasses.fields(part.figures)},
        )
        for part in parts
    ]
    return Breakdown(sorted(shares, key=lambda share: (-share.rollouts, share.label)), labels.left_out)
