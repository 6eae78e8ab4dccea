"""Database calls of the worker's loop.

A claim reads everything needed to run the rollouts. Once a second, the loop reads cancellations, limits, breakers and
the state of all workers.
"""

from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import orjson
from django.db import connection, transaction

from apps.accounts.disk_space import Place, check_space
from apps.gym.traces.items import TaskRow
from apps.rollouts.database_clock import server_now_sql
from apps.rollouts.engine.circuit_breakers import Endpoint, Turn, read_shut, store_turns
from apps.rollouts.engine.claiming import Claim, claim_rollouts, mark_started
from apps.rollouts.engine.collection_limits import pause_overdue
from apps.rollouts.engine.connections import CannotRun, Settings
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.running_collections import read_running
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.sql_arrays import in_ids


class Work(NamedTuple):
    """A claimed rollout with its task row and its settings."""

    claim: Claim
    row: TaskRow
    setting: Setting


def fetch_work(
    *,
    lease: int,
    seats: int,
    in_use: InUse,
    turns: dict[Endpoint, Turn],
    started: set[int],
    settings_in_use: Settings,
    reservations: Reservations,
) -> list[Work]:
    """Store the breaker reports, then claim rollouts for the free slots that this worker can run.

    A task row is parsed once per batch and shared by its repeats. `started` are collections known to have started.
    Raise DiskFull: then no new rollouts start, but running ones can still be stored in the reserve.
    """
    check_space(Place.DATABASE)
    running = read_running()
    if not (
        in_use.running
        or turns
        or any(one.is_claimable_by(in_use.group) for one in running)
        or reservations.exceed(in_use.collections)
    ):
        return []
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
        slots = in_use.slots(seats, shut, reservations.read(lease, in_use.collections), running)
        claims = claim_rollouts(lease=lease, slots=slots, running=running, can_run=can_run, reservations=reservations)
        collections = {claim.collection_id for claim in claims}
        in_use.take_trials(shut, collections)
        if not collections <= started:
            mark_started(collections - started)
        rows = _read_tasks({claim.task_id for claim in claims}) if claims else {}
    reservations.release(lease, in_use.collections + Counter(claim.collection_id for claim in claims))
    started |= collections
    return [Work(claim, rows[claim.task_id], settings[claim.collection_id]) for claim in claims]


def _read_tasks(task_ids: set[int]) -> dict[int, TaskRow]:
    condition, ids = in_ids("id", task_ids)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, row_json FROM tasks_task WHERE {condition}", [ids])  # noqa: S608
        return {pk: orjson.loads(row) for pk, row in cursor.fetchall()}


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


# One statement, because every worker asks once a second. The rows are (what, id, detail).
_ENDPOINT = """COALESCE(policy_model_id, environment_id),
    CASE WHEN policy_model_id IS NULL THEN 'environment' ELSE 'policy_model' END"""
_IS_OVERDUE = {
    "postgresql": "started_at + max_seconds * interval '1 second' <= clock_timestamp()",
    "sqlite": "julianday(started_at) + max_seconds / 86400.0 <= julianday('now')",
}
_SURROUNDINGS = """
    SELECT 'live' AS what, id, "group" AS detail FROM rollouts_worker
    WHERE state = 'active' AND lease_expires_at >= {now}
    UNION ALL SELECT 'draining', id, '' FROM rollouts_worker WHERE id = %s AND state = 'draining'
    UNION ALL SELECT 'kept', id, '' FROM rollouts_collection WHERE {in_collections} AND state <> 'cancelled'
    UNION ALL SELECT 'overdue', id, '' FROM rollouts_collection WHERE state = 'running' AND {is_overdue}
    UNION ALL SELECT 'shut', {endpoint} FROM rollouts_breaker WHERE state <> 'closed'
    UNION ALL SELECT 'throttled', {endpoint} FROM rollouts_throttle WHERE limited_until > {now}
    ORDER BY 1, 2
"""


def look_around(
    *, lease: int, running: Counter[int], turns: dict[Endpoint, Turn], reservations: Reservations | None = None
) -> Surroundings:
    """Store the breaker reports, pause collections that ran out of time, and return cancellations and workers.

    `running` are this worker's rollouts by collection. With `reservations`, give back unused slots.
    """
    store_turns(turns)
    if reservations:
        reservations.release(lease, running)
    now, moment = server_now_sql()
    in_collections, ids = in_ids("id", running)
    sql = _SURROUNDINGS.format(
        now=now, in_collections=in_collections, endpoint=_ENDPOINT, is_overdue=_IS_OVERDUE[connection.vendor]
    )
    found: defaultdict[str, list[tuple[int, Any]]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*moment, lease, ids, *moment])
        for what, pk, detail in cursor.fetchall():
            found[what].append((pk, detail))
    return Surroundings(
        cancelled=running.keys() - dict(found["kept"]).keys(),
        paused=pause_overdue() if found["overdue"] else [],
        live=found["live"],
        shut=[Endpoint(kind, pk) for pk, kind in found["shut"]],
        throttled=[Endpoint(kind, pk) for pk, kind in found["throttled"]],
        is_draining=bool(found["draining"]),
    )
