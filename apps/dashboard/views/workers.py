"""Workers: who is alive and how busy."""

from datetime import datetime, timedelta

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone

from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer
from apps.dashboard.requests import PageRequest
from apps.rollouts.models import Worker

SHOWN_ENDED = 20
_GOING = (Worker.State.ACTIVE, Worker.State.DRAINING)


@allow(GET=Permission.READ)
def worker_list(request: PageRequest) -> HttpResponse:
    """Those that say they live, and the last ones that ended: every restart leaves one more row."""
    now = timezone.now()
    going = list(Worker.objects.filter(state__in=_GOING))
    gone = Worker.objects.exclude(state__in=_GOING)
    ended = list(gone[:SHOWN_ENDED])
    seats = [(worker.seats, worker.busy) for worker in going if worker.lease_expires_at > now]
    return answer(
        request,
        "workers/list.html",
        {
            "rows": [
                (worker, _age(now - worker.heartbeat_at), _is_overdue(worker, now)) for worker in [*going, *ended]
            ],
            "earlier": gone.count() - len(ended) if len(ended) == SHOWN_ENDED else 0,
            "live": len(seats),
            "seats": sum(each for each, _ in seats),
            "busy": sum(each for _, each in seats),
            "lease_seconds": settings.WORKER_LEASE_SECONDS,
        },
        part="workers",
    )


def _age(since: timedelta) -> float:
    return max(0.0, since.total_seconds())


def _is_overdue(worker: Worker, now: datetime) -> bool:
    """Says that it lives, but its lease has run out: the next worker to look will declare it lost."""
    return worker.state in _GOING and worker.lease_expires_at < now
