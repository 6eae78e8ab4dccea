"""Database calls of the worker's loop: claim rollouts with everything needed to run them, and poll for updates."""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from django.db import connection, transaction

from apps.accounts.disk_space import Place, check_space
from apps.gym.traces.items import TaskRow
from apps.rollouts.engine.circuit_breakers import BreakerReport, Endpoint, read_open_breakers, store_reports
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
    """A claimed rollout with its task row and settings."""

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
    reports: dict[Endpoint, BreakerReport],
    started: set[int],
    settings_in_use: Settings,
    reservations: Reservations,
    only: int | None = None,
) -> Fetched:
    """Store the breaker reports, then claim rollouts for the free seats.

    With `only`, claim rollouts of this collection. Without it, claim those that workers run themselves: the others wait
    until an agent asks for one.

    Task rows are parsed once per batch and shared by repeats. `started` are the collections known to have started; new
    ones are added. Raise DiskFull if no new rollouts may start; the reserve on disk then still holds the results of
    running ones.
    """
    check_space(Place.DATABASE)
    running = read_running()
    claimable = [one for one in running if one.is_claimable_by(in_use.group)]
    has_external = any(not one.has_own_loop for one in claimable)
    claimable = [one for one in claimable if (one.has_own_loop if only is None else one.pk == only)]
    if not (in_use.running or reports or claimable or reservations.has_unused(in_use.collections)):
        return Fetched([], has_external)
    settings: dict[int, Setting] = {}

    def can_run(collection_id: int) -> bool:
        try:
            settings[collection_id] = settings_in_use.get(collection_id)
        except CannotRun:
            return False
        return True

    with _one_transaction_on_sqlite():
        if reports:
            store_reports(reports)
        open_breakers = read_open_breakers()
        slots = in_use.slots(seats, open_breakers, reservations.release_unused(lease, in_use.collections), running)
        claims = claim_rollouts(lease=lease, slots=slots, running=claimable, can_run=can_run, reservations=reservations)
        collections = {claim.collection_id for claim in claims}
        in_use.claim_breaker_tests(open_breakers, collections)
        if not collections <= started:
            mark_started(collections - started)
        tasks = Task.objects.filter(pk__in={claim.task_id for claim in claims}).only("row_json") if claims else ()
        rows = {task.pk: task.row for task in tasks}
    own = in_use.collections + Counter(claim.collection_id for claim in claims)
    if reservations.has_unused(own):
        reservations.release_unused(lease, own)
    started |= collections
    work = [Work(claim, rows[claim.task_id], settings[claim.collection_id]) for claim in claims]
    return Fetched(work, has_external)


def _one_transaction_on_sqlite() -> AbstractContextManager[object]:
    """Return a transaction on SQLite, where the count of running rollouts must stay valid until the claim.

    On PostgreSQL each statement commits by itself, so that no lock is held between statements. If a later statement
    fails, claimed rollouts are requeued (`release_unknown`).
    """
    return transaction.atomic() if connection.vendor == "sqlite" else nullcontext()


class WorkerUpdates(NamedTuple):
    """Changes made outside of this worker, read once per poll.

    `cancelled` are collections of this worker that were cancelled or deleted, `paused` those that this poll paused.
    `live` has (worker id, group) of all claiming workers. `open_breakers` and `throttled` are endpoints.
    """

    cancelled: set[int]
    paused: list[int]
    live: list[tuple[int, str]]
    open_breakers: list[Endpoint]
    throttled: list[Endpoint]
    is_draining: bool


def read_updates(
    *,
    lease: int,
    running: Counter[int],
    reports: dict[Endpoint, BreakerReport],
    reservations: Reservations | None = None,
) -> WorkerUpdates:
    """Store the breaker reports, pause overdue collections, and read changes by others.

    `running` counts this worker's rollouts by collection id. With `reservations`, release unused slots.
    """
    store_reports(reports)
    if reservations and reservations.has_unused(running):
        reservations.release_unused(lease, running)
    continuing = Collection.objects.filter(pk__in=running).exclude(state=Collection.State.CANCELLED)
    return WorkerUpdates(
        cancelled=running.keys() - set(continuing.values_list("pk", flat=True)),
        paused=pause_overdue(),
        live=live_workers(),
        open_breakers=list(read_open_breakers()),
        throttled=read_limited(),
        is_draining=is_draining(lease),
    )
