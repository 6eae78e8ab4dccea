"""Enforce limits of rollouts in flight across all workers, without a global lock.

On PostgreSQL, each worker has one row per collection with its number of reserved slots: at least one per running
rollout. To reserve slots, a worker locks only the limits that apply to the collection: of its model, of its
environment, and its own. In one short transaction, the worker adds up the rows of all live workers and takes free
slots. To release slots, it needs no lock.

If a connection breaks, its statement may go on, and commit after the worker has read its slots on a new connection. So
the connection that changes the slots of a worker holds a lock of the session, and a new one ends the session before it.

SQLite has a single writer, so claims count the running rollouts instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.models import Q

from apps.rollouts.models import Collection, Reservation, Worker

# A UNION of two ranges of the lease index reads no rows if there is a single worker. One condition with OR would scan
# all rows.
_RUNNING_ELSEWHERE = """
    SELECT collection_id, COUNT(*) FROM (
        SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease < %s
        UNION ALL SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease > %s
    ) AS elsewhere GROUP BY collection_id
"""


# With a join, PostgreSQL would look up the reservations of each worker separately.
_RESERVED = """
    SELECT worker_id = %s AS is_own, collection_id, SUM(slots) FROM rollouts_reservation
    WHERE slots > 0 AND worker_id = ANY(ARRAY(SELECT id FROM rollouts_worker WHERE state IN ('active', 'draining')))
    GROUP BY 1, 2
"""

# The lock number is not used by the functions of the migrations. `lock_timeout` applies to this statement only.
_END_EARLIER_SESSION = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND classid = x'47594D04'::int::oid AND objid = %s::int::oid AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
"""
_LOCK_SESSION = "SELECT set_config('lock_timeout', '2000', true), pg_advisory_lock(x'47594D04'::int, %s)"


class Reservations:
    """The slots reserved by one worker. Used only on its database thread; on PostgreSQL, outside of transactions."""

    def __init__(self) -> None:
        self._lease = 0
        self._slots: Counter[int] = Counter()
        """Reserved slots by collection id, as stored."""
        self._running: Counter[int] = Counter()
        """Rollouts of this worker by collection id, including the rollouts that the current claim has taken."""
        self._is_certain = True
        """False if the reply to the last change was lost: the stored slots may differ from `_slots`."""
        self._locked: tuple[Any, int] = (None, 0)
        """The connection that holds the session lock of a lease, and the lease."""

    def exceed(self, running: Mapping[int, int]) -> bool:
        """Return True if more slots are reserved than needed, or if the stored slots are unknown.

        `running` is the number of rollouts by collection id.
        """
        return not self._is_certain or any(slots > running.get(pk, 0) for pk, slots in self._slots.items())

    def read(self, lease: int, running: Mapping[int, int]) -> dict[int, int]:
        """Begin a claim: return the slots of other workers, by collection id.

        `running` counts this worker's rollouts by collection id. It is counted in memory, because finished rollouts may
        not be stored yet.
        """
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute(_RUNNING_ELSEWHERE, [lease, lease])
                return dict(cursor.fetchall())
            self._lock_session(lease)
            cursor.execute(_RESERVED, [lease])
            rows = cursor.fetchall()
        self._lease, self._running, self._is_certain = lease, Counter(running), True
        self._slots = Counter({pk: int(slots) for is_own, pk, slots in rows if is_own})
        return {pk: int(slots) for is_own, pk, slots in rows if not is_own}

    def release(self, lease: int, running: Mapping[int, int]) -> None:
        """Release the slots that `running` does not need."""
        if self.exceed(running):
            self._lock_session(lease)
            self._change("SELECT rollouts_release(%s, %s::bigint[], %s::int[])", [lease, *_columns(running)])
            self._keep(running)

    def reserve(self, collection_id: int, *, wanted: int, judge_calls: int, max_in_flight: int | None) -> int:
        """Reserve slots for up to `wanted` more rollouts of a collection and return their number.

        Slots of ended rollouts are used again. Unused slots of other collections are released first: they may belong
        to a less urgent collection that shares a limit. `judge_calls` is the number of this worker's judge calls to
        the collection's model. `max_in_flight` is the maximum number of rollouts in flight for the collection, or None.
        """
        if connection.vendor == "sqlite":
            return wanted
        unused = max(0, self._slots[collection_id] - self._running[collection_id])
        if unused >= wanted:
            return wanted
        needed = self._running + Counter({collection_id: unused})
        given = [self._lease, collection_id, wanted - unused, judge_calls, max_in_flight, *_columns(needed)]
        granted = int(self._change("SELECT rollouts_reserve(%s, %s, %s, %s, %s, %s::bigint[], %s::int[])", given))
        self._keep(needed)
        self._slots[collection_id] += granted
        return unused + granted

    def use(self, collection_id: int, number: int) -> None:
        """Count the rollouts that the current claim has taken."""
        self._running[collection_id] += number

    def _lock_session(self, lease: int) -> None:
        """Return once no statement of an earlier connection of this worker can run any more."""
        if self._locked == (connection.connection, lease):
            return
        number = lease % 2147483647
        with connection.cursor() as cursor:
            cursor.execute(_END_EARLIER_SESSION, [number])
            cursor.execute(_LOCK_SESSION, [number])
        self._locked = (connection.connection, lease)

    def _keep(self, running: Mapping[int, int]) -> None:
        """Count the slots that are left after the others have been released."""
        self._slots = +Counter({pk: min(slots, running.get(pk, 0)) for pk, slots in self._slots.items()})

    def _change(self, sql: str, given: Sequence[Any]) -> Any:
        self._is_certain = False
        with connection.cursor() as cursor:
            cursor.execute(sql, given)
            (result,) = cursor.fetchone()
        self._is_certain = True
        return result


def _columns(running: Mapping[int, int]) -> list[list[int]]:
    return [list(running), list(running.values())]


def delete_stale_reservations() -> None:
    """Delete the reservations of workers without a lease, and empty ones of collections that do not run.

    Reservations that another worker is changing are left to the next call: two workers that stop at the same time
    would wait for each other.
    """
    live = Worker.objects.filter(state__in=[Worker.State.ACTIVE, Worker.State.DRAINING])
    running = Collection.objects.filter(state=Collection.State.RUNNING)
    is_stale = ~Q(worker__in=live) | Q(slots=0) & ~Q(collection__in=running)
    stale = Reservation.objects.filter(is_stale).select_for_update(skip_locked=True)
    Reservation.objects.filter(pk__in=stale.values("pk")).delete()
