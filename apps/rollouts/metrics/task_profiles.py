"""Reward profiles of the tasks of a collection: attempts, solved attempts and spread of rewards."""

from dataclasses import dataclass
from typing import Any, Literal

from django.db import connection

from apps.gym.metrics.pass_at_k import sample_std
from apps.rollouts.models import Collection

Bucket = Literal["never", "sometimes", "always"]
BUCKETS: tuple[Bucket, ...] = ("never", "sometimes", "always")

# The variance is computed in a second pass over the task's rollouts, for precision.
_PROFILES = """
    WITH threshold AS (SELECT solve_threshold AS reward FROM rollouts_collection WHERE id = %s),
    groups AS (
        SELECT r.task_id, COUNT(*) AS rollouts, COUNT(r.reward) AS rewarded, AVG(r.reward) AS mean,
            MIN(r.reward) AS low, MAX(r.reward) AS high,
            COALESCE(SUM(CASE WHEN r.reward >= threshold.reward THEN 1 ELSE 0 END), 0) AS solved,
            SUM(CASE WHEN r.status = 'failed' THEN 1 ELSE 0 END) AS failed, AVG(r.output_tokens) AS output_tokens
        FROM rollouts_rollout r, threshold
        WHERE r.collection_id = %s AND r.task_id > %s GROUP BY r.task_id {bucket} ORDER BY r.task_id LIMIT %s
    )
    SELECT groups.*, t.{index}, t.external_id, t.prompt_excerpt, (
        SELECT SUM((r.reward - groups.mean) * (r.reward - groups.mean)) FROM rollouts_rollout r
        WHERE r.collection_id = %s AND r.task_id = groups.task_id AND r.reward IS NOT NULL
    )
    FROM groups JOIN tasks_task t ON t.id = groups.task_id ORDER BY groups.task_id
"""
_SOLVED = "SUM(CASE WHEN r.reward >= threshold.reward THEN 1 ELSE 0 END)"
_IN_BUCKET: dict[Bucket, str] = {
    "never": f"HAVING COUNT(r.reward) > 0 AND {_SOLVED} = 0",
    "always": f"HAVING COUNT(r.reward) > 0 AND {_SOLVED} = COUNT(r.reward)",
    "sometimes": f"HAVING {_SOLVED} > 0 AND {_SOLVED} < COUNT(r.reward)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Figures of a task's rollouts in a collection. Rewards are None if no rollout has one.

    `rollouts` counts the planned rollouts. `missing` counts planned rollouts without a reward.
    """

    task: int
    index: int
    external_id: str
    prompt_excerpt: str
    rollouts: int
    rewarded: int
    missing: int
    solved: int
    failed: int
    mean_reward: float | None
    std: float | None
    min_reward: float | None
    max_reward: float | None
    mean_output_tokens: float


def profile_tasks(
    collection: Collection, *, after: int = 0, limit: int = 100, bucket: Bucket | None = None
) -> list[Profile]:
    """Return up to `limit` tasks with ids above `after`, by id.

    `bucket` restricts them to never, sometimes or always solved tasks.
    """
    having = _IN_BUCKET[bucket] if bucket else ""
    query = _PROFILES.format(bucket=having, index=connection.ops.quote_name("index"))
    with connection.cursor() as cursor:
        cursor.execute(query, [collection.pk, collection.pk, after, limit, collection.pk])
        return [_profile(row) for row in cursor.fetchall()]


def _profile(row: tuple[Any, ...]) -> Profile:
    task, rollouts, rewarded, mean, low, high, solved, failed, tokens, index, external_id, excerpt, squares = row
    return Profile(
        task=task,
        index=index,
        external_id=external_id,
        prompt_excerpt=excerpt,
        rollouts=rollouts,
        rewarded=rewarded,
        missing=rollouts - rewarded,
        solved=solved,
        failed=failed,
        mean_reward=mean,
        std=sample_std(rewarded, squares or 0.0),
        min_reward=low,
        max_reward=high,
        mean_output_tokens=float(tokens),
    )
