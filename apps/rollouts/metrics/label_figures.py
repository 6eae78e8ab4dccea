"""Figures of rollouts by label. A whole collection is measured as a single label."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from apps.gym.metrics.clustered_intervals import standard_error_from
from apps.gym.metrics.majority_at_k import mean_majority_at_k
from apps.gym.metrics.pass_at_k import mean_average_of_k, mean_pass_at_k, solve_buckets
from apps.gym.wires.pricing import known_cost
from apps.rollouts.metrics.attempt_groups import Groups, combine_groups, read_groups
from apps.rollouts.metrics.components import Component, ComponentFigures, combine_components, read_components
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.distributions import Distribution, Numbers
from apps.rollouts.metrics.labels import Facet, Labels, find_labels
from apps.rollouts.metrics.outcome_counts import (
    Outcome,
    add_up,
    combine_outcomes,
    count_by,
    mean_over,
    read_outcomes,
    read_rewards,
)
from apps.rollouts.metrics.task_ranges import TaskRange, whole
from apps.rollouts.models import Collection, Rollout


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of rollouts with one label.

    `rollouts` counts the planned rollouts, and `masked` those whose reward does not count. `missing` counts planned
    rollouts without a reward, for whatever reason.

    Means cover rewarded rollouts only; a failed rollout has no reward and does not count as zero. Durations are in
    seconds.

    `tasks` counts tasks with a reward. `standard_error` is that of the mean reward, and `confidence` its 95 % interval,
    both clustered by task (apps.gym.metrics.clustered_intervals). `pass_at_k` is keyed by k = 1, 2, 3, …; `groups` by
    never, sometimes and always solved; `tokens` by input and output. `no_answer` is the share of rewarded rollouts
    without a final answer. A figure is None if it cannot be computed yet.

    `average_of_k` and `majority_at_k` have the same keys as `pass_at_k` (apps.gym.metrics). `components` has the mean
    of each reward component, `component_figures` its other figures. `latency` has the mean seconds of a completed
    rollout by phase: model, tools, verify.
    """

    rollouts: int
    completed: int
    failed: int
    cancelled: int
    rewarded: int
    masked: int
    missing: int
    tasks: int
    mean_reward: float | None
    std: float | None
    median: float | None
    min_reward: float | None
    max_reward: float | None
    standard_error: float | None
    confidence: tuple[float, float] | None
    pass_at_1: float | None
    pass_at_k: dict[int, float]
    average_of_k: dict[int, float]
    majority_at_k: dict[int, float]
    no_answer: float | None
    groups: dict[str, int]
    stop_reasons: dict[str, int]
    errors: dict[str, int]
    components: dict[str, float]
    component_figures: list[ComponentFigures]
    tokens: dict[str, int]
    cost: float | None
    mean_turns: float | None
    mean_duration: float | None
    mean_tool_calls: float | None
    latency: dict[str, float]


class Part(msgspec.Struct, array_like=True):
    """Counts of one label's rollouts of some tasks. Figures are computed from all parts of a label."""

    outcomes: list[Outcome]
    rewards: Distribution
    groups: Groups
    components: dict[str, Component]


def read_parts(tasks: TaskRange, labels: Labels) -> dict[str, Part]:
    """Return a part for each label, in order, with a constant number of queries."""
    outcomes = read_outcomes(tasks, labels)
    rewards = read_rewards(tasks, labels)
    groups = read_groups(tasks, labels, {label: found.mean for label, found in rewards.items()})
    components = read_components(tasks, labels)
    return {
        label: Part(outcomes.get(label, []), rewards.get(label, Distribution()), groups[label], components[label])
        for label in labels.names
    }


def figure(parts: Sequence[Part], *, is_free: bool) -> Figures:
    """Return the figures of the parts together. Parts must have disjoint tasks."""
    outcomes = combine_outcomes(outcome for part in parts for outcome in part.outcomes)
    rewards = Numbers(part.rewards for part in parts)
    groups = combine_groups(part.groups for part in parts)
    components = combine_components([part.components for part in parts])
    statuses = count_by(outcomes, "status")
    completed = [row for row in outcomes if row["status"] == Rollout.Status.COMPLETED]
    failed = [row for row in outcomes if row["status"] == Rollout.Status.FAILED]
    passes = mean_pass_at_k(groups.solved)
    mean = mean_over(completed)
    squares = groups.deviations.about(rewards.mean).squares if rewards.size else 0.0
    tokens = {"input": add_up(outcomes, "input_sum"), "output": add_up(outcomes, "output_sum")}
    used = sum(tokens.values()) + add_up(outcomes, "judge_tokens_sum")
    return Figures(
        rollouts=sum(statuses.values()),
        completed=statuses.get(Rollout.Status.COMPLETED, 0),
        failed=statuses.get(Rollout.Status.FAILED, 0),
        cancelled=statuses.get(Rollout.Status.CANCELLED, 0),
        rewarded=rewards.size,
        masked=add_up(outcomes, "masked"),
        missing=sum(statuses.values()) - rewards.size,
        tasks=groups.count,
        mean_reward=rewards.mean if rewards.size else None,
        std=rewards.std if rewards.size else None,
        median=rewards.median if rewards.size else None,
        standard_error=standard_error_from(squares, rewards.size, groups.count) if rewards.size else None,
        confidence=rewards.interval(squares, groups.count),
        min_reward=rewards.low if rewards.size else None,
        max_reward=rewards.high if rewards.size else None,
        pass_at_1=passes.get(1),
        pass_at_k=passes,
        average_of_k=mean_average_of_k(groups.means),
        majority_at_k=mean_majority_at_k(groups.votes),
        no_answer=groups.silent / rewards.size if rewards.size else None,
        groups=solve_buckets(groups.solved),
        stop_reasons=count_by(completed, "stop_reason"),
        errors=count_by(failed, "error_kind"),
        components={each.name: each.mean for each in components},
        component_figures=components,
        tokens=tokens,
        cost=known_cost(math.fsum(row["cost_sum"] for row in outcomes), used, is_free=is_free),
        mean_turns=mean("turns_sum"),
        mean_tool_calls=mean("tool_calls_sum"),
        mean_duration=mean("duration_sum"),
        latency={phase: mean(f"{phase}_sum") or 0.0 for phase in ("model", "tools", "verify")} if completed else {},
    )


@dataclass(frozen=True, kw_only=True)
class LabelFigures(Figures):
    """Figures of one label. The label is empty for tasks or rollouts without one.

    A group is all attempts at one task; by model version, only the attempts that started with the same version.
    """

    label: str


class Breakdown(NamedTuple):
    """Figures by label, largest first, and the number of labels left out."""

    shares: list[LabelFigures]
    left_out: int


def break_down(collection: Collection, facet: Facet) -> Breakdown:
    """Return the figures by label. With the facet tag, a task counts for each of its tags."""
    with consistent_reads():
        labels = find_labels(collection, facet)
        parts = read_parts(whole(collection), labels)
    free = collection.policy_model.is_scripted
    shares = [LabelFigures(label=label, **fields_of(figure([part], is_free=free))) for label, part in parts.items()]
    return Breakdown(sorted(shares, key=lambda share: (-share.rollouts, share.label)), labels.left_out)


def fields_of(figures: Figures) -> dict[str, Any]:
    """Return the figures by name. Unlike `dataclasses.asdict`, this does not copy values."""
    return {field.name: getattr(figures, field.name) for field in dataclasses.fields(figures)}
