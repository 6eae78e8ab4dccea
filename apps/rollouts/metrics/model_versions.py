"""Rewards of a policy model by version, in one aggregate query."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from apps.gym.metrics.clustered_intervals import mean_interval
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Rollout

# Deviations from each version's own mean are squared: the one-pass formula loses precision for large, close rewards.
_VERSIONS = """
    WITH task_groups AS (
        SELECT rollouts_rollout.model_version AS version, rollouts_rollout.task_id AS task, COUNT(*) AS size,
            SUM(rollouts_rollout.reward) AS total,
            SUM(CASE WHEN rollouts_rollout.reward >= rollouts_collection.solve_threshold THEN 1 ELSE 0 END) AS solved,
            MIN(rollouts_rollout.reward) AS low, MAX(rollouts_rollout.reward) AS high,
            MAX(CASE WHEN rollouts_rollout.reward IN (0, 1) THEN 0 ELSE 1 END) AS partial,
            MIN(rollouts_rollout.id) AS earliest, MAX(rollouts_rollout.id) AS latest
        FROM rollouts_rollout
        JOIN rollouts_collection ON rollouts_collection.id = rollouts_rollout.collection_id
        WHERE rollouts_collection.policy_model_id = %s AND {chosen}
            rollouts_rollout.status = 'completed' AND rollouts_rollout.reward IS NOT NULL
        GROUP BY rollouts_rollout.model_version, rollouts_rollout.task_id
    ), means AS (
        SELECT version, SUM(total) / CAST(SUM(size) AS double precision) AS mean FROM task_groups GROUP BY version
    )
    SELECT task_groups.version, CAST(SUM(size) AS bigint), COUNT(*), CAST(SUM(solved) AS bigint), MIN(mean),
        SUM((total - size * mean) * (total - size * mean)), MIN(earliest), MAX(latest),
        MIN(low), MAX(high), MAX(partial)
    FROM task_groups JOIN means ON means.version = task_groups.version
    GROUP BY task_groups.version ORDER BY MIN(earliest)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionReward:
    """Figures of rollouts that started with one model version. `version` is empty if the model reported none.

    `confidence` is the 95 % interval of the mean, clustered by task; None for fewer than five tasks. `solved` counts
    rollouts that solved their task. `first_at` and `last_at` are the earliest and latest end times.
    """

    version: str
    rollouts: int
    tasks: int
    solved: int
    mean_reward: float
    confidence: tuple[float, float] | None
    first_at: datetime | None
    last_at: datetime | None


def track_versions(*, policy_model: PolicyModel, collection: Collection | None = None) -> list[VersionReward]:
    """Return the versions of a model, optionally within one collection, by first appearance."""
    chosen = "rollouts_collection.id = %s AND" if collection else ""
    with connection.cursor() as cursor:
        given = [policy_model.pk, *([collection.pk] if collection else [])]
        cursor.execute(_VERSIONS.format(chosen=chosen), given)
        found = cursor.fetchall()
    ends = {row[6] for row in found} | {row[7] for row in found}
    times = dict(Rollout.objects.filter(pk__in=ends).values_list("pk", "finished_at"))
    return [_version(row, times) for row in found]


def _version(row: tuple[Any, ...], times: dict[int, datetime | None]) -> VersionReward:
    version, rollouts, tasks, solved, mean, squares, earliest, latest, low, high, partial = row
    return VersionReward(
        version=version,
        rollouts=rollouts,
        tasks=tasks,
        solved=solved,
        mean_reward=mean,
        confidence=mean_interval(
            mean=mean, squares=squares, size=rollouts, tasks=tasks, low=low, high=high, is_binary=not partial
        ),
        first_at=times.get(earliest),
        last_at=times.get(latest),
    )
