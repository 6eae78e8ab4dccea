"""Claim queued rollouts under a worker's lease: the rows are the queue."""

from collections.abc import Mapping
from typing import NamedTuple

from django.db import connection, transaction
from django.utils import timezone

from apps.rollouts.models import Collection

MAX_CLAIM = 64


class Claim(NamedTuple):
    """A claimed rollout; `lease` and `attempt` are the fence of everything written for it."""

    lease: int
    rollout_id: int
    collection_id: int
    task_id: int
    repeat: int
    seed: int
    attempt: int


class Slots(NamedTuple):
    """What a worker may still start, now: overall, by policy model id and by environment id."""

    seats: int
    models: Mapping[int, int]
    environments: Mapping[int, int]


_PICK = """
    SELECT id FROM rollouts_rollout
    WHERE status = 'queued' AND collection_id IN ({ids})
        AND EXISTS (SELECT 1 FROM rollouts_worker w WHERE w.id = %s AND w.state = 'active' AND w.lease_expires_at > %s)
    ORDER BY priority, id LIMIT %s {lock}
"""
_TAKE = """
    UPDATE rollouts_rollout SET status = 'running', lease = %s, attempt = attempt + 1, started_at = %s
    WHERE id IN ({pick}) RETURNING id, collection_id, task_id, repeat, seed, attempt
"""


def claim_rollouts(*, lease: int, slots: Slots) -> list[Claim]:
    """At most MAX_CLAIM rollouts of running collections, never more of one model or environment than it has slots."""
    claims: list[Claim] = []
    seats = min(slots.seats, MAX_CLAIM)
    models, environments = dict(slots.models), dict(slots.environments)
    for (model_id, environment_id), collection_ids in _claimable().items():
        free = min(seats, models.get(model_id, seats), environments.get(environment_id, seats))
        if free <= 0:
            continue
        taken = _take(lease, collection_ids, free)
        claims.extend(taken)
        seats -= len(taken)
        models[model_id] = models.get(model_id, seats) - len(taken)
        environments[environment_id] = environments.get(environment_id, seats) - len(taken)
    return claims


def _claimable() -> dict[tuple[int, int], list[int]]:
    """Running collections by policy model and environment, the most urgent first."""
    running = Collection.objects.filter(state=Collection.State.RUNNING).order_by("priority", "id")
    grouped: dict[tuple[int, int], list[int]] = {}
    for pk, model_id, environment_id in running.values_list("pk", "policy_model_id", "environment_id"):
        grouped.setdefault((model_id, environment_id), []).append(pk)
    return grouped


def _take(lease: int, collection_ids: list[int], limit: int) -> list[Claim]:
    """Only a live lease takes anything: a worker that slept past its own must not claim under it."""
    lock = "FOR UPDATE OF rollouts_rollout SKIP LOCKED" if connection.vendor == "postgresql" else ""
    pick = _PICK.format(ids=", ".join(["%s"] * len(collection_ids)), lock=lock)
    with transaction.atomic(), connection.cursor() as cursor:
        now = connection.ops.adapt_datetimefield_value(timezone.now())
        cursor.execute(_TAKE.format(pick=pick), [lease, now, *collection_ids, lease, now, limit])
        return [Claim(lease, *row) for row in cursor.fetchall()]
