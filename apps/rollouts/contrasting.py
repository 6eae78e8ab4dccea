"""Contrast two collections task by task: which settings differ, is one better, and on which tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection

from apps.gym.comparisons import MAX_RESAMPLED, Interval, interval_from, mcnemar, paired_bootstrap
from apps.gym.metrics import SOLVED
from apps.rollouts.models import Collection

SHOWN = 10
SOLVES = 0.5
"""A task counts as solved by a collection where at least this share of its rewarded attempts has full marks."""

# The same task is the same row within one version of a dataset, and the same key across versions.
_PAIRED = """
    WITH rewarded AS (
        SELECT r.collection_id, {same} AS same, MIN(r.task_id) AS task_id, AVG(r.reward) AS mean,
            AVG(CASE WHEN r.reward >= {solved} THEN 1.0 ELSE 0.0 END) AS solved
        FROM rollouts_rollout r {join}
        WHERE r.collection_id IN (%s, %s) AND r.status = 'completed' AND r.reward IS NOT NULL {known}
        GROUP BY r.collection_id, {same}
    ),
    pairs AS (
        SELECT one.task_id AS one_task, other.task_id AS other_task, one.mean AS one_mean, other.mean AS other_mean,
            one.solved AS one_solved, other.solved AS other_solved, other.mean - one.mean AS difference
        FROM rewarded one JOIN rewarded other ON other.same = one.same
        WHERE one.collection_id = %s AND other.collection_id = %s
    )
"""
_TOTALS = """
    SELECT COUNT(*), AVG(one_mean), AVG(other_mean), AVG(difference), MIN(one_mean), MIN(other_mean), MAX(one_mean),
        MAX(other_mean),
        COUNT(CASE WHEN difference > 1e-9 THEN 1 END), COUNT(CASE WHEN difference < -1e-9 THEN 1 END),
        COUNT(CASE WHEN other_solved >= {solves} AND one_solved < {solves} THEN 1 END),
        COUNT(CASE WHEN other_solved < {solves} AND one_solved >= {solves} THEN 1 END)
    FROM pairs
"""
_SQUARES = "SELECT SUM((difference - %s) * (difference - %s)) FROM pairs"
_DIFFERENCES = "SELECT difference FROM pairs ORDER BY one_task"
_MOST = """
    SELECT one_task, other_task, one_mean, other_mean, difference, t.prompt_excerpt
    FROM pairs JOIN tasks_task t ON t.id = other_task
    WHERE difference {sign} 0 ORDER BY difference {order}, one_task LIMIT %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A task that both collections attempted; `difference` is the mean reward of the second less that of the first."""

    task: int
    other_task: int
    prompt_excerpt: str
    mean_reward: float
    other_mean_reward: float
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Of the tasks that both collections have rewards for. Differences are those of the second from the first.

    `low` and `high` are the ends of all mean rewards. `differs` has the settings that are not the same, as (first,
    second) by their path. `interval` is the mean
    difference by task with its 95 % interval, None for fewer than two tasks. `newly_solved` and `no_longer_solved`
    tasks are what `p_value` (McNemar, exact) is of.
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
    low: float | None
    high: float | None
    differs: dict[str, tuple[Any, Any]]
    regressions: list[Change]
    improvements: list[Change]


class CannotContrast(Exception):
    """The two collections have no task in common that could be compared."""


def check_contrast(one: Collection, other: Collection) -> None:
    """Raises CannotContrast for collections of different datasets."""
    if one.dataset_id != other.dataset_id:
        raise CannotContrast(
            f"{one.label} and {other.label} are of different datasets ({one.dataset.slug} and {other.dataset.slug}): "
            "choose two of the same."
        )


def contrast_collections(one: Collection, other: Collection) -> Contrast:
    """Raises CannotContrast for collections of different datasets."""
    check_contrast(one, other)
    pairs, given = pair_tasks(one, other)
    (row,) = read_pairs(pairs + _TOTALS.format(solves=SOLVES), given)
    tasks, mean, other_mean, difference, *ends, improved, regressed, gained, lost = row
    return Contrast(
        tasks=tasks,
        mean_reward=mean,
        other_mean_reward=other_mean,
        interval=_interval(pairs, given, tasks, difference),
        improved=improved,
        regressed=regressed,
        newly_solved=gained,
        no_longer_solved=lost,
        p_value=mcnemar(gained, lost),
        low=min(ends[:2]) if tasks else None,
        high=max(ends[2:]) if tasks else None,
        differs=find_differences(one.snapshot, other.snapshot),
        regressions=_most(pairs, given, sign="<", order="ASC"),
        improvements=_most(pairs, given, sign=">", order="DESC"),
    )


def find_differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    """The values that are not the same in two nested mappings, by their dotted path; None where one has none."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*one, *other}):
        where, left, right = f"{path}{name}", one.get(name), other.get(name)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found |= find_differences(left, right, f"{where}.")
        elif left != right:
            found[where] = (left, right)
    return found


def pair_tasks(one: Collection, other: Collection) -> tuple[str, list[Any]]:
    """A common table expression `pairs` of the tasks that both have rewards for, and what is given to it."""
    if one.version_id == other.version_id:
        parts = {"same": "r.task_id", "join": "", "known": ""}
    else:
        parts = {"same": "t.key", "join": "JOIN tasks_task t ON t.id = r.task_id", "known": "AND t.key <> ''"}
    return _PAIRED.format(solved=SOLVED, **parts), [one.pk, other.pk, one.pk, other.pk]


def _interval(pairs: str, given: list[Any], tasks: int, difference: float | None) -> Interval | None:
    if difference is None or tasks < 2:
        return None
    if tasks > MAX_RESAMPLED:
        ((squares,),) = read_pairs(pairs + _SQUARES, [*given, difference, difference])
        return interval_from(tasks, difference, squares)
    return paired_bootstrap([each for (each,) in read_pairs(pairs + _DIFFERENCES, given)])


def _most(pairs: str, given: list[Any], *, sign: str, order: str) -> list[Change]:
    return [
        Change(
            task=task,
            other_task=other_task,
            prompt_excerpt=excerpt,
            mean_reward=mean,
            other_mean_reward=other_mean,
            difference=difference,
        )
        for task, other_task, mean, other_mean, difference, excerpt in read_pairs(
            pairs + _MOST.format(sign=sign, order=order), [*given, SHOWN]
        )
    ]


def read_pairs(query: str, given: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, given)
        return list(cursor.fetchall())
