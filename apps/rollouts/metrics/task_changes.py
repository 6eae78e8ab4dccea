"""List the tasks of two collections by reward difference, in pages, with a representative rollout of each side."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from django.db.models import F

from apps.rollouts.metrics.collection_comparison import SOLVES, Change, pair_tasks, read_pairs
from apps.rollouts.models import Collection, Rollout

Which = Literal["regressed", "improved", "lost", "gained", "same", "all"]
WHICH: tuple[Which, ...] = ("regressed", "improved", "lost", "gained", "same", "all")

# Tasks are `lost` or `gained` if only one of the collections solved them in at least half of its attempts.
_CHOSEN: dict[Which, tuple[str, str]] = {
    "regressed": ("difference < -1e-9", "ASC"),
    "improved": ("difference > 1e-9", "DESC"),
    "lost": (f"one_solved >= {SOLVES} AND other_solved < {SOLVES}", "ASC"),
    "gained": (f"one_solved < {SOLVES} AND other_solved >= {SOLVES}", "DESC"),
    "same": ("ABS(difference) <= 1e-9", "ASC"),
    "all": ("1 = 1", "ASC"),
}
_LISTED = """
    SELECT one_task, other_task, one_mean, other_mean, difference, t.prompt_excerpt
    FROM pairs JOIN tasks_task t ON t.id = other_task
    WHERE {chosen} {after} ORDER BY difference {order}, one_task LIMIT %s
"""
_COUNTED = "SELECT {counts} FROM pairs"
_AFTER = {
    "ASC": "AND (difference > %s OR (difference = %s AND one_task > %s))",
    "DESC": "AND (difference < %s OR (difference = %s AND one_task > %s))",
}


class Cursor(NamedTuple):
    """Position of the last change of the previous page."""

    difference: float
    task: int

    def __str__(self) -> str:
        return f"{self.difference!r}~{self.task}"

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        difference, _, task = text.partition("~")
        try:
            value = float(difference)
        except ValueError:
            return None
        is_number = task.isascii() and task.isdigit() and len(task) < 19
        return cls(value, int(task)) if is_number and math.isfinite(value) else None


def list_changes(
    one: Collection, other: Collection, which: Which, *, after: Cursor | None = None, limit: int = 50
) -> list[Change]:
    """Return a page of changes, largest differences first.

    Unchanged tasks are ordered by id, all tasks from worst to best.
    """
    pairs, given = pair_tasks(one, other)
    chosen, order = _CHOSEN[which]
    query = pairs + _LISTED.format(chosen=chosen, order=order, after=_AFTER[order] if after else "")
    place = [after.difference, after.difference, after.task] if after else []
    return [
        Change(
            task=task,
            other_task=other_task,
            prompt_excerpt=excerpt,
            mean_reward=mean,
            other_mean_reward=other_mean,
            difference=difference,
        )
        for task, other_task, mean, other_mean, difference, excerpt in read_pairs(query, [*given, *place, limit])
    ]


def count_changes(one: Collection, other: Collection) -> dict[Which, int]:
    """Return the number of tasks in each list."""
    pairs, given = pair_tasks(one, other)
    counts = ", ".join(f"COUNT(CASE WHEN {_CHOSEN[which][0]} THEN 1 END)" for which in WHICH)
    [found] = read_pairs(pairs + _COUNTED.format(counts=counts), given)
    return dict(zip(WHICH, found, strict=True))


def find_extreme_rollouts(
    one: Collection, other: Collection, changes: Sequence[Change]
) -> list[tuple[int, int] | None]:
    """Return two rollouts per task: the best of the better collection, and the worst of the other."""
    mine = _extremes(one, [change.task for change in changes])
    theirs = _extremes(other, [change.other_task for change in changes])
    extremes: list[tuple[int, int] | None] = []
    for change in changes:
        ends, other_ends = mine.get(change.task), theirs.get(change.other_task)
        if ends is None or other_ends is None:
            extremes.append(None)
        elif change.difference < 0:
            extremes.append((ends[1], other_ends[0]))
        else:
            extremes.append((ends[0], other_ends[1]))
    return extremes


def _extremes(collection: Collection, tasks: list[int]) -> dict[int, tuple[int, int]]:
    """Return the rollouts with the lowest and the highest reward of each task."""
    rows = Rollout.objects.filter(collection=collection, task__in=tasks or [0]).rewarded()
    found: dict[int, tuple[int, int]] = {}
    for task, rollout in rows.order_by("task", F("reward"), "pk").values_list("task", "pk"):
        found[task] = (found.get(task, (rollout, rollout))[0], rollout)
    return found
