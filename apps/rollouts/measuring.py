"""The figures of a collection, from a handful of aggregate queries: no rollout is loaded to measure it."""

from collections import Counter
from dataclasses import dataclass

from django.db import connection
from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Floor

from apps.gym.judging.judge import CONTRADICTION
from apps.gym.metrics import (
    SOLVED,
    Group,
    bin_counts,
    clustered_standard_error,
    confidence_interval,
    histogram_edges,
    mean_pass_at_k,
    sample_std,
    solve_buckets,
)
from apps.rollouts.models import Collection, Rollout

_COMPONENT_MEANS = {
    "sqlite": """
        SELECT part.key, AVG(part.value) FROM rollouts_rollout, json_each(rollouts_rollout.components) AS part
        WHERE rollouts_rollout.collection_id = %s AND rollouts_rollout.status = 'completed'
        GROUP BY part.key ORDER BY part.key
    """,
    "postgresql": """
        SELECT part.key, AVG(part.value::float8)
        FROM rollouts_rollout, jsonb_each_text(rollouts_rollout.components) AS part
        WHERE rollouts_rollout.collection_id = %s AND rollouts_rollout.status = 'completed'
        GROUP BY part.key ORDER BY part.key
    """,
}


@dataclass(frozen=True, kw_only=True)
class CollectionMetrics:
    """Rewards count where there is one: a failed rollout has none and is no zero. Durations are seconds.

    `confidence` is the 95 % interval of the mean reward; `pass_at_k` is keyed by k = 1, 2, 4, …; `groups` by never,
    sometimes, always solved; `tokens` by input and output; `judge` is None where none was asked. Every figure that
    cannot be known yet is None.
    """

    rollouts: int
    completed: int
    failed: int
    cancelled: int
    rewarded: int
    mean_reward: float | None
    std: float | None
    confidence: tuple[float, float] | None
    min_reward: float | None
    max_reward: float | None
    pass_at_1: float | None
    pass_at_k: dict[int, float]
    groups: dict[str, int]
    histogram: list[dict[str, float | int]]
    stop_reasons: dict[str, int]
    errors: dict[str, int]
    components: dict[str, float]
    tokens: dict[str, int]
    judge: "JudgeFigures | None"
    mean_turns: float | None
    mean_tool_calls: float | None
    mean_duration: float | None


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


def measure_collection(collection: Collection) -> CollectionMetrics:
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    statuses = _count_by(rollouts, "status")
    completed = rollouts.completed()
    rewarded = rollouts.rewarded()
    sums = rewarded.aggregate(count=Count("id"), mean=Avg("reward"), low=Min("reward"), high=Max("reward"))
    work = completed.aggregate(turns=Avg("turns"), tool_calls=Avg("tool_calls"), duration=Avg("duration"))
    judge_failed = Q(error_kind="judge_error")
    used = rollouts.aggregate(
        input=Sum("input_tokens", default=0),
        output=Sum("output_tokens", default=0),
        calls=Sum("judge_calls", default=0),
        judge_tokens=Sum("judge_tokens", default=0),
        failed=Count("id", filter=judge_failed),
        contradicted=Count("id", filter=judge_failed & Q(error_message__contains=CONTRADICTION)),
    )
    average = sums["mean"]
    groups = _reward_groups(rewarded)
    shapes = Counter((group.size, group.solved) for group in groups)
    passes = mean_pass_at_k(shapes)
    error = None if average is None else clustered_standard_error(groups, average)
    return CollectionMetrics(
        rollouts=sum(statuses.values()),
        completed=statuses.get(Rollout.Status.COMPLETED, 0),
        failed=statuses.get(Rollout.Status.FAILED, 0),
        cancelled=statuses.get(Rollout.Status.CANCELLED, 0),
        rewarded=sums["count"],
        mean_reward=average,
        std=None if average is None else _spread(rewarded, sums["count"], average),
        confidence=None if average is None or error is None else confidence_interval(average, error),
        min_reward=sums["low"],
        max_reward=sums["high"],
        pass_at_1=passes.get(1),
        pass_at_k=passes,
        groups=solve_buckets(shapes),
        histogram=[] if average is None else _histogram(rewarded, sums["low"], sums["high"]),
        stop_reasons=_count_by(completed, "stop_reason"),
        errors=_count_by(rollouts.filter(status=Rollout.Status.FAILED), "error_kind"),
        components=_component_means(collection),
        tokens={"input": used["input"], "output": used["output"]},
        judge=_judge_figures(collection, used, rewarded=sums["count"]),
        mean_turns=work["turns"],
        mean_tool_calls=work["tool_calls"],
        mean_duration=work["duration"],
    )


def _judge_figures(collection: Collection, used: dict[str, int], *, rewarded: int) -> JudgeFigures | None:
    judge = collection.snapshot.get("environment", {}).get("judge")
    if not judge and not used["calls"] and not used["failed"]:
        return None
    compared = rewarded + used["contradicted"]
    asks_both = bool(judge) and judge["settings"].get("question", "score") != "score"
    return JudgeFigures(
        calls=used["calls"],
        tokens=used["judge_tokens"],
        failed=used["failed"],
        contradicted=used["contradicted"],
        agreement=rewarded / compared if asks_both and compared else None,
    )


def _count_by(rollouts: QuerySet[Rollout], field: str) -> dict[str, int]:
    return dict(rollouts.values_list(field).annotate(count=Count("id")).order_by("-count", field))


def _reward_groups(rewarded: QuerySet[Rollout]) -> list[Group]:
    """One row a task; small tuples, since a collection may hold a hundred thousand tasks."""
    rows = (
        rewarded.values("task_id")
        .annotate(size=Count("id"), solved=Count("id", filter=Q(reward__gte=SOLVED)), total=Sum("reward"))
        .values_list("size", "solved", "total")
    )
    return [Group(*row) for row in rows.iterator(chunk_size=2000)]


def _spread(rewarded: QuerySet[Rollout], count: int, average: float) -> float | None:
    """In a second pass over the rewards: the one-pass formula loses its digits where rewards are large and close."""
    deviation = F("reward") - average
    return sample_std(count, rewarded.aggregate(total=Sum(deviation * deviation, default=0.0))["total"])


def _histogram(rewarded: QuerySet[Rollout], low: float, high: float) -> list[dict[str, float | int]]:
    edges = histogram_edges(low, high)
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    # The tolerance keeps a reward that is an edge in the bar above it: 0.3 / 0.1 is 2.9999999999999996.
    place = Floor((F("reward") - edges[0]) / width + 1e-9)
    counts: Counter[int] = Counter()
    for index, count in rewarded.values_list(place).annotate(count=Count("id")):
        counts[min(int(index), len(edges) - 2)] += count
    return bin_counts(edges, counts)


def _component_means(collection: Collection) -> dict[str, float]:
    with connection.cursor() as cursor:
        cursor.execute(_COMPONENT_MEANS[connection.vendor], [collection.pk])
        return {str(name): float(average) for name, average in cursor.fetchall()}
