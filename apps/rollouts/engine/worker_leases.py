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

LIVE = (Worker.State.ACTIVE, Worker.State.DRAINING)
MAX_TROUBLE = 500
THOROUGH_BEATS = 5
"""Heartbeats between two searches for rollouts without a live lease while no lease expires."""
MAX_LOST = 3
"""Number of lost workers after which a rollout fails, because it may have crashed them."""


class Vitals(NamedTuple):
    """State of a worker, reported with every heartbeat.

    `refuses` maps ids of collections that it cannot run to the reason.
    """

    busy: int = 0
    backlog: int = 0
    trouble: str = ""
    refuses: dict[str, str] = {}
    meters: dict[str, Any] = {}


def take_lease(*, seats: int, group: str = "") -> Worker:
    with transaction.atomic():
        worker = Worker.objects.create(
            host=socket.gethostname(),
            pid=os.getpid(),
            group=group,
            seats=seats,
            heartbeat_at=server_now(),
            lease_expires_at=server_now(_lease()),
        )
        worker.refresh_from_db()
    return worker


def renew_lease(*, worker_id: int, vitals: Vitals) -> bool:
    """Renew the lease. Return False if it was expired by another worker, or ended."""
    live = Worker.objects.filter(pk=worker_id, state__in=LIVE)
    fields = {**vitals._asdict(), "trouble": cut_clean(vitals.trouble, MAX_TROUBLE)}
    with transaction.atomic():
        if connection.vendor == "postgresql":
            # UPDATE computes its values before it waits for the row lock, but the lease must start after the wait.
            list(live.select_for_update().values_list("pk", flat=True))
        return bool(live.update(heartbeat_at=server_now(), lease_expires_at=server_now(_lease()), **fields))


def drain_lease(*, worker_id: int) -> None:
    """Mark the worker as draining: it can claim no more, and others take over its share of the judge limits."""
    Worker.objects.filter(pk=worker_id, state=Worker.State.ACTIVE).update(state=Worker.State.DRAINING)


def release_lease(*, worker_id: int) -> int:
    """Requeue the rollouts of this worker and end its lease. Return how many rollouts it had."""
    with transaction.atomic():
        Worker.objects.filter(pk=worker_id, state__in=LIVE).update(state=Worker.State.STOPPED, busy=0)
        delete_stale_reservations()
        return _requeue_lost("lease = %s", [worker_id], lost=0)


def reap_leases(*, is_thorough: bool = True) -> int:
    """Take back rollouts without a live lease. Return the number of expired workers.

    Without `is_thorough`, do so only if a lease has expired: the search reads all running rollouts.
    """
    expired = Worker.objects.filter(state__in=LIVE, lease_expires_at__lt=server_now())
    if not is_thorough and not expired.exists():
        return 0
    with transaction.atomic():
        _limit_lock_waits()
        reaped = expired.update(state=Worker.State.LOST, busy=0)
        delete_stale_reservations()
        # One statement reads rows and leases together, so that a lease taken at this moment does not look lost.
        _requeue_lost("lease NOT IN (SELECT id FROM rollouts_worker WHERE state IN (%s, %s))", [*LIVE], lost=1)
    return reaped


def _limit_lock_waits() -> None:
    """Limit waiting for locks: a heartbeat that waits longer than its lease would lose it.

    The next beat tries again.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {int(settings.WORKER_LEASE_SECONDS * 1000 / 6)}")


_REQUEUE_LOST = """
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
    WHERE status = 'running' AND {which} RETURNING collection_id, status, id, task_id
"""


def _requeue_lost(which: str, parameters: list[Any], *, lost: int) -> int:
    """Requeue, fail or cancel running rollouts in one statement, and update the counters by the changed rows."""
    losses = [lost, MAX_LOST]
    message = f"{MAX_LOST} workers were lost while running this rollout."
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    values = [*losses, *losses, *losses, message, now, *losses, now, lost, *parameters]
    with connection.cursor() as cursor:
        cursor.execute(_REQUEUE_LOST.format(which=which), values)
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
    """Requeue rollouts that this worker has only in the database, for example because a response was lost.

    They must have been unknown in the previous call too. `known` are the ids of rollouts that are running or waiting to
    be stored. `unknown_before` are the ids that the previous call returned.
    """
    held = set(Rollout.objects.filter(lease=worker_id, status=Rollout.Status.RUNNING).values_list("pk", flat=True))
    unknown = {pk for pk in held if pk not in known}
    stray = list(unknown & unknown_before)
    for start in range(0, len(stray), 500):
        chunk = stray[start : start + 500]
        with transaction.atomic():
            places = ", ".join(["%s"] * len(chunk))
            _requeue_lost(f"lease = %s AND id IN ({places})", [worker_id, *chunk], lost=0)
    return unknown.difference(stray)


def live_workers() -> list[tuple[int, str]]:
    """Return (worker id, group) of all claiming workers, oldest lease first."""
    live = Worker.objects.filter(state=Worker.State.ACTIVE, lease_expires_at__gte=server_now())
    return list(live.order_by("pk").values_list("pk", "group"))


def _lease() -> timedelta:
    return timedelta(seconds=settings.WORKER_LEASE_SECONDS)


class Heartbeat:
    """Renew the lease of a worker three times per lease period. If it is lost, call `lost` on the heartbeat thread."""

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
        # renew. So a heartbeat expires leases only after two punctual beats in a row; the start counts as one.
        in_time, last = 1, time.monotonic()
        beats = 0
        try:
            while not self._stop.wait(settings.WORKER_LEASE_SECONDS / 3):
                try:
                    keep_plans()
                    if not renew_lease(worker_id=self._worker_id, vitals=self._vitals()):
                        self._lost()
                        return
                    now = time.monotonic()
                    in_time = in_time + 1 if now - last < settings.WORKER_LEASE_SECONDS / 2 else 0
                    last = now
                    if in_time >= 2:
                        reap_leases(is_thorough=beats % THOROUGH_BEATS == 0)
                        beats += 1
                    self._log.works()
                except Exception as problem:
                    # The next beat may succeed. Otherwise the lease expires and the rollouts are requeued.
                    in_time = 0
                    self._log.failed(problem)
                    connection.close()
        finally:
            connection.close()
