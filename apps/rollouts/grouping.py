"""Read the groups of a collection, all attempts at one task, by their shapes: the database counts, few rows come."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import connection, transaction

from apps.gym.metrics import SOLVED
from apps.gym.voting import Answers

# A group's votes as text, such as 0:3:2/1:5:5: five gave one answer, all solved; three gave none, two of them solved.
# They tell its size and how many solved it; what is summed of the rewards of alike groups stands beside them. The sum
# of squares takes deviations from the mean before it squares them: large, close rewards keep their digits.
_GROUPS = f"""
    SELECT votes, COUNT(*), SUM(total / size), SUM((total - size * mean) * (total - size * mean))
    FROM (
        SELECT {{joined}} AS votes, SUM(attempts) AS size, SUM(total) AS total FROM (
            SELECT task_id, CASE WHEN answer = '' THEN 0 ELSE 1 END AS voting, COUNT(*) AS attempts,
                SUM(CASE WHEN reward >= {SOLVED} THEN 1 ELSE 0 END) AS solved,
                SUM(CAST(reward AS double precision)) AS total
            FROM rollouts_rollout WHERE collection_id = %s AND reward IS NOT NULL GROUP BY task_id, answer
        ) answers GROUP BY task_id
    ) groups, (SELECT CAST(%s AS double precision) AS mean) known
    GROUP BY votes
"""  # noqa: S608 (constants alone are formatted in)
_JOINED = {
    "sqlite": "group_concat(voting || ':' || attempts || ':' || solved, '/')",
    # Unsorted, as it comes: shapes are put together below.
    "postgresql": "string_agg(voting || ':' || attempts || ':' || solved, '/')",
}


@contextmanager
def room_to_group() -> Iterator[None]:
    """A transaction whose queries group a million rows in memory. PostgreSQL has 4 MB for that unless it is told
    otherwise, and goes through files beyond it."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL work_mem = '64MB'")
        yield


class Groups(NamedTuple):
    """`solved` counts the groups by (size, solved attempts), `votes` by the shape of their answers; `means` has the
    number of groups and the sum of their mean rewards by size; `squares` is the sum over groups of their squared
    deviation, for the clustered standard error."""

    solved: Counter[tuple[int, int]]
    votes: Counter[tuple[Answers, ...]]
    means: dict[int, tuple[int, float]]
    squares: float

    @property
    def known(self) -> int:
        return self.solved.total()


def read_groups(collection_id: int, mean_reward: float | None) -> Groups:
    """Of the rewarded attempts of a collection: one pass over them. Empty without any."""
    solved: Counter[tuple[int, int]] = Counter()
    shapes: Counter[tuple[Answers, ...]] = Counter()
    means: dict[int, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    squares = 0.0
    query = _GROUPS.format(joined=_JOINED[connection.vendor])
    for votes, groups, mean_sum, squared in _rows(query, [collection_id, mean_reward or 0.0]):
        parts = (tuple(map(int, answer.split(":"))) for answer in votes.split("/"))
        answers = tuple(sorted(Answers(attempts, right, bool(voting)) for voting, attempts, right in parts))
        size = sum(each.attempts for each in answers)
        shapes[answers] += groups
        solved[size, sum(each.solved for each in answers)] += groups
        before = means[size]
        means[size] = (before[0] + groups, before[1] + mean_sum)
        squares += squared
    return Groups(solved, shapes, dict(means), squares)


def _rows(query: str, given: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, given)
        return list(cursor.fetchall())
