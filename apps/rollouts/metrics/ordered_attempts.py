"""Read the rewards and answers of attempts in the order they were planned."""

from collections.abc import Iterator
from itertools import groupby

from django.db import connection

from apps.gym.metrics.first_k import OrderedAttempts, order_attempts
from apps.rollouts.metrics.task_ranges import IN_RANGE, TaskRange

_PAGE = 8_192
"""Rows per query. A range may be a whole collection, which does not fit in memory."""
_ROWS = f"""
    SELECT r.task_id, r.repeat, r.reward, r.answer FROM rollouts_rollout r
    WHERE {IN_RANGE} AND (r.task_id, r.repeat) > (%s, %s) AND r.reward IS NOT NULL
    ORDER BY r.task_id, r.repeat LIMIT %s
"""  # noqa: S608 (constants alone are formatted in)

Row = tuple[int, int, float, str]
"""Task, repeat, reward, answer."""


def read_ordered(tasks: TaskRange) -> OrderedAttempts:
    """Return the sums over tasks of attempts with a reward."""
    by_task = groupby(_read(tasks), key=lambda row: row[0])
    return order_attempts([row[2:] for row in rows] for _, rows in by_task)


def _read(tasks: TaskRange) -> Iterator[Row]:
    """Yield the rows by task and repeat. Each query continues after the last row."""
    place = tasks.first, -1
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_ROWS, [tasks.collection, place[0], tasks.last, *place, _PAGE])
            page: list[Row] = cursor.fetchall()
        yield from page
        if len(page) < _PAGE:
            return
        place = page[-1][:2]
