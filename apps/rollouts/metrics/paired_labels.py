"""Paired differences of two collections: of all tasks, by split and by tag; mean rewards and pass@k."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

from apps.gym.metrics.clustered_intervals import mean_interval
from apps.gym.metrics.paired_comparison import Interval, interval_from
from apps.gym.metrics.pass_at_k import pass_at_k
from apps.rollouts.metrics.collection_comparison import pair_tasks, read_pairs
from apps.rollouts.metrics.labels import MAX_LABELS
from apps.rollouts.models import Collection

Grouping = Literal["all", "split", "tag"]
_LABELS: dict[Grouping, tuple[str, str]] = {
    "all": ("CAST('' AS text)", ""),
    "split": ("t.split", "JOIN tasks_task t ON t.id = other_task"),
    "tag": ("t.tags_text", "JOIN tasks_task t ON t.id = other_task"),
}
# Few rows whatever the number of tasks, because tasks with equal counts of attempts are added up.
_SUMS = """
    SELECT {label}, one_size, one_hits, other_size, other_hits, COUNT(*), SUM(one_mean), SUM(other_mean),
        SUM(difference), SUM(difference * difference), SUM(other_mean * other_mean), MIN(other_low), MAX(other_high),
        MAX(CASE WHEN other_mean IN (0, 1) THEN 0 ELSE 1 END)
    FROM pairs {join} GROUP BY 1, 2, 3, 4, 5
"""


class PairedMean(NamedTuple):
    """Means over the tasks that both have. `interval` is the mean difference, second minus first, with its interval.

    `other_confidence` is the 95 % interval of `other_mean`; None for fewer than five tasks.
    """

    tasks: int
    mean: float | None
    other_mean: float | None
    interval: Interval | None
    other_confidence: tuple[float, float] | None = None


class LabelContrast(NamedTuple):
    """Differences of the tasks with one split or tag. `label` is empty for tasks without one, and for all tasks.

    `pass_at_k` covers tasks with at least k rewarded attempts in both collections.
    """

    label: str
    reward: PairedMean
    pass_at_k: PairedMean


class _Sums:
    """Sums of paired values over tasks."""

    def __init__(self) -> None:
        self.tasks, self.one, self.other, self.difference, self.squares = 0, 0.0, 0.0, 0.0, 0.0
        self.other_squares, self.low, self.high, self.is_binary = 0.0, math.inf, -math.inf, True

    def add(self, tasks: int, one: float, other: float, difference: float, squares: float) -> None:
        self.tasks += tasks
        self.one += one
        self.other += other
        self.difference += difference
        self.squares += squares

    def add_other(self, squares: float, *, low: float, high: float, is_binary: bool) -> None:
        """Add the sum of squares of the second values. `is_binary`: all are 0 or 1, and none is an average."""
        self.other_squares += squares
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.is_binary = self.is_binary and is_binary

    def figure(self) -> PairedMean:
        if not self.tasks:
            return PairedMean(0, None, None, None)
        mean = self.difference / self.tasks
        spread = max(0.0, self.squares - self.tasks * mean**2)
        return PairedMean(
            self.tasks,
            self.one / self.tasks,
            self.other / self.tasks,
            interval_from(self.tasks, mean, spread),
            self._other_confidence(),
        )

    def _other_confidence(self) -> tuple[float, float] | None:
        # A sum of floats can put the mean just outside the range of the values.
        mean = min(max(self.other / self.tasks, self.low), self.high)
        return mean_interval(
            mean=mean,
            squares=max(0.0, self.other_squares - self.tasks * mean**2),
            size=self.tasks,
            tasks=self.tasks,
            low=self.low,
            high=self.high,
            is_binary=self.is_binary,
        )


def contrast_by(one: Collection, other: Collection, grouping: Grouping, *, k: int = 1) -> list[LabelContrast]:
    """Return the differences by label, most tasks first, at most MAX_LABELS. A task with several tags counts for each.

    If both are the same collection, return its own means.
    """
    label, join = _LABELS[grouping]
    pairs, given = pair_tasks(one, other)
    rewards: defaultdict[str, _Sums] = defaultdict(_Sums)
    solved: defaultdict[str, _Sums] = defaultdict(_Sums)
    for stored, size, hits, other_size, other_hits, tasks, *sums, low, high, partial in read_pairs(
        pairs + _SUMS.format(label=label, join=join), given
    ):
        *of_pair, squares = map(float, sums)
        for name in _split_labels(stored):
            rewards[name].add(int(tasks), *of_pair)
            rewards[name].add_other(squares, low=low, high=high, is_binary=other_size == 1 and not partial)
            if min(size, other_size) >= k:
                chance, other_chance = (
                    pass_at_k(int(size), int(hits), k),
                    pass_at_k(int(other_size), int(other_hits), k),
                )
                step = other_chance - chance
                solved[name].add(int(tasks), tasks * chance, tasks * other_chance, tasks * step, tasks * step * step)
                solved[name].add_other(tasks * other_chance**2, low=0.0, high=1.0, is_binary=other_size == k)
    largest = sorted(rewards, key=lambda name: (-rewards[name].tasks, name))[:MAX_LABELS]
    return [LabelContrast(name, rewards[name].figure(), solved[name].figure()) for name in largest]


def _split_labels(stored: str) -> Iterator[str]:
    """Yield a split, or each of the tags, which are stored one per line; an empty text without one."""
    yield from filter(None, stored.split("\n")) if stored.strip("\n") else [""]
