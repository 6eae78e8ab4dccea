"""Compute the figures of a collection with a few aggregate queries, without loading rollouts."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from apps.gym.metrics.best_of_k import mean_best_of_k
from apps.gym.metrics.first_k import FirstAttempts, combine_ordered, figures_of_first
from apps.gym.metrics.pass_at_k import bin_counts, histogram_edges
from apps.gym.setup_notices import SetupNotice
from apps.gym.training_ledger import Trainability
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.distributions import Bar, Numbers
from apps.rollouts.metrics.figure_blocks import read_whole_parts
from apps.rollouts.metrics.label_figures import Figures, fields_of, figure
from apps.rollouts.metrics.outcome_counts import Outcome, add_up
from apps.rollouts.metrics.trainable_rollouts import find_notices, measure_trainability
from apps.rollouts.metrics.whole_parts import CollectionPart
from apps.rollouts.models import Collection

LENGTH_BARS = 12


@dataclass(frozen=True, kw_only=True)
class CollectionMetrics(Figures):
    """Figures of a whole collection.

    `best_of_k` has the same keys as `pass_at_k` (apps.gym.metrics.best_of_k). `first_k` has the figures of the first k
    attempts (apps.gym.metrics.first_k). `judge` is None if no judge was called. `by_length` has the mean reward by
    number of output tokens. `trainability` says which rollouts and tokens may be trained on.
    `notices` are the set-up notices.
    """

    best_of_k: dict[int, float]
    first_k: list[FirstAttempts]
    histogram: list[dict[str, float | int]]
    tools: list["ToolFigures"]
    judge: "JudgeFigures | None"
    by_length: list["LengthBar"]
    trainability: Trainability
    notices: list[SetupNotice]


@dataclass(frozen=True, kw_only=True)
class JudgeFigures:
    """Figures of the judge of a collection.

    `failed` rollouts have no reward because of the judge; `contradicted` of them had contradictory verdicts.
    `agreement` is the share of comparisons with the same verdict in both orders; None without comparisons.
    """

    calls: int
    tokens: int
    failed: int
    contradicted: int
    agreement: float | None


@dataclass(frozen=True, kw_only=True)
class ToolFigures:
    """Calls of one tool over all completed rollouts. `mean_duration` is in seconds, None if the agents ran them."""

    name: str
    rollouts: int
    calls: int
    errors: int
    mean_duration: float | None


@dataclass(frozen=True, kw_only=True)
class LengthBar:
    """Rewarded rollouts with output tokens in [low, high]."""

    low: int
    high: int
    count: int
    mean_reward: float


def measure_collection(collection: Collection) -> CollectionMetrics:
    """Return the current figures. Unchanged blocks of tasks are not counted again."""
    with consistent_reads():
        return _measure(collection, read_whole_parts(collection))


def _measure(collection: Collection, parts: Sequence[CollectionPart]) -> CollectionMetrics:
    figures = figure([each.part for each in parts], is_free=collection.policy_model.is_scripted)
    attempts = combine_ordered(each.attempts for each in parts)
    outcomes = [outcome for each in parts for outcome in each.part.outcomes]
    return CollectionMetrics(
        **fields_of(figures),
        best_of_k=mean_best_of_k(attempts.ranks),
        first_k=figures_of_first(attempts),
        histogram=_histogram(Numbers(each.part.rewards for each in parts)),
        tools=_tools(parts),
        judge=_judge_figures(collection, outcomes, rewarded=figures.rewarded),
        by_length=_by_length(
            Numbers(each.lengths for each in parts), max((row["longest"] or 0 for row in outcomes), default=0)
        ),
        trainability=measure_trainability(collection, outcomes),
        notices=find_notices(collection, outcomes),
    )


def _judge_figures(collection: Collection, outcomes: list[Outcome], *, rewarded: int) -> JudgeFigures | None:
    judge = collection.snapshot.get("environment", {}).get("judge")
    calls, failed = (
        add_up(outcomes, "judge_calls_sum"),
        add_up([row for row in outcomes if row["error_kind"] == "judge_error"], "count"),
    )
    if not judge and not calls and not failed:
        return None
    contradicted = add_up(outcomes, "contradicted")
    compared = rewarded + contradicted
    asks_both = bool(judge) and judge["settings"].get("question", "score") != "score"
    return JudgeFigures(
        calls=calls,
        tokens=add_up(outcomes, "judge_tokens_sum"),
        failed=failed,
        contradicted=contradicted,
        agreement=rewarded / compared if asks_both and compared else None,
    )


def _histogram(rewards: Numbers) -> list[dict[str, float | int]]:
    if not rewards.size:
        return []
    edges = histogram_edges(rewards.low, rewards.high)
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    counts: Counter[int] = Counter()
    # The tolerance puts a reward on an edge into the upper bar: 0.3 / 0.1 is 2.9999999999999996.
    for bar in rewards.bars(lambda reward: math.floor((reward - edges[0]) / width + 1e-9)):
        counts[min(bar.place, len(edges) - 2)] += bar.count
    return bin_counts(edges, counts)


def _by_length(lengths: Numbers, longest: int) -> list[LengthBar]:
    """Return histogram bars of equal width by output tokens, without empty bars."""
    if not longest:
        return []
    found: dict[int, list[Bar]] = defaultdict(list)
    for bar in lengths.bars(lambda tokens: int(tokens) * LENGTH_BARS // (longest + 1)):
        found[bar.place].append(bar)
    return [_length_bar(found[place]) for place in sorted(found)]


def _length_bar(bars: Sequence[Bar]) -> LengthBar:
    count = sum(bar.count for bar in bars)
    return LengthBar(
        low=int(min(bar.low for bar in bars)),
        high=int(max(bar.high for bar in bars)),
        count=count,
        mean_reward=math.fsum(bar.total for bar in bars) / count,
    )


def _tools(parts: Sequence[CollectionPart]) -> list[ToolFigures]:
    """Return the tools, most called first."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    for each in parts:
        for name, found in each.tools.items():
            sums[name] = [before + more for before, more in zip(sums[name], found, strict=True)]
    return [
        ToolFigures(
            name=name,
            rollouts=int(rollouts),
            calls=int(calls),
            errors=int(errors),
            mean_duration=seconds / calls if seconds else None,
        )
        for name, (rollouts, calls, errors, seconds) in sorted(sums.items(), key=lambda tool: (-tool[1][1], tool[0]))
    ]
