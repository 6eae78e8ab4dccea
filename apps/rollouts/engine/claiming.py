"""Claim queued rollouts for a worker."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from apps.rollouts.database_clock import server_now_sql
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.running_collections import RunningCollection, read_running
from apps.rollouts.models import Collection

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
    group. `rooms` has the maximum number of rollouts in flight by collection id. `asked` has this worker's judge
    calls by model id. Reservations apply both.
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
    rooms: Mapping[int, int] = {}
    asked: Mapping[int, int] = {}


_PICK = """
    SELECT id FROM rollouts_rollout
    WHERE status = 'queued' AND collection_id = %s AND {lost}
        AND EXISTS (SELECT 1 FROM rollouts_worker w
            WHERE w.id = %s AND w.state = 'active' AND w.lease_expires_at > {now})
        {running}
    ORDER BY id LIMIT {limit} {lock}
"""
_TAKE = """
    UPDATE rollouts_rollout
    SET status = 'running', lease = %s, attempt = attempt + 1, started_at = %s, finished_at = NULL
    WHERE id IN ({pick}) RETURNING id, collection_id, task_id, repeat, seed, attempt, failures, lost
"""


def claim_rollouts(
    *,
    lease: int,
    slots: Slots,
    running: list[RunningCollection] | None = None,
    can_run: Callable[[int], bool] | None = None,
    reservations: Reservations | None = None,
) -> list[Claim]:
    """Claim at most MAX_CLAIM rollouts of running collections, within the slots of each model and environment.

    `running` are the running collections, read here if absent. `can_run` tells whether this worker can run a
    collection, given its id. It is called only for collections with free slots. A rollout may have crashed its worker,
    so it is isolated step by step: after one crash it shares a worker with at most MAX_SUSPECTS others like it, after
    two it runs alone.
    """
    if slots.seats <= 0 or slots.alone:
        return []
    running = read_running() if running is None else running
    candidates = [one for one in running if one.is_claimable_by(slots.group)]
    claiming = _Claiming(lease, slots, can_run or (lambda _: True), reservations or Reservations())
    # No worker needs to drain for a rollout of a collection without free slots.
    lonely = [one for one in candidates if (one.most_lost or 0) > 1 and _room(slots, one, 1) > 0]
    if lonely and not slots.running:
        for candidate in lonely:
            if taken := claiming.take(candidate, "lost > 1", 1):
                return taken
    if lonely and slots.yields:
        return []
    return claiming.fill(candidates)


class _Claiming:
    """One claim of a worker."""

    def __init__(self, lease: int, slots: Slots, can_run: Callable[[int], bool], reservations: Reservations) -> None:
        self._lease, self._slots, self._can_run, self._reservations = lease, slots, can_run, reservations
        self._taken: Counter[tuple[str, int]] = Counter()

    def fill(self, candidates: list[RunningCollection]) -> list[Claim]:
        claims: list[Claim] = []
        seats, suspects = min(self._slots.seats, MAX_CLAIM), MAX_SUSPECTS - self._slots.suspects
        for candidate in candidates:
            if candidate.most_lost and min(seats, suspects) > 0:
                taken = self.take(candidate, "lost = 1", min(seats, suspects))
                suspects -= len(taken)
                seats -= len(taken)
                claims += taken
            taken = self.take(candidate, "lost = 0", seats)
            seats -= len(taken)
            claims += taken
            if seats <= 0:
                break
        return claims

    def take(self, candidate: RunningCollection, lost: str, limit: int) -> list[Claim]:
        """Claim up to `limit` rollouts of one collection. `lost` is a SQL condition on the number of lost workers."""
        limits = _limits(candidate)
        free = min(limit, *(_left(self._slots, *name) - self._taken[name] for name in limits))
        if free <= 0 or not self._can_run(candidate.pk):
            return []
        free = self._reservations.reserve(
            candidate.pk,
            wanted=free,
            asked=self._slots.asked.get(candidate.model, 0),
            room=self._slots.rooms.get(candidate.pk),
        )
        taken = _take(self._lease, candidate.pk, lost, free) if free else []
        self._reservations.use(candidate.pk, len(taken))
        self._taken.update(dict.fromkeys(limits, len(taken)))
        return taken


def _left(slots: Slots, kind: str, pk: int) -> int:
    given: Mapping[int, int] = getattr(slots, kind)
    return given.get(pk, MAX_CLAIM)


def _room(slots: Slots, one: RunningCollection, seats: int) -> int:
    return min(seats, *(_left(slots, *name) for name in _limits(one)))


def _limits(one: RunningCollection) -> list[tuple[str, int]]:
    """Return the limits of a collection, as names and keys of Slots."""
    return [("models", one.model), ("environments", one.environment), ("collections", one.pk)]


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
    with connection.cursor() as cursor:
        now, moment = server_now_sql()
        # As a parameter, the limit would keep PostgreSQL from keeping the plan.
        pick = _PICK.format(lost=lost, lock=lock, running=running, now=now, limit=int(limit))
        started = connection.ops.adapt_datetimefield_value(timezone.now())
        given = [lease, started, collection_id, lease, *moment, collection_id]
        cursor.execute(_TAKE.format(pick=pick), given)
        return [Claim(lease, *row) for row in cursor.fetchall()]


def mark_started(collection_ids: set[int]) -> None:
    """Record when the first rollout of a collection was claimed: its time limit counts from then."""
    fresh = Collection.objects.filter(pk__in=collection_ids, started_at__isnull=True)
    fresh.update(started_at=timezone.now())
