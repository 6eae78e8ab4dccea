"""Read the groups of a collection, all attempts at one task, by their shapes: the database counts, few rows come."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

from django.db import connection

from apps.gym.metrics import SOLVED
from apps.gym.voting import Answers

_REWARDED = "collection_id = %s AND status = 'completed' AND reward IS NOT NULL"

# The sum of squares takes deviations from the mean before it squares them: large, close rewards keep their digits.
_SHAPES = f"""
    SELECT size, solved, COUNT(*), SUM(total / size), SUM((total - size * mean) * (total - size * mean))
    FROM (
        SELECT COUNT(*) AS size, SUM(CASE WHEN reward >= {SOLVED} THEN 1 ELSE 0 END) AS solved,
            SUM(CAST(reward AS double precision)) AS total
        FROM rollouts_rollout WHERE {_REWARDED} GROUP BY task_id
    ) groups, (SELECT CAST(%s AS double precision) AS mean) known
    GROUP BY size, solved
"""  # noqa: S608 (constants alone are formatted in)
# A group's votes as text, such as 0:3:2/1:5:5: five gave one answer, all solved; three gave none, two of them solved.
_VOTES = f"""
    SELECT votes, COUNT(*) FROM (
        SELECT {{joined}} AS votes FROM (
            SELECT task_id, CASE WHEN answer = '' THEN 0 ELSE 1 END AS voting, COUNT(*) AS attempts,
                SUM(CASE WHEN reward >= {SOLVED} THEN 1 ELSE 0 END) AS solved
            FROM rollouts_rollout WHERE {_REWARDED} GROUP BY task_id, answer
        ) answers GROUP BY task_id
    ) shapes GROUP BY votes
"""  # noqa: S608
_JOINED = {
    "sqlite": "group_concat(voting || ':' || attempts || ':' || solved, '/')",
    # Unsorted, as it comes: shapes are put together below.
    "postgresql": "string_agg(voting || ':' || attempts || ':' || solved, '/')",
}


class Shapes(NamedTuple):
    """`solved` counts the groups by (size, solved attempts); `means` has the number of groups and the sum of their mean
    rewards by size; `squares` is the sum over groups of their squared deviation, for the clustered standard error."""

    solved: Counter[tuple[int, int]]
    means: dict[int, tuple[int, float]]
    squares: float

    @property
    def groups(self) -> int:
        return self.solved.total()


def read_shapes(collection_id: int, mean_reward: float | None) -> Shapes:
    """Of the rewarded attempts of a collection. Empty without any."""
    solved: Counter[tuple[int, int]] = Counter()
    means: dict[int, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    squares = 0.0
    for size, right, groups, mean_sum, squared in _rows(_SHAPES, [collection_id, mean_reward or 0.0]):
        solved[int(size), int(right)] += groups
        before = means[int(size)]
        means[int(size)] = (before[0] + groups, before[1] + mean_sum)
        squares += squared
    return Shapes(solved, dict(means), squares)


def read_votes(collection_id: int) -> Counter[tuple[Answers, ...]]:
    """How many groups have each shape of answers."""
    shapes: Counter[tuple[Answers, ...]] = Counter()
    for votes, groups in _rows(_VOTES.format(joined=_JOINED[connection.vendor]), [collection_id]):
        answers = (tuple(map(int, answer.split(":"))) for answer in votes.split("/"))
        shapes[tuple(sorted(Answers(attempts, solved, bool(voting)) for voting, attempts, solved in answers))] += groups
    return shapes


def _rows(query: str, given: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, given)
        return list(cursor.fetchall())
