"""Workers: list, current work, and draining."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.contrib import messages
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, tell_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.rollouts.models import Rollout, Worker
from apps.rollouts.steering.controls import drain_worker

SHOWN_ENDED = 20
_GOING = (Worker.State.ACTIVE, Worker.State.DRAINING)


@dataclass(frozen=True, slots=True)
class Row:
    worker: Worker
    age: float  # seconds since its last heartbeat
    running: int = 0  # its current rollouts, counted from rows

    @property
    def busy(self) -> int:
        """Return the number of busy seats.

        Counted from rows, because the worker's own count is as old as its heartbeat. A finished rollout that is not
        stored yet has a row but no seat.
        """
        return min(self.running, self.worker.seats)


@allow(GET=Permission.READ)
def worker_list(request: PageRequest) -> HttpResponse:
    """List live, unresponsive and recently stopped workers; every restart adds a row."""
    now = timezone.now()
    going = list(Worker.objects.filter(state__in=_GOING))
    running = _running([worker.pk for worker in going])
    live = [_row(worker, now, running) for worker in going if not worker.is_overdue(now)]
    gone = Worker.objects.exclude(state__in=_GOING)
    ended = list(gone[:SHOWN_ENDED])
    return answer(
        request,
        "workers/list.html",
        {
            "live": live,
            "stale": [_row(worker, now, running) for worker in going if worker.is_overdue(now)],
            "ended": [_row(worker, now, {}) for worker in ended],
            "earlier": gone.count() - len(ended) if len(ended) == SHOWN_ENDED else 0,
            "seats": sum(row.worker.seats for row in live),
            "busy": sum(row.busy for row in live),
            "rate": sum(row.worker.rate or 0.0 for row in live),
            "backlog": sum(row.worker.backlog for row in live),
            "lease_seconds": settings.WORKER_LEASE_SECONDS,
        },
        part="workers",
    )


@allow(POST=Permission.WORKERS)
def worker_drain(request: PageRequest, pk: int) -> HttpResponse:
    worker = get_object_or_404(Worker, pk=pk)
    with tell_refusal(request):
        drain_worker(worker=worker, user=request.user)
        messages.success(request, f"Worker #{pk} drains: it stops after its running rollouts.")
    return redirect("dashboard:worker_list")


def _row(worker: Worker, now: datetime, running: dict[int, int]) -> Row:
    return Row(worker, max(0.0, (now - worker.heartbeat_at).total_seconds()), running.get(worker.pk, 0))


def _running(leases: list[int]) -> dict[int, int]:
    rows = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__in=leases).order_by()
    return {lease: count for lease, count in rows.values_list("lease").annotate(rows=Count("pk")) if lease is not None}
