"""Count groups (all attempts of a collection at one task) by outcome, in the database."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from django.db import connection

from apps.gym.metrics.majority_at_k import Answers
from apps.rollouts.metrics.deviations import Deviations, deviations_sql
from apps.rollouts.metrics.labels import Labels, read_by_label
from apps.rollouts.metrics.task_ranges import IN_RANGE, SOLVE_THRESHOLD, TaskRange

# Votes of a group as text: `voting:attempts:solved` for each answer. In 0:3:2/1:5:5, three attempts gave no answer and
# two of them solved the task; five attempts gave one answer, and all solved it. Sizes of groups follow from the votes.
# Sums of rewards are stored separately. Labels of rollouts may split the attempts at one task into several groups.
_GROUPS = f"""
    WITH {{known}}
    SELECT {{label}}, votes, COUNT(*), SUM(total / size), {deviations_sql("total", "size", "n0")}
    FROM (
        SELECT r.*, {{raw}} AS raw FROM (
            SELECT r.task_id{{version}}, {{joined}} AS votes, SUM(attempts) AS size, SUM(total) AS total FROM (
                SELECT r.task_id{{version}}, CASE WHEN r.answer = '' THEN 0 ELSE 1 END AS voting,
                    COUNT(*) AS attempts, SUM(CASE WHEN r.reward >= {SOLVE_THRESHOLD} THEN 1 ELSE 0 END) AS solved,
                    SUM(CAST(r.reward AS double precision)) AS total
                FROM rollouts_rollout r WHERE {IN_RANGE} AND r.reward IS NOT NULL
                GROUP BY r.task_id{{version}}, r.answer
            ) r GROUP BY r.task_id{{version}}
        ) r {{join}}
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1, 2
"""  # noqa: S608 (constants alone are formatted in)
_JOINED = {
    "sqlite": "group_concat(voting || ':' || attempts || ':' || solved, '/')",
    # Unordered: groups with equal answers are combined below.
    "postgresql": "string_agg(voting || ':' || attempts || ':' || solved, '/')",
}


class Groups(msgspec.Struct, array_like=True):
    """Groups with one label.

    `shapes` counts groups by their votes, with the sum of their mean rewards. `deviations` has the sums of rewards per
    group, for the clustered standard error.
    """

    shapes: dict[str, tuple[int, float]] = {}
    deviations: Deviations = Deviations()

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.shapes.values())

    @property
    def votes(self) -> Counter[tuple[Answers, ...]]:
        """Return the number of groups by their votes."""
        return Counter({_answers(shape): count for shape, (count, _) in self.shapes.items()})

    @property
    def solved(self) -> Counter[tuple[int, int]]:
        """Return the number of groups by (size, number of solved attempts)."""
        solved: Counter[tuple[int, int]] = Counter()
        for answers, count in self.votes.items():
            solved[_size(answers), sum(each.solved for each in answers)] += count
        return solved

    @property
    def silent(self) -> int:
        """Return the number of attempts without an answer."""
        return sum(each.attempts * count for answers, count in self.votes.items() for each in answers if not each.votes)

    @property
    def means(self) -> dict[int, tuple[int, float]]:
        """Return the number of groups and the sum of their mean rewards by size."""
        means: dict[int, tuple[int, float]] = {}
        for shape, (count, mean_sum) in self.shapes.items():
            size = _size(_answers(shape))
            before, total = means.get(size, (0, 0.0))
            means[size] = before + count, total + mean_sum
        return means


def read_groups(tasks: TaskRange, labels: Labels, means: Mapping[str, float]) -> defaultdict[str, Groups]:
    """Return the groups of rewarded attempts by label, in one pass. `means` is the mean reward of each label."""
    found: defaultdict[str, Groups] = defaultdict(Groups)
    if not means:
        return found
    known = {label: [mean] for label, mean in means.items()}
    parts: dict[str, list[Groups]] = defaultdict(list)
    for label, votes, count, mean_sum, *sums in read_by_label(
        _GROUPS, labels, [tasks.collection, *tasks], known, joined=_JOINED[connection.vendor]
    ):
        parts[label].append(Groups({_in_order(votes): (count, float(mean_sum))}, Deviations.read(means[label], sums)))
    for label, of_label in parts.items():
        found[label] = combine_groups(of_label)
    return found


def combine_groups(parts: Iterable[Groups]) -> Groups:
    """Combine the groups of several parts, which must be disjoint."""
    parts = list(parts)
    shapes: dict[str, tuple[int, float]] = {}
    for part in parts:
        for shape, (count, mean_sum) in part.shapes.items():
            before, total = shapes.get(shape, (0, 0.0))
            shapes[shape] = before + count, total + mean_sum
    return Groups(shapes, Deviations.combine(part.deviations for part in parts))


def _in_order(votes: str) -> str:
    return "/".join(sorted(votes.split("/")))


@lru_cache(maxsize=20_000)
def _answers(shape: str) -> tuple[Answers, ...]:
    parts = (tuple(map(int, answer.split(":"))) for answer in shape.split("/"))
    return tuple(sorted(Answers(attempts, right, bool(voting)) for voting, attempts, right in parts))


def _size(answers: tuple[Answers, ...]) -> int:
    return sum(each.attempts for each in answers)
