"""Enforce limits of rollouts in flight across all workers, without a global lock.

On PostgreSQL, each worker has one row per collection with its number of reserved slots: at least one per running
rollout. Reserving locks only the limits that apply to the collection (its model, its environment, its own concurrency),
sums up the rows of all workers with a live lease, and takes free slots, in one short transaction. Releasing needs no
lock.

SQLite has a single writer, so claims count the running rollouts instead.
"""

from collections import Counter
from collections.abc import Mapping

from django.db import connection

from apps.rollouts.models import Reservation, Worker

# A UNION of two ranges of the lease index reads no rows if there is a single worker. One condition with OR would scan
# all rows.
_RUNNING_ELSEWHERE = """
    SELECT collection_id, COUNT(*) FROM (
        SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease < %s
        UNION ALL SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease > %s
    ) AS elsewhere GROUP BY collection_id
"""


class Reservations:
    """The slots reserved by one worker. Used only on its database thread, outside of transactions."""

    def __init__(self) -> None:
        self._lease = 0
        self._slots: Counter[int] = Counter()
        """Reserved slots by collection id, as stored."""

    def has_unused(self, running: Mapping[int, int]) -> bool:
        """Return True if more slots are reserved than needed.

        `running` counts this worker's rollouts by collection id.
        """
        return any(slots > running.get(pk, 0) for pk, slots in self._slots.items())

    def release_unused(self, lease: int, running: Mapping[int, int]) -> dict[int, int]:
        """Release slots beyond `running`, and return the slots of other workers by collection id.

        `running` counts this worker's rollouts by collection id. It is counted in memory, because finished rollouts may
        not be stored yet.
        """
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute(_RUNNING_ELSEWHERE, [lease, lease])
                return dict(cursor.fetchall())
            own = [list(running), list(running.values())]
            cursor.execute("SELECT * FROM rollouts_reserved_elsewhere(%s, %s::bigint[], %s::int[])", [lease, *own])
            elsewhere = dict(cursor.fetchall())
        if lease != self._lease:
            self._lease, self._slots = lease, Counter()
        self._slots = +Counter({pk: min(slots, running.get(pk, 0)) for pk, slots in self._slots.items()})
        return elsewhere

    def reserve(
        self, lease: int, collection_id: int, *, wanted: int, judge_calls: int, max_in_flight: int | None
    ) -> int:
        """Reserve up to `wanted` slots of a collection and return the number reserved.

        `judge_calls` is the number of this worker's judge calls to the collection's model. `max_in_flight` is the
        maximum number of rollouts in flight of the collection, or None.
        """
        if connection.vendor == "sqlite":
            return wanted
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT rollouts_reserve(%s, %s, %s, %s, %s)",
                [lease, collection_id, wanted, judge_calls, max_in_flight],
            )
            (granted,) = cursor.fetchone()
        self._slots[collection_id] += granted
        return int(granted)


def delete_stale_reservations() -> None:
    """Delete the reservations of workers without a lease."""
    Reservation.objects.exclude(worker__state__in=[Worker.State.ACTIVE, Worker.State.DRAINING]).delete()
