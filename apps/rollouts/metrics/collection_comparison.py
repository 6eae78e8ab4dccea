"""Compare two collections task by task: settings, mean difference, changed tasks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection

from apps.gym.metrics.paired_comparison import (
    MAX_PERMUTED,
    Interval,
    interval_from,
    mcnemar,
    permutation_from,
    permutation_test,
)
from apps.gym.request_refusals import Refusal
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.models import Collection
from apps.tasks.models import Task

SHOWN = 10
BINS = 10
SOLVES = 0.5
"""A collection solves a task if at least this share of its rewarded attempts reaches its solve threshold."""

# Tasks match by row within one dataset version, and by key across versions.
_PAIRED = """
    WITH rewarded AS (
        SELECT r.collection_id, {same} AS same, MIN(r.task_id) AS task_id, AVG(r.reward) AS mean,
            COUNT(*) AS size, SUM(CASE WHEN r.reward >= c.solve_threshold THEN 1 ELSE 0 END) AS hits,
            AVG(CASE WHEN r.reward >= c.solve_threshold THEN 1.0 ELSE 0.0 END) AS solved,
            MIN(r.reward) AS low, MAX(r.reward) AS high
        FROM rollouts_rollout r JOIN rollouts_collection c ON c.id = r.collection_id {join}
        WHERE r.collection_id IN (%s, %s) AND r.status = 'completed' AND r.reward IS NOT NULL {known}
        GROUP BY r.collection_id, {same}
    ),
    pairs AS MATERIALIZED (
        SELECT one.task_id AS one_task, other.task_id AS other_task, one.mean AS one_mean, other.mean AS other_mean,
            one.solved AS one_solved, other.solved AS other_solved, one.size AS one_size, one.hits AS one_hits,
            other.size AS other_size, other.hits AS other_hits, other.mean - one.mean AS difference,
            other.low AS other_low, other.high AS other_high
        FROM rewarded one JOIN rewarded other ON other.same = one.same
        WHERE one.collection_id = %s AND other.collection_id = %s
    )
"""
# All figures in one statement, because pairing a million rollouts takes most of the time. Each row has a name and
# numbers. Squares are of deviations from the mean, for precision. The grid has BINS + 1 positions per axis, centred on
# round values; rewards from 0 to 1 span the whole axis.
_FIGURES = """,
    ends AS (
        SELECT AVG(difference) AS mean, CASE WHEN MIN(one_mean) < MIN(other_mean) THEN MIN(one_mean)
            ELSE MIN(other_mean) END AS low, CASE WHEN MAX(one_mean) > MAX(other_mean) THEN MAX(one_mean)
            ELSE MAX(other_mean) END AS high
        FROM pairs
    ),
    frame AS (
        SELECT CASE WHEN low >= 0 AND high <= 1 THEN 0.0 ELSE low END AS low,
            CASE WHEN low >= 0 AND high <= 1 OR high = low THEN 1.0 ELSE high - low END / {bins} AS width
        FROM ends
    )
    SELECT 'all' AS part, COUNT(*) AS a, AVG(one_mean) AS b, AVG(other_mean) AS c, AVG(difference) AS d,
        SUM((difference - ends.mean) * (difference - ends.mean)) AS e,
        COUNT(CASE WHEN difference > 1e-9 THEN 1 END) AS f, COUNT(CASE WHEN difference < -1e-9 THEN 1 END) AS g,
        COUNT(CASE WHEN other_solved >= {solves} AND one_solved < {solves} THEN 1 END) AS h,
        COUNT(CASE WHEN other_solved < {solves} AND one_solved >= {solves} THEN 1 END) AS i
    FROM pairs, ends
    UNION ALL
    SELECT 'grid', MIN(low) + x * MIN(width), MIN(low) + y * MIN(width), COUNT(*), 0, 0, 0, 0, 0, 0 FROM (
        SELECT FLOOR((one_mean - low) / width + 0.5 + 1e-9) AS x, FLOOR((other_mean - low) / width + 0.5 + 1e-9) AS y,
            low, width
        FROM pairs, frame
    ) placed GROUP BY x, y
    UNION ALL
    SELECT * FROM (
        SELECT 'regressed', one_task, other_task, one_mean, other_mean, difference, 0, 0, 0, 0 FROM pairs
        WHERE difference < 0 ORDER BY difference, one_task LIMIT %s
    ) worst
    UNION ALL
    SELECT * FROM (
        SELECT 'improved', one_task, other_task, one_mean, other_mean, difference, 0, 0, 0, 0 FROM pairs
        WHERE difference > 0 ORDER BY difference DESC, one_task LIMIT %s
    ) best
"""
_SUMS = """,
    ends AS (SELECT AVG(difference) AS mean FROM pairs)
    SELECT COUNT(*), AVG(one_mean), AVG(other_mean), AVG(difference),
        SUM((difference - ends.mean) * (difference - ends.mean))
    FROM pairs, ends
"""
_DIFFERENCES = "SELECT difference FROM pairs ORDER BY one_task"


class GridCell(NamedTuple):
    """Number of tasks in one cell of the grid. `x` and `y` are the mean rewards at its centre."""

    x: float
    y: float
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task that both collections attempted. `difference` is the second mean reward minus the first."""

    task: int
    other_task: int
    prompt_excerpt: str
    mean_reward: float
    other_mean_reward: float
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Comparison over tasks with rewards in both collections. Differences are second minus first.

    `differs` maps dotted paths of settings to (first, second). `grid` counts tasks by both mean rewards. `interval` is
    the mean difference by task with its 95 % interval; None for fewer than five tasks. `p_value` is from the exact
    McNemar test of `newly_solved` against `no_longer_solved`, `permutation_p_value` from the paired permutation test of
    the mean rewards.
    """

    tasks: int
    mean_reward: float | None
    other_mean_reward: float | None
    interval: Interval | None
    improved: int
    regressed: int
    newly_solved: int
    no_longer_solved: int
    p_value: float
    permutation_p_value: float
    grid: list[GridCell]
    differs: dict[str, tuple[Any, Any]]
    regressions: list[Change]
    improvements: list[Change]


class PairStatistics(NamedTuple):
    """Means over tasks with rewards in both collections, and the sum of squared deviations of the difference."""

    tasks: int
    mean: float | None
    other_mean: float | None
    difference: float
    squares: float


class CannotContrast(Refusal, status=409, code="cannot-contrast"):
    """Raised if the two collections use different datasets."""


def check_contrast(one: Collection, other: Collection) -> None:
    """Raise CannotContrast for collections of different datasets."""
    if one.dataset_id != other.dataset_id:
        raise CannotContrast(
            f"{one.label} and {other.label} use different datasets ({one.dataset.slug} and "
            f"{other.dataset.slug}). Choose two collections of the same dataset."
        )


def contrast_collections(one: Collection, other: Collection) -> Contrast:
    """Raise CannotContrast for collections of different datasets."""
    check_contrast(one, other)
    pairs, given = pair_tasks(one, other)
    rows: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for part, *numbers in read_pairs(pairs + _FIGURES.format(solves=SOLVES, bins=BINS), [*given, SHOWN, SHOWN]):
        rows[part].append(numbers)
    count, mean, other_mean, difference, squares, improved, regressed, gained, lost = rows["all"][0]
    changes = [*rows["regressed"], *rows["improved"]]
    excerpts = dict(Task.objects.filter(pk__in=[row[1] for row in changes]).values_list("pk", "prompt_excerpt"))
    tasks = int(count)
    return Contrast(
        tasks=tasks,
        mean_reward=mean,
        other_mean_reward=other_mean,
        interval=None if difference is None else interval_from(tasks, difference, squares or 0.0),
        improved=int(improved),
        regressed=int(regressed),
        newly_solved=int(gained),
        no_longer_solved=int(lost),
        p_value=mcnemar(int(gained), int(lost)),
        permutation_p_value=_permutation(pairs, given, tasks, difference or 0.0, squares or 0.0),
        grid=[GridCell(float(x), float(y), int(here)) for x, y, here, *_ in rows["grid"]],
        differs=find_differences(one.snapshot, other.snapshot),
        regressions=sorted((_change(row, excerpts) for row in rows["regressed"]), key=_by_difference),
        improvements=sorted((_change(row, excerpts) for row in rows["improved"]), key=_by_difference),
    )


def find_differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    """Return {dotted path: (first, second)} of values that differ between two nested mappings. None: missing."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*one, *other}):
        where, left, right = f"{path}{name}", one.get(name), other.get(name)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found |= find_differences(left, right, f"{where}.")
        elif left != right:
            found[where] = (left, right)
    return found


def pair_tasks(one: Collection, other: Collection) -> tuple[str, list[Any]]:
    """Return the SQL of the CTE `pairs` (tasks with rewards in both collections) and its parameters."""
    if one.version_id == other.version_id:
        parts = {"same": "r.task_id", "join": "", "known": ""}
    else:
        parts = {"same": "t.key", "join": "JOIN tasks_task t ON t.id = r.task_id", "known": "AND t.key <> ''"}
    return _PAIRED.format(**parts), [one.pk, other.pk, one.pk, other.pk]


def measure_pairs(one: Collection, other: Collection) -> PairStatistics:
    pairs, given = pair_tasks(one, other)
    [(tasks, mean, other_mean, difference, squares)] = read_pairs(pairs + _SUMS, given)
    return PairStatistics(int(tasks), mean, other_mean, difference or 0.0, squares or 0.0)


def _permutation(pairs: str, given: list[Any], tasks: int, difference: float, squares: float) -> float:
    if tasks > MAX_PERMUTED:
        return permutation_from(tasks, difference, squares)
    return permutation_test([each for (each,) in read_pairs(pairs + _DIFFERENCES, given)])


def _change(row: Sequence[Any], excerpts: Mapping[int, str]) -> Change:
    task, other_task, mean, other_mean, difference, *_ = row
    return Change(
        task=int(task),
        other_task=int(other_task),
        prompt_excerpt=excerpts.get(int(other_task), ""),
        mean_reward=mean,
        other_mean_reward=other_mean,
        difference=difference,
    )


def _by_difference(change: Change) -> tuple[float, int]:
    """Sort key: largest absolute difference first."""
    return -abs(change.difference), change.task


def read_pairs(query: str, given: list[Any]) -> list[tuple[Any, ...]]:
    with consistent_reads(), connection.cursor() as cursor:
        cursor.execute(query, given)
        return list(cursor.fetchall())
