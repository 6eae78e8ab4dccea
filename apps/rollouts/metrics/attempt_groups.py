"""Count the groups of a collection (all attempts at one task) by outcome, in the database."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import connection

from apps.gym.metrics.majority_at_k import Answers
from apps.gym.metrics.pass_at_k import SOLVED
from apps.rollouts.metrics.labels import Labels, read_by_label

# A group's votes as text, for example 0:3:2/1:5:5: five attempts gave one answer, all solved; three gave none, two of
# them solved. The text tells the size of the group and its number of solved attempts; sums of rewards are stored next
# to it. The sum of squares uses deviations from the mean, so that large, close rewards keep their digits. Under labels
# of rollouts, the attempts at one task may form several groups.
_GROUPS = f"""
    WITH {{known}}
    SELECT {{label}}, votes, COUNT(*), SUM(total / size), SUM((total - size * n0) * (total - size * n0))
    FROM (
        SELECT r.*, {{raw}} AS raw FROM (
            SELECT r.task_id{{version}}, {{joined}} AS votes, SUM(attempts) AS size, SUM(total) AS total FROM (
                SELECT r.task_id{{version}}, CASE WHEN r.answer = '' THEN 0 ELSE 1 END AS voting,
                    COUNT(*) AS attempts, SUM(CASE WHEN r.reward >= {SOLVED} THEN 1 ELSE 0 END) AS solved,
                    SUM(CAST(r.reward AS double precision)) AS total
                FROM rollouts_rollout r WHERE r.collection_id = %s AND r.reward IS NOT NULL
                GROUP BY r.task_id{{version}}, r.answer
            ) r GROUP BY r.task_id{{version}}
        ) r {{join}}
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1, 2
"""  # noqa: S608 (constants alone are formatted in)
_JOINED = {
    "sqlite": "group_concat(voting || ':' || attempts || ':' || solved, '/')",
    # The order does not matter: equal outcomes are merged below.
    "postgresql": "string_agg(voting || ':' || attempts || ':' || solved, '/')",
}


@dataclass(slots=True)
class Groups:
    """Groups with one label.

    `solved` counts groups by (size, solved attempts), `votes` by how often each answer was given. `means` maps the
    group size to the number of groups and the sum of their mean rewards. `squares` is the sum of squared deviations
    over all groups, for the clustered standard error.
    """

    solved: Counter[tuple[int, int]] = field(default_factory=Counter)
    votes: Counter[tuple[Answers, ...]] = field(default_factory=Counter)
    means: dict[int, tuple[int, float]] = field(default_factory=dict)
    squares: float = 0.0

    @property
    def known(self) -> int:
        return self.solved.total()

    def add(self, answers: tuple[Answers, ...], *, groups: int, mean_sum: float, squares: float) -> None:
        """Add `groups` groups with these answers."""
        size = sum(each.attempts for each in answers)
        self.votes[answers] += groups
        self.solved[size, sum(each.solved for each in answers)] += groups
        before, total = self.means.get(size, (0, 0.0))
        self.means[size] = before + groups, total + mean_sum
        self.squares += squares


def read_groups(collection_id: int, labels: Labels, means: Mapping[str, float]) -> defaultdict[str, Groups]:
    """Return the groups of rewarded attempts by label, in one pass. `means` is the mean reward of each label."""
    found: defaultdict[str, Groups] = defaultdict(Groups)
    if not means:
        return found
    known = {label: [mean] for label, mean in means.items()}
    shapes: dict[str, tuple[Answers, ...]] = {}
    for label, votes, groups, mean_sum, squares in read_by_label(
        _GROUPS, labels, [collection_id], known, joined=_JOINED[connection.vendor]
    ):
        if votes not in shapes:
            shapes[votes] = _answers(votes)
        found[label].add(shapes[votes], groups=groups, mean_sum=mean_sum, squares=squares)
    return found


def _answers(votes: str) -> tuple[Answers, ...]:
    parts = (tuple(map(int, answer.split(":"))) for answer in votes.split("/"))
    return tuple(sorted(Answers(attempts, right, bool(voting)) for voting, attempts, right in parts))
