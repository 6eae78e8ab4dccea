"""The figures of a collection, from a handful of aggregate queries: no rollout is loaded to measure it."""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

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
    """The figures of all rollouts, and what there is of a whole collection alone: `judge` is None where none was asked,
    `by_length` are bars of the output tokens with the mean reward in each."""

    histogram: list[dict[str, float | int]]
    tools: list["ToolFigures"]
    judge: "JudgeFigures | None"
    by_length: list["LengthBar"]


@dataclass(frozen=True, kw_only=True)
class JudgeFigures:
    """What a judge did for a collection. `failed` rollouts have no reward because of it, those among them whose judge
    contradicted itself are `contradicted`. `agreement` is how often both orders were answered alike, of all
    comparisons that both were answered in; None where nothing was compared."""

    calls: int
    tokens: int
    failed: int
    contradicted: int
    agreement: float | None


@dataclass(frozen=True, kw_only=True)
class ToolFigures:
    """The calls of one tool over all completed rollouts; `mean_duration` is seconds a call."""

    name: str
    rollouts: int
    calls: int
    errors: int
    mean_duration: float


@dataclass(frozen=True, kw_only=True)
class LengthBar:
    """Rewarded rollouts whose output tokens are in [low, high]."""

    low: int
    high: int
    count: int
    mean_reward: float


def measure_collection(collection: Collection) -> CollectionMetrics:
    with consistent_reads():
        return _measure(collection)


def _measure(collection: Collection) -> CollectionMetrics:
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
    # The tolerance keeps a reward that is an edge in the bar above it: 0.3 / 0.1 is 2.9999999999999996.
    place = Floor((F("reward") - edges[0]) / width + 1e-9)
    counts: Counter[int] = Counter()
    rewarded = Rollout.objects.filter(collection=collection).rewarded().order_by()
    for index, count in rewarded.values_list(place).annotate(count=Count("id")):
        counts[min(int(index), len(edges) - 2)] += count
    return bin_counts(edges, counts)


def _read_lengths(collection: Collection, longest: int) -> list[LengthBar]:
    """The rewarded rollouts in bars of equal width by output tokens; bars that hold none are left out."""
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
    """The most called first."""
    return [
        ToolFigures(name=name, rollouts=rollouts, calls=calls, errors=errors, mean_duration=seconds / calls)
        for name, rollouts, calls, errors, seconds in _rows(_TOOLS, collection)
    ]


def _rows(queries: dict[str, str], collection: Collection) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(queries[connection.vendor], [collection.pk])
        return list(cursor.fetchall())
