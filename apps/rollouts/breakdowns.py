"""Break the rewards of a collection down by split, tag or version of the model, in one query each."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from django.db import connection

from apps.gym.metrics import SOLVED, confidence_interval, standard_error_from
from apps.rollouts.grouping import room_to_group
from apps.rollouts.models import Collection

Facet = Literal["split", "tag", "model_version"]
FACETS: tuple[Facet, ...] = ("split", "tag", "model_version")

# Sums that add up, so that tags, of which a task has several, can be put together afterwards. The deviations are from
# the mean of the whole collection: squares of differences lose fewer digits than squares of rewards.
_PARTS = """
    SELECT label, SUM(size), SUM(tried), COUNT(CASE WHEN size > 0 THEN 1 END), SUM(deviation),
        SUM(deviation * deviation), SUM(deviation * size), SUM(size * size),
        SUM(CASE WHEN size > 0 THEN solved * 1.0 / size ELSE 0 END)
    FROM (
        SELECT {label} AS label, r.task_id, COUNT(r.reward) AS size, COUNT(*) AS tried,
            COALESCE(SUM(r.reward - %s), 0.0) AS deviation,
            SUM(CASE WHEN r.reward >= {solved} THEN 1 ELSE 0 END) AS solved
        FROM rollouts_rollout r JOIN tasks_task t ON t.id = r.task_id
        WHERE r.collection_id = %s GROUP BY {label}, r.task_id
    ) groups GROUP BY label
"""
_LABELS: dict[Facet, str] = {"split": "t.split", "tag": "t.tags_text", "model_version": "r.model_version"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a collection with one label, which is empty where a task or a rollout has none.

    `rewarded` of its `rollouts` have a reward, of `tasks` tasks. `pass_at_1` is the mean over its tasks of the share of
    their rewarded attempts with full marks; `confidence` is the 95 % interval of the mean reward, clustered by task.
    """

    label: str
    rollouts: int
    rewarded: int
    tasks: int
    mean_reward: float | None
    confidence: tuple[float, float] | None
    pass_at_1: float | None


class _Sums(NamedTuple):
    size: float = 0
    tried: float = 0
    tasks: float = 0
    deviation: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    size_squares: float = 0
    solved: float = 0.0

    def __add__(self, other: "tuple[Any, ...]") -> "_Sums":
        return _Sums(*(one + another for one, another in zip(self, other, strict=True)))


def break_down(collection: Collection, facet: Facet) -> list[Share]:
    """The largest share first. By tag, a task counts for each of its tags."""
    centre = collection.mean_reward or 0.0
    query = _PARTS.format(label=_LABELS[facet], solved=SOLVED)
    with room_to_group(), connection.cursor() as cursor:
        cursor.execute(query, [centre, collection.pk])
        rows = cursor.fetchall()
    split: Callable[[str], list[str]] = _tags if facet == "tag" else lambda label: [label]
    sums: dict[str, _Sums] = defaultdict(_Sums)
    for label, *numbers in rows:
        for part in split(label):
            sums[part] += tuple(float(number or 0) for number in numbers)
    shares = [_share(label, found, centre) for label, found in sums.items()]
    return sorted(shares, key=lambda share: (-share.rollouts, share.label))


def _tags(text: str) -> list[str]:
    return [tag for tag in text.split("\n") if tag] or [""]


def _share(label: str, sums: _Sums, centre: float) -> Share:
    size, tasks = int(sums.size), int(sums.tasks)
    mean = centre + sums.deviation / size if size else None
    # Σ (sum of a group − its size · mean)², from the sums about `centre`.
    off = 0.0 if mean is None else mean - centre
    squares = sums.squares - 2 * off * sums.products + off * off * sums.size_squares
    error = standard_error_from(squares, size, tasks) if size else None
    return Share(
        label=label,
        rollouts=int(sums.tried),
        rewarded=size,
        tasks=tasks,
        mean_reward=mean,
        confidence=None if mean is None or error is None else confidence_interval(mean, error),
        pass_at_1=sums.solved / tasks if tasks else None,
    )
