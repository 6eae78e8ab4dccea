"""Workers: list, current work, and draining."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_context import count_by_worker
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.rollouts.metrics.fleet_gauges import read_queues
from apps.rollouts.models import Collection, Worker
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
        """Return the number of busy seats."""
        return min(self.running, self.worker.seats)


@allow(GET=Permission.READ)
def worker_list(request: PageRequest) -> HttpResponse:
    """List live, unresponsive and recently stopped workers; every restart adds a row."""
    now = timezone.now()
    going = list(Worker.objects.filter(state__in=_GOING))
    running = count_by_worker(going)
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
            "queued": sum(queue.queued for queue in read_queues() if queue.state != Collection.State.PAUSED),
            "backlog": sum(row.worker.backlog for row in live),
            "lease_seconds": settings.WORKER_LEASE_SECONDS,
        },
        part="workers",
    )


worker_drain = action_view(
    Permission.WORKERS,
    drain_worker,
    Worker,
    "worker",
    then="worker_list",
    success="Worker #{0.pk} drains: it stops after its running rollouts.",
)


def _row(worker: Worker, now: datetime, running: dict[int, int]) -> Row:
    return Row(worker, max(0.0, (now - worker.heartbeat_at).total_seconds()), running.get(worker.pk, 0))
