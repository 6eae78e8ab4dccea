"""Worker leases: take, renew, drain, release and expire them."""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Container
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from apps.accounts.outage_log import RetryLog
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.database_clock import server_now
from apps.rollouts.engine.collection_limits import lock_collections, settle_collections
from apps.rollouts.engine.database_thread import keep_plans
from apps.rollouts.engine.reservations import delete_stale_reservations
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.search.word_index import mark_unindexed

STATES_WITH_LEASE = (Worker.State.ACTIVE, Worker.State.DRAINING)
"""States of workers that hold a lease. Only active workers claim rollouts, see `claiming_workers`."""
MAX_TROUBLE = 500
"""Maximum characters of `trouble` in a heartbeat."""
BEATS_PER_FULL_SEARCH = 5
"""One heartbeat in this many searches all running rollouts for lost leases, even if no lease has expired."""
MAX_LOST = 3
"""Number of lost workers after which their rollout fails, because it may have crashed them."""


class Vitals(NamedTuple):
    """State of a worker, reported with every heartbeat.

    `busy` is the number of running rollouts, `backlog` the number of finished rollouts waiting to be stored. `refuses`
    maps the id of each collection that the worker cannot run to the reason. `meters` are its counters (Meters.read).
    """

    busy: int = 0
    backlog: int = 0
    trouble: str = ""
    refuses: dict[str, str] = {}
    meters: dict[str, Any] = {}


def take_lease(*, seats: int, group: str = "") -> Worker:
    """Create a worker with a new lease. The id of the worker is the id of its lease."""
    with transaction.atomic():
        worker = Worker.objects.create(
            host=socket.gethostname(),
            pid=os.getpid(),
            group=group,
            seats=seats,
            heartbeat_at=server_now(),
            lease_expires_at=server_now(_lease_duration()),
        )
        worker.refresh_from_db()
    return worker


def renew_lease(*, worker_id: int, vitals: Vitals) -> bool:
    """Renew the lease and store the vitals. Return False if the worker no longer holds the lease."""
    own = Worker.objects.filter(pk=worker_id, state__in=STATES_WITH_LEASE)
    fields = {**vitals._asdict(), "trouble": cut_clean(vitals.trouble, MAX_TROUBLE)}
    with transaction.atomic():
        if connection.vendor == "postgresql":
            # UPDATE computes its values before it waits for the row lock, but the lease must start after the wait.
            list(own.select_for_update().values_list("pk", flat=True))
        return bool(own.update(heartbeat_at=server_now(), lease_expires_at=server_now(_lease_duration()), **fields))


def drain_lease(*, worker_id: int) -> None:
    """Mark the worker as draining: it claims no more rollouts, and other workers get its share of the judge limits."""
    Worker.objects.filter(pk=worker_id, state=Worker.State.ACTIVE).update(state=Worker.State.DRAINING)


def release_lease(*, worker_id: int) -> int:
    """End the lease of this worker and requeue its running rollouts. Return their number."""
    with transaction.atomic():
        Worker.objects.filter(pk=worker_id, state__in=STATES_WITH_LEASE).update(state=Worker.State.STOPPED, busy=0)
        delete_stale_reservations()
        return _take_back("lease = %s", [worker_id], losses=0)


def reap_leases(*, is_thorough: bool = True) -> int:
    """Expire overdue leases and take back the rollouts of lost workers. Return the number of expired leases.

    Without `is_thorough`, search for such rollouts only if a lease has expired: the search reads all running rollouts.
    """
    expired = Worker.objects.filter(state__in=STATES_WITH_LEASE, lease_expires_at__lt=server_now())
    if not is_thorough and not expired.exists():
        return 0
    with transaction.atomic():
        _limit_lock_waits()
        reaped = expired.update(state=Worker.State.LOST, busy=0)
        delete_stale_reservations()
        # Read rollouts and leases in one statement. With two, a lease taken between them would look lost.
        _take_back(
            "lease NOT IN (SELECT id FROM rollouts_worker WHERE state IN (%s, %s))", [*STATES_WITH_LEASE], losses=1
        )
    return reaped


def _limit_lock_waits() -> None:
    """Limit waits for locks: a heartbeat that waits longer than its lease lasts would lose the lease.

    After a timeout, the next heartbeat tries again.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {int(settings.WORKER_LEASE_SECONDS * 1000 / 6)}")


_TAKE_BACK = """
    UPDATE rollouts_rollout SET
        status = CASE
            WHEN collection_id IN (SELECT id FROM rollouts_collection WHERE state = 'cancelled') THEN 'cancelled'
            WHEN lost + %s >= %s THEN 'failed' ELSE 'queued' END,
        error_kind = CASE
            WHEN collection_id IN (SELECT id FROM rollouts_collection WHERE state = 'cancelled') THEN ''
            WHEN lost + %s >= %s THEN 'worker_lost' ELSE '' END,
        error_message = CASE WHEN lost + %s >= %s THEN %s ELSE '' END,
        finished_at = CASE
            WHEN collection_id IN (SELECT id FROM rollouts_collection WHERE state = 'cancelled') THEN %s
            WHEN lost + %s >= %s THEN %s END,
        lost = lost + %s, lease = NULL
    WHERE status = 'running' AND {condition} RETURNING collection_id, status, id, task_id
"""


def _take_back(condition: str, parameters: list[Any], *, losses: int) -> int:
    """Requeue, fail or cancel the running rollouts that match an SQL condition. Return their number.

    `losses` is 1 if their workers were lost, else 0. One statement changes the rollouts, and the counters of their
    collections are updated from the rows that it returns.
    """
    limits = [losses, MAX_LOST]
    message = f"{MAX_LOST} workers were lost while running this rollout."
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    values = [*limits, *limits, *limits, message, now, *limits, now, losses, *parameters]
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_BACK.format(condition=condition), values)
        rows = cursor.fetchall()
    taken = Counter((collection_id, status) for collection_id, status, _, _ in rows)
    mark_unindexed([pk for _, status, pk, _ in rows if status != Rollout.Status.QUEUED])
    mark_changed((collection_id, task_id) for collection_id, _, _, task_id in rows)
    lock_collections({collection_id for collection_id, _ in taken})
    for (collection_id, status), number in taken.items():
        if status in {"failed", "cancelled"}:
            Collection.objects.filter(pk=collection_id).update(**{status: F(status) + number})
    settle_collections([collection_id for collection_id, _ in taken])
    return sum(taken.values())


def release_unknown(*, worker_id: int, known: Container[int], unknown_before: set[int]) -> set[int]:
    """Requeue rollouts that the database assigns to this worker but that the worker does not know.

    A rollout is unknown, for example, if the connection failed before the worker received the claim. It is requeued
    only if the previous call found it unknown too. `known` are the ids of rollouts that are running or waiting to be
    stored. `unknown_before` are the ids that the previous call returned. Return the ids for the next call.
    """
    assigned = set(Rollout.objects.filter(lease=worker_id, status=Rollout.Status.RUNNING).values_list("pk", flat=True))
    unknown = {pk for pk in assigned if pk not in known}
    requeued = list(unknown & unknown_before)
    for start in range(0, len(requeued), 500):
        chunk = requeued[start : start + 500]
        with transaction.atomic():
            places = ", ".join(["%s"] * len(chunk))
            _take_back(f"lease = %s AND id IN ({places})", [worker_id, *chunk], losses=0)
    return unknown.difference(requeued)


def claiming_workers() -> list[tuple[int, str]]:
    """Return (worker id, group) of the active workers with a valid lease, oldest lease first."""
    claiming = Worker.objects.filter(state=Worker.State.ACTIVE, lease_expires_at__gte=server_now())
    return list(claiming.order_by("pk").values_list("pk", "group"))


def _lease_duration() -> timedelta:
    return timedelta(seconds=settings.WORKER_LEASE_SECONDS)


class Heartbeat:
    """Renews a lease three times per lease period. If it is lost, calls `lost` on the heartbeat thread."""

    def __init__(self, *, worker_id: int, vitals: Callable[[], Vitals], lost: Callable[[], None]) -> None:
        self._worker_id = worker_id
        self._vitals = vitals
        self._lost = lost
        self._log = RetryLog("renewing the lease")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end. It closes its database connection."""
        self._stop.set()

    def join(self) -> None:
        self._thread.join(timeout=10)

    def _beat(self) -> None:
        # After an outage, or if this process was suspended, other workers may look expired although they are about to
        # renew. So the heartbeat expires leases only after two punctual beats in a row; the start counts as one.
        punctual_beats, last = 1, time.monotonic()
        beats = 0
        try:
            while not self._stop.wait(settings.WORKER_LEASE_SECONDS / 3):
                try:
                    keep_plans()
                    if not renew_lease(worker_id=self._worker_id, vitals=self._vitals()):
                        self._lost()
                        return
                    now = time.monotonic()
                    punctual_beats = punctual_beats + 1 if now - last < settings.WORKER_LEASE_SECONDS / 2 else 0
                    last = now
                    if punctual_beats >= 2:
                        reap_leases(is_thorough=beats % BEATS_PER_FULL_SEARCH == 0)
                        beats += 1
                    self._log.works()
                except Exception as problem:
                    # The next beat may succeed. Otherwise the lease expires and the rollouts are requeued.
                    punctual_beats = 0
                    self._log.failed(problem)
                    connection.close()
        finally:
            connection.close()
