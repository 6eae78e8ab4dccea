"""Compute the figures of a collection with a few aggregate queries, without loading rollouts."""

import dataclasses
from collections import Counter
from dataclasses import dataclass

from django.db import connection
from django.db.models import Avg, Count, F, Max, Min
from django.db.models.functions import Floor

from apps.gym.metrics.pass_at_k import bin_counts, histogram_edges
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.metrics.label_figures import Figures, figure
from apps.rollouts.metrics.labels import all_under_one
from apps.rollouts.metrics.outcomes import Outcome, add_up
from apps.rollouts.models import Collection, Rollout

LENGTH_BARS = 12

_TOOLS = {
    "sqlite": """
        SELECT part.key, COUNT(*), SUM(part.value->>0), SUM(part.value->>1), SUM(part.value->>2)
        FROM rollouts_rollout, json_each(rollouts_rollout.tools) AS part
        WHERE rollouts_rollout.collection_id = %s AND rollouts_rollout.status = 'completed'
        GROUP BY part.key ORDER BY 3 DESC, 1
    """,
    "postgresql": """
        SELECT part.key, COUNT(*), SUM((part.value->>0)::bigint)::bigint, SUM((part.value->>1)::bigint)::bigint,
            SUM((part.value->>2)::float8)
        FROM rollouts_rollout, jsonb_each(rollouts_rollout.tools) AS part
        WHERE rollouts_rollout.collection_id = %s AND rollouts_rollout.status = 'completed'
        GROUP BY part.key ORDER BY 3 DESC, 1
    """,
}


@dataclass(frozen=True, kw_only=True)
class CollectionMetrics(Figures):
    """Figures of a whole collection.

    `judge` is None if no judge was called. `by_length` has the mean reward by number of output tokens.
    """

    histogram: list[dict[str, float | int]]
    tools: list["ToolFigures"]
    judge: "JudgeFigures | None"
    by_length: list["LengthBar"]


@dataclass(frozen=True, kw_only=True)
class JudgeFigures:
    """Figures of the judge of a collection.

    `failed` rollouts have no reward because of the judge; `contradicted` of them had contradictory verdicts.
    `agreement` is the share of comparisons with the same verdict in both orders, or None without comparisons.
    """

    calls: int
    tokens: int
    failed: int
    contradicted: int
    agreement: float | None


@dataclass(frozen=True, kw_only=True)
class ToolFigures:
    """Calls of one tool over all completed rollouts. `mean_duration` is in seconds per call."""

    name: str
    rollouts: int
    calls: int
    errors: int
    mean_duration: float


@dataclass(frozen=True, kw_only=True)
class LengthBar:
    """Rewarded rollouts with output tokens in [low, high]."""

    low: int
    high: int
    count: int
    mean_reward: float


def measure_collection(collection: Collection) -> CollectionMetrics:
    with consistent_reads():
        (part,) = figure(collection, all_under_one())
        figures = part.figures
        return CollectionMetrics(
            **{field.name: getattr(figures, field.name) for field in dataclasses.fields(figures)},
            histogram=_histogram(collection, figures.min_reward, figures.max_reward),
            tools=_read_tools(collection),
            judge=_judge_figures(collection, part.outcomes, rewarded=figures.rewarded),
            by_length=_read_lengths(collection, max((row["longest"] or 0 for row in part.outcomes), default=0)),
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


def _histogram(collection: Collection, low: float | None, high: float | None) -> list[dict[str, float | int]]:
    if low is None or high is None:
        return []
    edges = histogram_edges(low, high)
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    # The tolerance keeps a reward on an edge in the bar above it: 0.3 / 0.1 is 2.9999999999999996.
    place = Floor((F("reward") - edges[0]) / width + 1e-9)
    counts: Counter[int] = Counter()
    rewarded = Rollout.objects.filter(collection=collection).rewarded().order_by()
    for index, count in rewarded.values_list(place).annotate(count=Count("id")):
        counts[min(int(index), len(edges) - 2)] += count
    return bin_counts(edges, counts)


def _read_lengths(collection: Collection, longest: int) -> list[LengthBar]:
    """Return rewarded rollouts in bars of equal width by output tokens, without empty bars."""
    if not longest:
        return []
    rewarded = Rollout.objects.filter(collection=collection).rewarded().order_by()
    place = F("output_tokens") * LENGTH_BARS / (longest + 1)
    rows = rewarded.values_list(place).annotate(
        low=Min("output_tokens"), high=Max("output_tokens"), count=Count("id"), mean=Avg("reward")
    )
    bars = [LengthBar(low=low, high=high, count=count, mean_reward=mean) for _, low, high, count, mean in rows]
    return sorted(bars, key=lambda bar: bar.low)


def _read_tools(collection: Collection) -> list[ToolFigures]:
    """Return the tools, most called first."""
    with connection.cursor() as cursor:
        cursor.execute(_TOOLS[connection.vendor], [collection.pk])
        return [
            ToolFigures(name=name, rollouts=rollouts, calls=calls, errors=errors, mean_duration=seconds / calls)
            for name, rollouts, calls, errors, seconds in cursor.fetchall()
        ]
