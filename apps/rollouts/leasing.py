"""Worker leases: take one, renew it, give it up, and reap those that ran out."""

import os
import socket
from collections import Counter
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.rollouts.models import Collection, Rollout, Worker

LIVE = (Worker.State.ACTIVE, Worker.State.DRAINING)
MAX_LOST = 3
"""The loss of its worker that fails a rollout: it may be what kills them."""


def take_lease(*, seats: int) -> Worker:
    now = timezone.now()
    return Worker.objects.create(
        host=socket.gethostname(), pid=os.getpid(), seats=seats, heartbeat_at=now, lease_expires_at=now + _lease()
    )


def renew_lease(*, worker_id: int, busy: int) -> bool:
    """False when the lease is lost: reaped by another worker, or ended."""
    now = timezone.now()
    live = Worker.objects.filter(pk=worker_id, state__in=LIVE)
    return bool(live.update(heartbeat_at=now, lease_expires_at=now + _lease(), busy=busy))


def give_up_lease(*, worker_id: int) -> int:
    """Queue again what this worker still holds and end its lease; gives the number of rollouts released."""
    with transaction.atomic():
        held = Rollout.objects.filter(lease=worker_id, status=Rollout.Status.RUNNING)
        dropped = held.filter(collection__state=Collection.State.CANCELLED)
        for collection_id, count in Counter(dropped.values_list("collection_id", flat=True)).items():
            Collection.objects.filter(pk=collection_id).update(cancelled=F("cancelled") + count)
        dropped.update(status=Rollout.Status.CANCELLED, lease=None, finished_at=timezone.now())
        released = held.update(status=Rollout.Status.QUEUED, lease=None)
        Worker.objects.filter(pk=worker_id, state__in=LIVE).update(state=Worker.State.STOPPED, busy=0)
    return released


def reap_leases() -> int:
    """Take back the rollouts that no live lease holds; gives the number of workers whose lease ran out."""
    with transaction.atomic():
        expired = Worker.objects.filter(state__in=LIVE, lease_expires_at__lt=timezone.now())
        reaped = expired.update(state=Worker.State.LOST, busy=0)
        # One statement reads rows and leases together, so a lease taken this moment is not mistaken for a lost one.
        live = Worker.objects.filter(state__in=LIVE).values("pk")
        held = Rollout.objects.filter(status=Rollout.Status.RUNNING).exclude(lease__in=live)
        hopeless = held.filter(lost__gte=MAX_LOST - 1)
        failed = Counter(hopeless.values_list("collection_id", flat=True))
        hopeless.update(
            status=Rollout.Status.FAILED,
            lease=None,
            lost=F("lost") + 1,
            error_kind="worker_lost",
            error_message=f"Its worker was lost {MAX_LOST} times while it ran.",
            finished_at=timezone.now(),
        )
        stopped = held.filter(collection__state=Collection.State.CANCELLED)
        cancelled = Counter(stopped.values_list("collection_id", flat=True))
        stopped.update(status=Rollout.Status.CANCELLED, lease=None, finished_at=timezone.now())
        held.update(status=Rollout.Status.QUEUED, lease=None, lost=F("lost") + 1)
        for collection_id in {*failed, *cancelled}:
            Collection.objects.filter(pk=collection_id).update(
                failed=F("failed") + failed[collection_id], cancelled=F("cancelled") + cancelled[collection_id]
            )
    close_finished(list(failed))
    return reaped


def close_finished(collection_ids: list[int]) -> list[int]:
    """Mark the collections whose last rollout has ended; gives their ids."""
    done = Collection.objects.filter(
        pk__in=collection_ids,
        state=Collection.State.RUNNING,
        total__lte=F("completed") + F("failed") + F("cancelled"),
    )
    ids = list(done.values_list("pk", flat=True))
    if ids:
        done.filter(pk__in=ids).update(state=Collection.State.COMPLETED, finished_at=timezone.now())
    return ids


def count_live_workers() -> int:
    return Worker.objects.filter(state=Worker.State.ACTIVE, lease_expires_at__gte=timezone.now()).count()


def _lease() -> timedelta:
    return timedelta(seconds=settings.WORKER_LEASE_SECONDS)
