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
from apps.rollouts.sql_arrays import in_limited

MAX_CLAIM = 64
"""Maximum number of rollouts claimed at a time."""
MAX_SUSPECTS = 64
"""Maximum number of suspect rollouts (those that have lost a worker) that one worker runs at a time."""


class Claim(NamedTuple):
    """A claimed rollout. Its end is stored only while `lease` and `attempt` still match the row (fencing).

    `repeat` numbers the rollouts of a task from 0. `failures` counts its failed attempts, and `lost` the workers that
    died while running it.
    """

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
    """Free capacity of a worker: free seats, and remaining slots by model, environment and collection id.

    `running` is the number of its running rollouts, `suspects` how many of them have lost a worker before.
    `group` is its worker group.

    A rollout that has lost two workers is quarantined: it runs alone on its worker. `alone` is True if this worker runs
    a quarantined rollout, so it must claim no more. `yields` is True if this worker is the one that makes room for
    quarantined rollouts: while one is queued, it claims nothing until its running rollouts have ended.

    `max_in_flight` limits rollouts in flight by collection id. `judge_calls` counts this worker's judge calls by model
    id. Both are only passed on to `Reservations.reserve`.

    `tests` counts the test rollouts of the collections whose next rollout tests an endpoint with an open breaker. The
    collection with the fewest tests goes first, with its least attempted rollout. `failing` are collections that mostly
    fail: they go last.
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
    max_in_flight: Mapping[int, int] = {}
    judge_calls: Mapping[int, int] = {}
    tests: Mapping[int, int] = {}
    failing: frozenset[int] = frozenset()


# `lost < 1` ordered by `lost` makes PostgreSQL read the index of queued rows. With `lost = 0` ordered by `id`, it reads
# the index of all rollouts, and with it every rollout of the collection that has ended.
_NEVER_LOST = "lost < 1"
_SELECT_QUEUED = """
    SELECT {columns} FROM rollouts_rollout
    WHERE status = 'queued' AND collection_id = %s AND {lost}
        AND EXISTS (SELECT 1 FROM rollouts_worker w
            WHERE w.id = %s AND w.state = 'active' AND w.lease_expires_at > {now})
        {running}
    ORDER BY lost, id LIMIT {limit} {lock}
"""
_SELECT_LEAST_ATTEMPTED = "SELECT id FROM ({queued}) queued ORDER BY attempt, id LIMIT {limit}"
TEST_WINDOW = 1_000
"""Queued rollouts of a collection among which the least attempted one is chosen for a test."""
_CLAIM = """
    UPDATE rollouts_rollout
    SET status = 'running', lease = %s, attempt = attempt + 1, started_at = %s, finished_at = NULL
    WHERE {selected} RETURNING id, collection_id, task_id, repeat, seed, attempt, failures, lost
"""


def claim_rollouts(
    *,
    lease: int,
    slots: Slots,
    running: list[RunningCollection] | None = None,
    can_run: Callable[[int], bool] | None = None,
    reservations: Reservations | None = None,
) -> list[Claim]:
    """Claim at most MAX_CLAIM rollouts of running collections, within the given slots.

    `running` are the running collections; by default they are read here. `can_run(collection id)` tells whether this
    worker can run a collection; it is called only for collections with free slots.

    A rollout may crash its worker. A worker runs at most MAX_SUSPECTS rollouts that have crashed one worker. A rollout
    that has crashed two runs alone.
    """
    if slots.seats <= 0 or slots.alone:
        return []
    running = read_running() if running is None else running
    candidates = _in_turn([one for one in running if one.is_claimable_by(slots.group)], slots.tests)
    candidates.sort(key=lambda one: one.pk in slots.failing)
    claiming = _Claiming(lease, slots, can_run or (lambda _: True), reservations or Reservations())
    # Ignore collections without a free slot: no worker should make room for a rollout that cannot start.
    quarantined = [one for one in candidates if (one.max_worker_losses or 0) > 1 and _free_slots(slots, one, 1) > 0]
    if quarantined and not slots.running:
        for candidate in quarantined:
            if taken := claiming.take(candidate, "lost > 1", 1):
                return taken
    if quarantined and slots.yields:
        return []
    return claiming.fill(candidates)


def _in_turn(candidates: list[RunningCollection], tests: Mapping[int, int]) -> list[RunningCollection]:
    """Return the candidates. Among collections that test an endpoint, the one with the fewest tests goes first."""
    testing = iter(sorted((one for one in candidates if one.pk in tests), key=lambda one: tests[one.pk]))
    return [next(testing) if one.pk in tests else one for one in candidates]


class _Claiming:
    """One round of claiming, which tracks the slots already used."""

    def __init__(self, lease: int, slots: Slots, can_run: Callable[[int], bool], reservations: Reservations) -> None:
        self._lease, self._slots, self._can_run, self._reservations = lease, slots, can_run, reservations
        self._used: Counter[tuple[str, int]] = Counter()  # slots by key

    def fill(self, candidates: list[RunningCollection]) -> list[Claim]:
        """Claim rollouts that are not quarantined, in the order of the collections, until no seat is free."""
        claims: list[Claim] = []
        seats, suspects = min(self._slots.seats, MAX_CLAIM), MAX_SUSPECTS - self._slots.suspects
        for candidate in candidates:
            if candidate.max_worker_losses and min(seats, suspects) > 0:
                taken = self.take(candidate, "lost = 1", min(seats, suspects))
                suspects -= len(taken)
                seats -= len(taken)
                claims += taken
            taken = self.take(candidate, _NEVER_LOST, seats)
            seats -= len(taken)
            claims += taken
            if seats <= 0:
                break
        return claims

    def take(self, candidate: RunningCollection, loss_condition: str, limit: int) -> list[Claim]:
        """Claim up to `limit` rollouts of one collection. `loss_condition` is SQL on the number of lost workers."""
        keys = _slot_keys(candidate)
        free = min(limit, *(_remaining(self._slots, *key) - self._used[key] for key in keys))
        if free <= 0 or not self._can_run(candidate.pk):
            return []
        free = self._reservations.reserve(
            candidate.pk,
            wanted=free,
            judge_calls=self._slots.judge_calls.get(candidate.model, 0),
            max_in_flight=self._slots.max_in_flight.get(candidate.pk),
        )
        is_test = candidate.pk in self._slots.tests
        claims = _claim_rows(self._lease, candidate.pk, loss_condition, free, is_test=is_test) if free else []
        self._reservations.use(candidate.pk, len(claims))
        self._used.update(dict.fromkeys(keys, len(claims)))
        return claims


def _remaining(slots: Slots, field: str, pk: int) -> int:
    """Return the remaining slots of a limit, or MAX_CLAIM if there is no limit."""
    remaining: Mapping[int, int] = getattr(slots, field)
    return remaining.get(pk, MAX_CLAIM)


def _free_slots(slots: Slots, one: RunningCollection, seats: int) -> int:
    return min(seats, *(_remaining(slots, *key) for key in _slot_keys(one)))


def _slot_keys(one: RunningCollection) -> list[tuple[str, int]]:
    """Return the keys of the limits that apply to a collection: (field of Slots, id)."""
    return [("models", one.model), ("environments", one.environment), ("collections", one.pk)]


def usable_by(group: str) -> Q:
    """Return a filter for collections that workers of this group may run.

    Model and environment must each have this group or none, and at least one must have it. A worker without a group
    runs only collections whose model and environment have none.
    """
    model, environment = "policy_model__worker_group", "environment__worker_group"
    if not group:
        return Q(**{model: "", environment: ""})
    return Q(**{model: group, f"{environment}__in": ["", group]}) | Q(**{model: "", environment: group})


def _claim_rows(
    lease: int, collection_id: int, loss_condition: str, limit: int, *, is_test: bool = False
) -> list[Claim]:
    """Claim rollouts of one collection.

    Claims nothing if the lease has expired, for example because the worker was suspended, or if the collection has been
    paused since it was read.
    """
    lock = "FOR UPDATE OF rollouts_rollout SKIP LOCKED" if connection.vendor == "postgresql" else ""
    running = "AND EXISTS (SELECT 1 FROM rollouts_collection c WHERE c.id = %s AND c.state = 'running')"
    with connection.cursor() as cursor:
        now, now_parameters = server_now_sql()
        # The limit is part of the SQL: with a parameter, PostgreSQL would not cache the plan.
        columns, most = ("id, attempt", TEST_WINDOW) if is_test else ("id", int(limit))
        select = _SELECT_QUEUED.format(
            columns=columns, lost=loss_condition, lock=lock, running=running, now=now, limit=most
        )
        if is_test:
            select = _SELECT_LEAST_ATTEMPTED.format(queued=select, limit=int(limit))
        started = connection.ops.adapt_datetimefield_value(timezone.now())
        parameters = [lease, started, collection_id, lease, *now_parameters, collection_id]
        cursor.execute(_CLAIM.format(selected=in_limited("id", select)), parameters)
        return [Claim(lease, *row) for row in cursor.fetchall()]


def mark_started(collection_ids: set[int]) -> None:
    """Record when the first rollout of each collection was claimed. Time limits count from then."""
    fresh = Collection.objects.filter(pk__in=collection_ids, started_at__isnull=True)
    fresh.update(started_at=timezone.now())
