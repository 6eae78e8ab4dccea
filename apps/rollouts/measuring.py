"""The figures of a collection, from a handful of aggregate queries: no rollout is loaded to measure it."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from django.db import connection
from django.db.models import Avg, Count, F, Max, Min, Q, Sum
from django.db.models.functions import Floor

from apps.gym.judging.judge import CONTRADICTION
from apps.gym.metrics import (
    bin_counts,
    confidence_interval,
    histogram_edges,
    mean_average_of_k,
    mean_pass_at_k,
    sample_std,
    solve_buckets,
    standard_error_from,
)
from apps.gym.voting import mean_majority_at_k
from apps.rollouts.grouping import read_groups, room_to_group
from apps.rollouts.models import Collection, Rollout

LENGTH_BARS = 12

# Verifiers give few different sets of components, so the database counts sets, not their values one by one. Where they
# are many after all, as with times among them, it is a row for each that comes back.
_COMPONENT_SETS = """
    SELECT components, COUNT(*) FROM rollouts_rollout
    WHERE collection_id = %s AND status = 'completed' GROUP BY components
"""
_CLUSTERED = """
    SELECT {totals} FROM (
        SELECT {sums} FROM rollouts_rollout WHERE collection_id = %s AND status = 'completed' GROUP BY task_id
    ) groups
"""
_COMPONENTS_A_QUERY = 20
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
class CollectionMetrics:
    """Rewards count where there is one: a failed rollout has none and is no zero. Durations are seconds.

    `confidence` is the 95 % interval of the mean reward; `pass_at_k` is keyed by k = 1, 2, 4, …; `groups` by never,
    sometimes, always solved; `tokens` by input and output; `judge` is None where none was asked. Every figure that
    cannot be known yet is None.

    `average_of_k` and `majority_at_k` are keyed like `pass_at_k` (apps.gym.metrics, apps.gym.voting). `components` has
    the mean of each reward component, `component_figures` the rest of what is known of it. `latency` is the mean of a
    completed rollout's seconds by phase: model, tools, verify. `by_length` are bars of the output tokens with the mean
    reward in each.
    """

    rollouts: int
    completed: int
    failed: int
    cancelled: int
    rewarded: int
    mean_reward: float | None
    std: float | None
    median: float | None
    confidence: tuple[float, float] | None
    min_reward: float | None
    max_reward: float | None
    pass_at_1: float | None
    pass_at_k: dict[int, float]
    average_of_k: dict[int, float]
    majority_at_k: dict[int, float]
    groups: dict[str, int]
    histogram: list[dict[str, float | int]]
    stop_reasons: dict[str, int]
    errors: dict[str, int]
    components: dict[str, float]
    component_figures: list["ComponentFigures"]
    tools: list["ToolFigures"]
    tokens: dict[str, int]
    cost: float
    judge: "JudgeFigures | None"
    mean_turns: float | None
    mean_tool_calls: float | None
    mean_duration: float | None
    latency: dict[str, float]
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
class ComponentFigures:
    """A named component of the reward over all completed rollouts that have it. `confidence` as for the reward."""

    name: str
    count: int
    mean: float
    std: float | None
    median: float
    confidence: tuple[float, float] | None


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
    with room_to_group():
        return _measure(collection)


def _measure(collection: Collection) -> CollectionMetrics:
    outcomes = _read_outcomes(collection)
    statuses = _count_by(outcomes, "status")
    completed = [row for row in outcomes if row["status"] == Rollout.Status.COMPLETED]
    failed = [row for row in outcomes if row["status"] == Rollout.Status.FAILED]
    spread = _read_spread(collection, outcomes)
    groups = read_groups(collection.pk, spread.mean)
    passes = mean_pass_at_k(groups.solved)
    error = None if spread.mean is None else standard_error_from(groups.squares, spread.size, groups.known)
    mean = _mean_over(completed)
    components = _read_components(collection)
    return CollectionMetrics(
        rollouts=sum(statuses.values()),
        completed=statuses.get(Rollout.Status.COMPLETED, 0),
        failed=statuses.get(Rollout.Status.FAILED, 0),
        cancelled=statuses.get(Rollout.Status.CANCELLED, 0),
        rewarded=spread.size,
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
        histogram=_histogram(collection, spread),
        stop_reasons=_count_by(completed, "stop_reason"),
        errors=_count_by(failed, "error_kind"),
        components={each.name: each.mean for each in components},
        component_figures=components,
        tools=_read_tools(collection),
        tokens={"input": _sum(outcomes, "input_sum"), "output": _sum(outcomes, "output_sum")},
        cost=math.fsum(row["cost_sum"] for row in outcomes),
        judge=_judge_figures(collection, outcomes, rewarded=spread.size),
        mean_turns=mean("turns_sum"),
        mean_tool_calls=mean("tool_calls_sum"),
        mean_duration=mean("duration_sum"),
        latency={phase: mean(f"{phase}_sum") or 0.0 for phase in ("model", "tools", "verify")} if completed else {},
        by_length=_read_lengths(collection, max((row["longest"] or 0 for row in outcomes), default=0)),
    )


def _read_outcomes(collection: Collection) -> list[dict[str, Any]]:
    """One row for each way in which rollouts ended, with the sums of what they used: one pass over the collection."""
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    rows: Iterable[Any] = rollouts.values("status", "stop_reason", "error_kind").annotate(
        count=Count("id"),
        rewarded=Count("reward"),
        reward_sum=Sum("reward"),
        low=Min("reward"),
        high=Max("reward"),
        input_sum=Sum("input_tokens"),
        output_sum=Sum("output_tokens"),
        cost_sum=Sum("cost"),
        judge_calls_sum=Sum("judge_calls"),
        judge_tokens_sum=Sum("judge_tokens"),
        turns_sum=Sum("turns"),
        tool_calls_sum=Sum("tool_calls"),
        duration_sum=Sum("duration"),
        model_sum=Sum("model_time"),
        tools_sum=Sum("tool_time"),
        verify_sum=Sum("verify_time"),
        contradicted=Count("id", filter=Q(error_kind="judge_error", error_message__contains=CONTRADICTION)),
        longest=Max("output_tokens", filter=Q(reward__isnull=False)),
    )
    return list(rows)


class _Spread(NamedTuple):
    size: int
    mean: float | None = None
    std: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None


def _read_spread(collection: Collection, outcomes: list[dict[str, Any]]) -> _Spread:
    """The second moment in a second pass: the one-pass formula loses its digits where rewards are large and close."""
    count = _sum(outcomes, "rewarded")
    if not count:
        return _Spread(0)
    having = [row for row in outcomes if row["rewarded"]]
    mean = math.fsum(row["reward_sum"] for row in having) / count
    rewarded = Rollout.objects.filter(collection=collection).rewarded().order_by()
    deviation = F("reward") - mean
    squares = rewarded.aggregate(total=Sum(deviation * deviation, default=0.0))["total"]
    middle = rewarded.order_by("reward").values_list("reward", flat=True)[(count - 1) // 2 : count // 2 + 1]
    return _Spread(
        count,
        mean,
        sample_std(count, squares),
        statistics.mean(reward for reward in middle if reward is not None),
        min(row["low"] for row in having),
        max(row["high"] for row in having),
    )


def _mean_over(completed: list[dict[str, Any]]) -> Callable[[str], float | None]:
    count = _sum(completed, "count")
    return lambda field: math.fsum(row[field] for row in completed) / count if count else None


def _sum(outcomes: list[dict[str, Any]], field: str) -> int:
    return int(sum(row[field] or 0 for row in outcomes))


def _count_by(outcomes: list[dict[str, Any]], field: str) -> dict[str, int]:
    """The most frequent first."""
    counts: Counter[str] = Counter()
    for row in sorted(outcomes, key=lambda row: str(row[field])):
        counts[row[field]] += row["count"]
    return dict(counts.most_common())


def _judge_figures(collection: Collection, outcomes: list[dict[str, Any]], *, rewarded: int) -> JudgeFigures | None:
    judge = collection.snapshot.get("environment", {}).get("judge")
    calls, failed = (
        _sum(outcomes, "judge_calls_sum"),
        _sum([row for row in outcomes if row["error_kind"] == "judge_error"], "count"),
    )
    if not judge and not calls and not failed:
        return None
    contradicted = _sum(outcomes, "contradicted")
    compared = rewarded + contradicted
    asks_both = bool(judge) and judge["settings"].get("question", "score") != "score"
    return JudgeFigures(
        calls=calls,
        tokens=_sum(outcomes, "judge_tokens_sum"),
        failed=failed,
        contradicted=contradicted,
        agreement=rewarded / compared if asks_both and compared else None,
    )


def _histogram(collection: Collection, spread: _Spread) -> list[dict[str, float | int]]:
    if spread.low is None or spread.high is None:
        return []
    edges = histogram_edges(spread.low, spread.high)
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


def _read_components(collection: Collection) -> list[ComponentFigures]:
    with connection.cursor() as cursor:
        cursor.execute(_COMPONENT_SETS, [collection.pk])
        values: dict[str, Counter[float]] = defaultdict(Counter)
        for found, count in cursor.fetchall():
            for name, value in (orjson.loads(found) if isinstance(found, str) else found).items():
                values[name][float(value)] += count
    means = {
        name: math.fsum(value * count for value, count in found.items()) / found.total()
        for name, found in values.items()
    }
    clustered = _read_clustered(collection, means)
    return [_component(name, values[name], means[name], *clustered[name]) for name in sorted(values)]


def _component(name: str, values: Counter[float], mean: float, groups: int, squares: float) -> ComponentFigures:
    count = values.total()
    error = standard_error_from(squares, count, groups)
    return ComponentFigures(
        name=name,
        count=count,
        mean=mean,
        std=sample_std(count, math.fsum((value - mean) ** 2 * times for value, times in values.items())),
        median=_median(values),
        confidence=None if error is None else confidence_interval(mean, error),
    )


def _median(values: Counter[float]) -> float:
    """Of counted values."""
    low, high = (values.total() - 1) // 2, values.total() // 2
    passed, found = 0, []
    for value in sorted(values):
        found += [value] * ((passed <= low < passed + values[value]) + (passed <= high < passed + values[value]))
        passed += values[value]
    return statistics.mean(found)


def _read_clustered(collection: Collection, means: dict[str, float]) -> dict[str, tuple[int, float]]:
    """For each component how many tasks have it, and the sum of their squared deviations from its mean."""
    names = list(means)
    found: dict[str, tuple[int, float]] = {}
    for start in range(0, len(names), _COMPONENTS_A_QUERY):
        chunk = names[start : start + _COMPONENTS_A_QUERY]
        values = [_member(name) for name in chunk]
        sums = ", ".join(f"SUM({value} - %s) AS d{place}" for place, (value, _) in enumerate(values))
        totals = ", ".join(f"COUNT(d{place}), SUM(d{place} * d{place})" for place in range(len(chunk)))
        given: list[Any] = [each for name, (_, key) in zip(chunk, values, strict=True) for each in (key, means[name])]
        with connection.cursor() as cursor:
            cursor.execute(_CLUSTERED.format(totals=totals, sums=sums), [*given, collection.pk])
            numbers = cursor.fetchone()
        found |= {name: (numbers[2 * place], numbers[2 * place + 1]) for place, name in enumerate(chunk)}
    return found


def _member(name: str) -> tuple[str, str]:
    """How the database reads a component, and what it is to be given for that."""
    if connection.vendor == "postgresql":
        return "(components->>%s)::float8", name
    quoted = orjson.dumps(name).decode()
    if name.isascii() and quoted == f'"{name}"':
        return "json_extract(components, %s)", f"$.{quoted}"
    # A quote, a backslash or a line end has no form in SQLite's paths that every version of it reads.
    return "(SELECT part.value FROM json_each(components) AS part WHERE part.key = %s)", name


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
