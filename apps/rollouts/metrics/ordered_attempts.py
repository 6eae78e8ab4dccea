"""Read the rewards and answers of attempts in the order they were planned."""

from collections.abc import Iterator
from itertools import groupby

from apps.gym.metrics.first_k import Attempt, OrderedAttempts, order_attempts
from apps.rollouts.metrics.task_ranges import TaskRange


def read_ordered(tasks: TaskRange) -> OrderedAttempts:
    """Return the sums over tasks of attempts with a reward."""
    rows = tasks.rollouts().rewarded().order_by("task_id", "repeat").values_list("task_id", "reward", "answer")
    by_task = groupby(rows, key=lambda row: row[0])
    return order_attempts(_attempts(group) for _, group in by_task)


def _attempts(rows: Iterator[tuple[int, float | None, str]]) -> list[Attempt]:
    return [(reward, answer) for _, reward, answer in rows if reward is not None]
