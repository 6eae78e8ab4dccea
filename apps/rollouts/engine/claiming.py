"""Claim queued rollouts for a worker."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import OuterRef, Q, Subquery
from django.utils import timezone

from apps.rollouts.database_clock import server_now_sql
from apps.rollouts.models import Collection, Rollout

MAX_CLAIM = 64
MAX_SUSPECTS = 64
"""Maximum number of suspect rollouts (whose previous worker died) that one worker runs at a time."""


class Claim(NamedTuple):
    """A claimed rollout. Writes for it succeed only while `lease` and `attempt` still match the row (fencing)."""

    lease: int
    rollout_id: int
    collection_id: int
    task_id: int
    repeat: int
    seed: int
    attempt: int
    failures: int
    lost: int


class Slots(NamedTuple):
    """Free capacity of a worker: total seats, and the remaining limit per model, environment and collection id.

    `running` counts its running rollouts, `suspects` the ones that lost a worker. `alone`: one of them must run alone,
    so nothing more is claimed. `yields`: this worker drains to make room for such a rollout. `group` is its worker
    group.
    """

    seats: int
    models: Mapping[int, int] = {}
    environments: Mapping[int, int] = {}
    collections: Mapping[int, int] = {}
    running: int = 0
    suspects: int = 0
    alone: bool = False
    yields: bool = False
    group: str = ""


class _Candidate(NamedTuple):
    """A running collection with queued rollouts; `lost` is the highest number of workers lost by one of them."""

    collection_id: int
    model_id: int
    environment_id: int
    lost: int


_CLAIMING = 0x47594D57  # "GYMW": a lock number that nothing else in this database uses
MAX_QUEUING_MS = 2_000
# Two ranges joined manually, so that the lease index is used and a single worker reads nothing. SQLite answers one
# grouped condition with OR by scanning all rows.
_ELSEWHERE = """
    SELECT collection_id, COUNT(*) FROM (
        SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease < %s
        UNION ALL SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease > %s
    ) AS elsewhere GROUP BY collection_id
"""
_PICK = """
    SELECT id FROM rollouts_rollout
    WHERE status = 'queued' AND collection_id = %s AND {lost}
        AND EXISTS (SELECT 1 FROM rollouts_worker w
            WHERE w.id = %s AND w.state = 'active' AND w.lease_expires_at > {now})
        {running}
    ORDER BY id LIMIT %s {lock}
"""
_TAKE = """
    UPDATE rollouts_rollout
    SET status = 'running', lease = %s, attempt = attempt + 1, started_at = %s, finished_at = NULL
    WHERE id IN ({pick}) RETURNING id, collection_id, task_id, repeat, seed, attempt, failures, lost
"""


def claim_rollouts(*, lease: int, slots: Slots, can_run: Callable[[int], bool] | None = None) -> list[Claim]:
    """Claim at most MAX_CLAIM rollouts of running collections, within the slots of each model and environment.

    `can_run` tells whether this worker can run a collection, given its id. It is called only for collections with free
    slots. A rollout may have crashed its worker, so it is isolated step by step: after one crash it shares a worker
    with at most MAX_SUSPECTS others like it, after two it runs alone.
    """
    if slots.seats <= 0 or slots.alone:
        return []
    candidates = _claimable(slots.group)
    # Without slots there is no need to make room.
    lonely = [one for one in candidates if one.lost > 1 and _room(slots, one, 1) > 0]
    if lonely and not slots.running:
        for candidate in lonely:
            if can_run and not can_run(candidate.collection_id):
                continue
            if taken := _take(lease, candidate.collection_id, "lost > 1", 1):
                return taken
    if lonely and slots.yields:
        return []
    return _fill(lease, slots, candidates, can_run)


def has_queued(group: str) -> bool:
    """Return True if a worker of this group may find rollouts to claim. Needs no lock and one statement."""
    return bool(_claimable(group))


def _fill(lease: int, slots: Slots, candidates: list[_Candidate], can_run: Callable[[int], bool] | None) -> list[Claim]:
    claims: list[Claim] = []
    seats, suspects = min(slots.seats, MAX_CLAIM), MAX_SUSPECTS - slots.suspects
    taken_of: dict[tuple[str, int], int] = {}
    for candidate in candidates:
        names = [
            ("models", candidate.model_id),
            ("environments", candidate.environment_id),
            ("collections", candidate.collection_id),
        ]
        free = min([_room(slots, candidate, seats), *(_left(slots, *name) - taken_of.get(name, 0) for name in names)])
        if free <= 0 or (can_run and not can_run(candidate.collection_id)):
            continue
        taken: list[Claim] = []
        if candidate.lost and min(free, suspects) > 0:
            taken = _take(lease, candidate.collection_id, "lost = 1", min(free, suspects))
            suspects -= len(taken)
        if free > len(taken):
            taken += _take(lease, candidate.collection_id, "lost = 0", free - len(taken))
        claims.extend(taken)
        seats -= len(taken)
        for name in names:
            taken_of[name] = taken_of.get(name, 0) + len(taken)
        if seats <= 0:
            break
    return claims


def _left(slots: Slots, kind: str, pk: int) -> int:
    given: Mapping[int, int] = getattr(slots, kind)
    return given.get(pk, MAX_CLAIM)


def _room(slots: Slots, one: _Candidate, seats: int) -> int:
    return min(
        seats,
        _left(slots, "models", one.model_id),
        _left(slots, "environments", one.environment_id),
        _left(slots, "collections", one.collection_id),
    )


def _claimable(group: str) -> list[_Candidate]:
    """Return running collections with queued rollouts that a worker of this group may run, most urgent first."""
    with connection.cursor() as cursor:
        cursor.execute(*_claimable_sql(connection.vendor, group))
        return [_Candidate(*row) for row in cursor.fetchall() if row[-1] is not None]


@cache
def _claimable_sql(vendor: str, group: str) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL, cached because compiling the query takes longer than running it."""
    queued = Rollout.objects.filter(collection=OuterRef("pk"), status=Rollout.Status.QUEUED)
    # The order is that of the index of queued rows, so planners use it. With EXISTS they scan the table up to a queued
    # row, or the index of all rows of the collection, including hundreds of thousands of finished ones.
    most_lost = Subquery(queued.order_by("-lost", "-id").values("lost")[:1])
    running = Collection.objects.filter(usable_by(group), state=Collection.State.RUNNING)
    rows = running.order_by("priority", "id").values_list("pk", "policy_model_id", "environment_id", most_lost)
    sql, params = rows.query.sql_with_params()
    return sql, tuple(params)


def usable_by(group: str) -> Q:
    """Return a filter of collections whose model and environment a worker of this group may use.

    Either the model or the environment has this group, and the other has the same or none. A worker without a group
    runs collections without groups.
    """
    model, environment = "policy_model__worker_group", "environment__worker_group"
    if not group:
        return Q(**{model: "", environment: ""})
    return Q(**{model: group, f"{environment}__in": ["", group]}) | Q(**{model: "", environment: group})


def _take(lease: int, collection_id: int, lost: str, limit: int) -> list[Claim]:
    """Claim rollouts if the lease is live. A worker that was suspended past its lease must not claim.

    The state of the collection is checked again: it may have been paused since the candidates were read.
    """
    lock = "FOR UPDATE OF rollouts_rollout SKIP LOCKED" if connection.vendor == "postgresql" else ""
    running = "AND EXISTS (SELECT 1 FROM rollouts_collection c WHERE c.id = %s AND c.state = 'running')"
    with transaction.atomic(), connection.cursor() as cursor:
        now, moment = server_now_sql()
        pick = _PICK.format(lost=lost, lock=lock, running=running, now=now)
        started = connection.ops.adapt_datetimefield_value(timezone.now())
        given = [lease, started, collection_id, lease, *moment, collection_id, limit]
        cursor.execute(_TAKE.format(pick=pick), given)
        return [Claim(lease, *row) for row in cursor.fetchall()]


def queue_up() -> None:
    """Serialize claims until the transaction ends.

    Claims count running rollouts against limits; two concurrent counts could both see the last free slot. SQLite
    serializes writing transactions anyway.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            # idle_in_transaction_session_timeout ends the transaction of a suspended worker.
            cursor.execute(f"SET LOCAL lock_timeout = {MAX_QUEUING_MS}")
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CLAIMING])


def count_elsewhere(lease: int) -> dict[int, int]:
    """Return the number of rollouts per collection on other workers.

    This worker counts its own rollouts in memory, because finished ones may not be stored yet.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ELSEWHERE, [lease, lease])
        return dict(cursor.fetchall())


def mark_started(collection_ids: set[int]) -> None:
    """Record when the first rollout of a collection was claimed: its time limit counts from then."""
    fresh = Collection.objects.filter(pk__in=collection_ids, started_at__isnull=True)
    fresh.update(started_at=timezone.now())
