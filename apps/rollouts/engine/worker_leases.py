"""Worker leases: take one, renew it, give it up, and reap those that ran out."""

import os
import socket
from collections import Counter
from collections.abc import Container
from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.database_clock import server_now
from apps.rollouts.engine.collection_limits import lock_collections, settle_collections
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.search.word_index import mark_unindexed

LIVE = (Worker.State.ACTIVE, Worker.State.DRAINING)
MAX_TROUBLE = 500
MAX_LOST = 3
"""The loss of its worker that fails a rollout: it may be what kills them."""


class Vitals(NamedTuple):
    """What a worker says of itself with every heartbeat.

    `refuses` has, by the ids of the collections that it cannot run, why not.
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
    """False when the lease is lost: reaped by another worker, or ended."""
    live = Worker.objects.filter(pk=worker_id, state__in=LIVE)
    said = {**vitals._asdict(), "trouble": cut_clean(vitals.trouble, MAX_TROUBLE)}
    with transaction.atomic():
        return bool(live.update(heartbeat_at=server_now(), lease_expires_at=server_now(_lease()), **said))


def drain_lease(*, worker_id: int) -> None:
    """Say that this worker claims no more, so that others take its share of the limits. It leaves when it is idle."""
    Worker.objects.filter(pk=worker_id, state=Worker.State.ACTIVE).update(state=Worker.State.DRAINING)


def give_up_lease(*, worker_id: int) -> int:
    """Queue again what this worker still holds and end its lease; gives the number of rollouts released."""
    with transaction.atomic():
        Worker.objects.filter(pk=worker_id, state__in=LIVE).update(state=Worker.State.STOPPED, busy=0)
        return _take_back("lease = %s", [worker_id], lost=0)


def reap_leases() -> int:
    """Take back the rollouts that no live lease holds; gives the number of workers whose lease ran out."""
    with transaction.atomic():
        _wait_briefly_for_locks()
        expired = Worker.objects.filter(state__in=LIVE, lease_expires_at__lt=server_now())
        reaped = expired.update(state=Worker.State.LOST, busy=0)
        # One statement reads rows and leases together, so a lease taken this moment is not mistaken for a lost one.
        _take_back("lease NOT IN (SELECT id FROM rollouts_worker WHERE state IN (%s, %s))", [*LIVE], lost=1)
    return reaped


def _wait_briefly_for_locks() -> None:
    """Limit the wait: heartbeats reap too, and one that waits longer than its lease loses it. A later one reaps."""
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
    WHERE status = 'running' AND {which} RETURNING collection_id, status, id
"""


def _take_back(which: str, parameters: list[Any], *, lost: int) -> int:
    """Queue, fail or cancel running rows in one statement, and count exactly those that it changed."""
    hopeless = [lost, MAX_LOST]
    message = f"Its worker was lost {MAX_LOST} times while it ran."
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    values = [*hopeless, *hopeless, *hopeless, message, now, *hopeless, now, lost, *parameters]
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_BACK.format(which=which), values)
        rows = cursor.fetchall()
    taken = Counter((collection_id, status) for collection_id, status, _ in rows)
    mark_unindexed([pk for _, status, pk in rows if status != Rollout.Status.QUEUED])
    lock_collections({collection_id for collection_id, _ in taken})
    for (collection_id, status), number in taken.items():
        if status in {"failed", "cancelled"}:
            Collection.objects.filter(pk=collection_id).update(**{status: F(status) + number})
    settle_collections([collection_id for collection_id, _ in taken])
    return sum(taken.values())


def release_unknown(*, worker_id: int, known: Container[int], suspects: set[int]) -> set[int]:
    """Queue again what this worker holds and does not know, if it did not know it the last time either.

    A claim whose answer was lost on the way leaves such rows. `known` are the ids it runs or has yet to store, and
    `suspects` what the last call gave: ids that were unknown then.
    """
    held = set(Rollout.objects.filter(lease=worker_id, status=Rollout.Status.RUNNING).values_list("pk", flat=True))
    unknown = {pk for pk in held if pk not in known}
    stray = list(unknown & suspects)
    for start in range(0, len(stray), 500):
        chunk = stray[start : start + 500]
        with transaction.atomic():
            places = ", ".join(["%s"] * len(chunk))
            _take_back(f"lease = %s AND id IN ({places})", [worker_id, *chunk], lost=0)
    return unknown.difference(stray)


def live_workers() -> list[tuple[int, str]]:
    """The workers that claim with their groups, by the age of their leases."""
    live = Worker.objects.filter(state=Worker.State.ACTIVE, lease_expires_at__gte=server_now())
    return list(live.order_by("pk").values_list("pk", "group"))


def is_draining(worker_id: int) -> bool:
    """Whether somebody asked this worker to leave."""
    return Worker.objects.filter(pk=worker_id, state=Worker.State.DRAINING).exists()


def _lease() -> timedelta:
    return timedelta(seconds=settings.WORKER_LEASE_SECONDS)
