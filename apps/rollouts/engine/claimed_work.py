"""Database calls of the worker's loop.

A claim reads everything needed to run the rollouts. Once a second, the loop reads cancellations, limits, breakers and
the state of all workers.
"""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from django.db import connection, transaction

from apps.accounts.disk_space import Place, check_space
from apps.gym.traces.items import TaskRow
from apps.rollouts.engine.circuit_breakers import Endpoint, Turn, read_shut, store_turns
from apps.rollouts.engine.claiming import Claim, claim_rollouts, mark_started
from apps.rollouts.engine.collection_limits import pause_overdue
from apps.rollouts.engine.connections import CannotRun, Settings
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.running_collections import read_running
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import read_limited
from apps.rollouts.engine.worker_leases import is_draining, live_workers
from apps.rollouts.models import Collection
from apps.tasks.models import Task


class Work(NamedTuple):
    """A claimed rollout with its task row and its settings."""

    claim: Claim
    row: TaskRow
    setting: Setting


class Fetched(NamedTuple):
    """Claimed work. `has_external` says that rollouts wait for agents that run elsewhere."""

    work: list[Work]
    has_external: bool


def fetch_work(
    *,
    lease: int,
    seats: int,
    in_use: InUse,
    turns: dict[Endpoint, Turn],
    started: set[int],
    settings_in_use: Settings,
    reservations: Reservations,
    only: int | None = None,
) -> Fetched:
    """Store the breaker reports, then claim rollouts for the free slots that this worker can run.

    With `only`, claim rollouts of this collection. Without it, claim those that workers run themselves: the others wait
    until an agent asks for one.

    A task row is parsed once per batch and shared by its repeats. `started` are collections known to have started.
    Raise DiskFull: then no new rollouts start, but running ones can still be stored in the reserve.
    """
    check_space(Place.DATABASE)
    running = read_running()
    claimable = [one for one in running if one.is_claimable_by(in_use.group)]
    has_external = any(not one.has_own_loop for one in claimable)
    claimable = [one for one in claimable if (one.has_own_loop if only is None else one.pk == only)]
    if not (in_use.running or turns or claimable or reservations.exceed(in_use.collections)):
        return Fetched([], has_external)
    settings: dict[int, Setting] = {}

    def can_run(collection_id: int) -> bool:
        try:
            settings[collection_id] = settings_in_use.get(collection_id)
        except CannotRun:
            return False
        return True

    with _one_transaction_on_sqlite():
        if turns:
            store_turns(turns)
        shut = read_shut()
        slots = in_use.slots(seats, shut, reservations.elsewhere(lease, in_use.collections), running)
        claims = claim_rollouts(lease=lease, slots=slots, running=claimable, can_run=can_run, reservations=reservations)
        collections = {claim.collection_id for claim in claims}
        in_use.take_trials(shut, collections)
        if not collections <= started:
            mark_started(collections - started)
        tasks = Task.objects.filter(pk__in={claim.task_id for claim in claims}).only("row_json") if claims else ()
        rows = {task.pk: task.row for task in tasks}
    own = in_use.collections + Counter(claim.collection_id for claim in claims)
    if reservations.exceed(own):
        reservations.elsewhere(lease, own)
    started |= collections
    work = [Work(claim, rows[claim.task_id], settings[claim.collection_id]) for claim in claims]
    return Fetched(work, has_external)


def _one_transaction_on_sqlite() -> AbstractContextManager[object]:
    """Return a transaction on SQLite, where a count of running rollouts must hold until they are claimed.

    On PostgreSQL each statement commits by itself, so that no lock is held while this process works. If a later
    statement fails, the worker queues what it had claimed again (`release_unknown`).
    """
    return transaction.atomic() if connection.vendor == "sqlite" else nullcontext()


class Surroundings(NamedTuple):
    """Changes outside of the worker.

    `cancelled`: the given collections that were cancelled or deleted; `paused`: collections paused by this call;
    `live`: workers with their groups.
    """

    cancelled: set[int]
    paused: list[int]
    live: list[tuple[int, str]]
    shut: list[Endpoint]
    throttled: list[Endpoint]
    is_draining: bool


def look_around(
    *, lease: int, running: Counter[int], turns: dict[Endpoint, Turn], reservations: Reservations | None = None
) -> Surroundings:
    """Store the breaker reports, pause collections that ran out of time, and return cancellations and workers.

    `running` are this worker's rollouts by collection. With `reservations`, give back unused slots.
    """
    store_turns(turns)
    if reservations and reservations.exceed(running):
        reservations.elsewhere(lease, running)
    going_on = Collection.objects.filter(pk__in=running).exclude(state=Collection.State.CANCELLED)
    return Surroundings(
        cancelled=running.keys() - set(going_on.values_list("pk", flat=True)),
        paused=pause_overdue(),
        live=live_workers(),
        shut=list(read_shut()),
        throttled=read_limited(),
        is_draining=is_draining(lease),
    )
