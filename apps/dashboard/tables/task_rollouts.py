"""Rollouts of tasks: all of one task by collection, and the results of each task of a list."""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.db.models import Avg, Count, Exists, F, OuterRef, Q

from apps.dashboard.charts.histogram import Histogram, draw_histogram
from apps.dashboard.tables.rollouts.row_texts import add_texts
from apps.gym.metrics.pass_at_k import bin_counts, histogram_edges
from apps.rollouts.models import Collection, Rollout
from apps.tasks.models import Task, TaskQuerySet

SHOWN = 1_000
OUTCOMES = {
    "solved": "solved",
    "partly": "partial reward",
    "unsolved": "no reward above zero",
    "unfinished": "failed, cancelled or not finished",
}
SOLVED = {"never": "never solved", "sometimes": "sometimes solved", "always": "always solved"}
"""Filters of tasks by their rollouts with a reward, in all collections."""
_REWARDS: dict[str, dict[str, Any]] = {
    "solved": {"reward__gte": F("collection__solve_threshold")},
    "partly": {"reward__gt": 0, "reward__lt": F("collection__solve_threshold")},
    "unsolved": {"reward__lte": 0, "reward__lt": F("collection__solve_threshold")},
    "unfinished": {"reward__isnull": True},
}


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one collection. `mean_reward` covers the shown rollouts with a reward."""

    collection: Collection
    rollouts: list[Rollout]

    @property
    def rewards(self) -> list[float]:
        return [rollout.reward for rollout in self.rollouts if rollout.reward is not None]

    @property
    def solved(self) -> int:
        return sum(reward >= self.collection.solve_threshold for reward in self.rewards)

    @property
    def compared(self) -> list[tuple[Rollout, Rollout | None]]:
        """Return each rollout with the one to compare it with: the best, or for the best ones the worst."""
        rewarded = [rollout for rollout in self.rollouts if rollout.reward is not None]
        best = max(rewarded, key=_reward, default=None)
        worst = min(rewarded, key=_reward, default=None)
        if best is None or worst is None or best.reward == worst.reward:
            return [(rollout, None) for rollout in self.rollouts]
        return [(rollout, worst if rollout.reward == best.reward else best) for rollout in self.rollouts]

    @property
    def mean_reward(self) -> float | None:
        return sum(self.rewards) / len(self.rewards) if self.rewards else None


@dataclass(frozen=True, slots=True)
class Groups:
    """`hidden` counts older rollouts beyond SHOWN; `collections` are all that attempted the task."""

    groups: list[Group]
    hidden: int
    collections: list[Collection]
    histogram: Histogram
    rewarded: int


def read_groups(task: Task, *, collection: int | None, outcome: str) -> Groups:
    """Return the groups, optionally of one collection or with one outcome."""
    mine = task.rollouts.filter(collection__is_being_deleted=False)
    chosen = (mine.filter(collection=collection) if collection else mine).filter(**_REWARDS.get(outcome, {}))
    shown = list(chosen.select_related("collection__policy_model").order_by("-collection_id", "repeat")[: SHOWN + 1])
    hidden = chosen.count() - SHOWN if len(shown) > SHOWN else 0
    add_texts(shown, {"why", "review"})
    groups = [Group(key, list(each)) for key, each in groupby(shown[:SHOWN], key=lambda row: row.collection)]
    attempted = mine.order_by().values("collection").annotate(rollouts=Count("pk")).values("collection")
    rewards = [reward for group in groups for reward in group.rewards]
    return Groups(
        groups=groups,
        hidden=hidden,
        collections=list(Collection.objects.filter(pk__in=attempted).order_by("-pk").only("pk", "name")[:200]),
        histogram=_histogram(rewards),
        rewarded=len(rewards),
    )


def filter_by_solved(tasks: TaskQuerySet, choice: str) -> TaskQuerySet:
    """Return the tasks that fit a choice of SOLVED. Tasks without rewards fit none."""
    attempts = Rollout.objects.filter(task=OuterRef("pk"), collection__is_being_deleted=False)
    solved = Q(Exists(attempts.filter(**_REWARDS["solved"])))
    missed = Q(Exists(attempts.filter(reward__lt=F("collection__solve_threshold"))))
    conditions = {"never": missed & ~solved, "sometimes": solved & missed, "always": solved & ~missed}
    return tasks.filter(conditions.get(choice, Q()))


def add_rewards(tasks: list[Task]) -> None:
    """Add `rollout_count` and `mean_reward` of all collections to each task, with one query."""
    measured = {
        row["task"]: row
        for row in Rollout.objects.filter(task__in=tasks, collection__is_being_deleted=False)
        .values("task")
        .annotate(count=Count("pk"), mean=Avg("reward"))
        .order_by()
    }
    for task in tasks:
        row = measured.get(task.pk, {"count": 0, "mean": None})
        task.rollout_count, task.mean_reward = row["count"], row["mean"]  # type: ignore[attr-defined]


def _reward(rollout: Rollout) -> float:
    return rollout.reward or 0.0


def _histogram(rewards: list[float]) -> Histogram:
    if not rewards:
        return draw_histogram([])
    edges = histogram_edges(min(rewards), max(rewards))
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    places = Counter(min(int((reward - edges[0]) / width + 1e-9), len(edges) - 2) for reward in rewards)
    return draw_histogram(bin_counts(edges, places))
