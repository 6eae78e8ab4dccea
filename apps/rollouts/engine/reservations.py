"""Limits of rollouts in flight across all workers, without a lock that all claims share.

On PostgreSQL, each worker has one row per collection with the slots that it has reserved: at least one for each
rollout it runs. A reservation locks only the limits that apply to the collection: of its model, of its environment,
and its own concurrency. It adds up the rows of all workers and takes free slots, in one short transaction. A worker
releases its own slots without a lock. Workers that lost or gave up their lease do not count.

SQLite has one writer at a time, so claims count the running rollouts instead.
"""

from collections import Counter
from collections.abc import Mapping

from django.db import connection

from apps.rollouts.models import Reservation, Worker

# A union of two ranges of the lease index, so that a single worker reads no rows. With one condition and OR, SQLite
# would scan all rows.
_RUNNING_ELSEWHERE = """
    SELECT collection_id, COUNT(*) FROM (
        SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease < %s
        UNION ALL SELECT collection_id FROM rollouts_rollout WHERE status = 'running' AND lease > %s
    ) AS elsewhere GROUP BY collection_id
"""


class Reservations:
    """The slots that one worker has reserved. Used only by its database thread, outside of transactions."""

    def __init__(self) -> None:
        self._lease = 0
        self._slots: Counter[int] = Counter()
        """Reserved slots by collection id, as stored."""

    def exceed(self, running: Mapping[int, int]) -> bool:
        """Return True if more slots are reserved than `running` needs: the number of rollouts by collection id."""
        return any(slots > running.get(pk, 0) for pk, slots in self._slots.items())

    def elsewhere(self, lease: int, running: Mapping[int, int]) -> dict[int, int]:
        """Release slots beyond `running` and return the slots of other workers, by collection id.

        `running` counts this worker's rollouts by collection id. The count comes from memory, because finished
        rollouts may not be stored yet.
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

    def reserve(self, lease: int, collection_id: int, *, wanted: int, asked: int, room: int | None) -> int:
        """Reserve up to `wanted` slots of a collection and return the number reserved.

        `asked` is the number of this worker's judge calls to the collection's model. `room` is the maximum number
        of rollouts in flight for the collection, or None.
        """
        if connection.vendor == "sqlite":
            return wanted
        with connection.cursor() as cursor:
            cursor.execute("SELECT rollouts_reserve(%s, %s, %s, %s, %s)", [lease, collection_id, wanted, asked, room])
            (granted,) = cursor.fetchone()
        self._slots[collection_id] += granted
        return int(granted)


def delete_stale_reservations() -> None:
    """Delete the reservations of workers without a lease."""
    Reservation.objects.exclude(worker__state__in=[Worker.State.ACTIVE, Worker.State.DRAINING]).delete()
