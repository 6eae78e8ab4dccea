"""Database calls of the worker's loop: claim rollouts with everything needed to run them, and poll for updates."""

from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from django.db import connection, transaction

from apps.accounts.disk_space import Place, check_space
from apps.gym.tasks.task_rows import load_row
from apps.gym.traces.items import TaskRow
from apps.rollouts.database_clock import server_now_sql
from apps.rollouts.engine.circuit_breakers import BreakerReport, Endpoint, read_open_breakers, store_reports
from apps.rollouts.engine.claiming import Claim, claim_rollouts, mark_started
from apps.rollouts.engine.collection_limits import pause_overdue
from apps.rollouts.engine.connections import CannotRun, Settings
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.running_collections import read_running
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.sql_arrays import in_ids
from apps.tasks.stored_images import with_images


class Work(NamedTuple):
    """A claimed rollout with its task row and settings."""

    claim: Claim
    row: TaskRow
    setting: Setting


class Fetched(NamedTuple):
    """Claimed work. `has_external` says that rollouts wait for external agents."""

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

    With `only`, claim rollouts of this collection. Without it, skip collections of external agents: those agents
    request their rollouts one at a time.

    Task rows are parsed once per batch and shared by repeats. `started` are the collections known to have started; new
    ones are added. Raise DiskFull if the disk is almost full. The remaining space is reserved for the results of
    running rollouts.
    """
    check_space(Place.DATABASE)
    running = read_running()
    claimable = [one for one in running if one.is_claimable_by(in_use.group)]
    has_external = any(not one.runs_in_worker for one in claimable)
    claimable = [one for one in claimable if (one.runs_in_worker if only is None else one.pk == only)]
    if not (in_use.running or reports or claimable or reservations.exceed(in_use.collections)):
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
        slots = in_use.slots(seats, open_breakers, reservations.read(lease, in_use.collections), running)
        claims = claim_rollouts(lease=lease, slots=slots, running=claimable, can_run=can_run, reservations=reservations)
        collections = {claim.collection_id for claim in claims}
        in_use.claim_breaker_tests(open_breakers, collections)
        if not collections <= started:
            mark_started(collections - started)
        rows = _read_tasks({claim.task_id for claim in claims}) if claims else {}
    reservations.release(lease, in_use.collections + Counter(claim.collection_id for claim in claims))
    started |= collections
    work = [Work(claim, rows[claim.task_id], settings[claim.collection_id]) for claim in claims]
    return Fetched(work, has_external)


def _read_tasks(task_ids: set[int]) -> dict[int, TaskRow]:
    condition, ids = in_ids("id", task_ids)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, row_json FROM tasks_task WHERE {condition}", [ids])  # noqa: S608
        return {pk: load_row(with_images(row)) for pk, row in cursor.fetchall()}


def _one_transaction_on_sqlite() -> AbstractContextManager[object]:
    """Return a transaction on SQLite, where the count of running rollouts must stay valid until the claim.

    On PostgreSQL each statement commits by itself, so that no lock is held between statements. If a later statement
    fails, claimed rollouts are requeued (`release_unknown`).
    """
    return transaction.atomic() if connection.vendor == "sqlite" else nullcontext()


class WorkerUpdates(NamedTuple):
    """The result of one poll.

    `cancelled` are collections of this worker that were cancelled or deleted. `paused` are the overdue collections that
    this poll paused. `claiming` has (worker id, group) of all claiming workers. `open_breakers` and `throttled` are
    endpoints.
    """

    cancelled: set[int]
    paused: list[int]
    claiming: list[tuple[int, str]]
    open_breakers: list[Endpoint]
    throttled: list[Endpoint]
    is_draining: bool


_ENDPOINT = """COALESCE(policy_model_id, environment_id),
    CASE WHEN policy_model_id IS NULL THEN 'environment' ELSE 'policy_model' END"""
_IS_OVERDUE = {
    "postgresql": "started_at + max_seconds * interval '1 second' <= clock_timestamp()",
    "sqlite": "julianday(started_at) + max_seconds / 86400.0 <= julianday('now')",
}
# One statement, because a busy worker runs it every second or two. Rows are (what, id, detail).
_UPDATES = """
    SELECT 'claiming' AS what, id, "group" AS detail FROM rollouts_worker
    WHERE state = 'active' AND lease_expires_at >= {now}
    UNION ALL SELECT 'draining', id, '' FROM rollouts_worker WHERE id = %s AND state = 'draining'
    UNION ALL SELECT 'kept', id, '' FROM rollouts_collection WHERE {in_collections} AND state <> 'cancelled'
    UNION ALL SELECT 'overdue', id, '' FROM rollouts_collection WHERE state = 'running' AND {is_overdue}
    UNION ALL SELECT 'open_breaker', {endpoint} FROM rollouts_breaker WHERE state <> 'closed'
    UNION ALL SELECT 'throttled', {endpoint} FROM rollouts_throttle WHERE limited_until > {now}
    ORDER BY 1, 2
"""


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
    if reservations:
        reservations.release(lease, running)
    now, moment = server_now_sql()
    in_collections, ids = in_ids("id", running)
    sql = _UPDATES.format(
        now=now, in_collections=in_collections, endpoint=_ENDPOINT, is_overdue=_IS_OVERDUE[connection.vendor]
    )
    found: defaultdict[str, list[tuple[int, Any]]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*moment, lease, ids, *moment])
        for what, pk, detail in cursor.fetchall():
            found[what].append((pk, detail))
    return WorkerUpdates(
        cancelled=running.keys() - dict(found["kept"]).keys(),
        paused=pause_overdue() if found["overdue"] else [],
        claiming=found["claiming"],
        open_breakers=[Endpoint(kind, pk) for pk, kind in found["open_breaker"]],
        throttled=[Endpoint(kind, pk) for pk, kind in found["throttled"]],
        is_draining=bool(found["draining"]),
    )
