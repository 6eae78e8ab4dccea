"""Workers: who is alive and how busy."""

from datetime import timedelta

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone

from apps.accounts.permissions import Permission, allow
from apps.dashboard.answering import answer
from apps.dashboard.keyset import page_by_id
from apps.dashboard.requests import PageRequest
from apps.rollouts.models import Worker


@allow(GET=Permission.READ)
def worker_list(request: PageRequest) -> HttpResponse:
    now = timezone.now()
    page = page_by_id(Worker.objects.all(), request.GET.get("after", ""))
    live = Worker.objects.filter(state__in=[Worker.State.ACTIVE, Worker.State.DRAINING], lease_expires_at__gt=now)
    seats = [(worker.seats, worker.busy) for worker in live]
    return answer(
        request,
        "workers/list.html",
        {
            "page": page,
            "rows": [(worker, _age(now - worker.heartbeat_at), _is_overdue(worker)) for worker in page.rows],
            "live": len(seats),
            "seats": sum(each for each, _ in seats),
            "busy": sum(each for _, each in seats),
            "lease_seconds": settings.WORKER_LEASE_SECONDS,
        },
        part="workers",
    )


def _age(since: timedelta) -> float:
    return max(0.0, since.total_seconds())


def _is_overdue(worker: Worker) -> bool:
    """Says that it lives, but its lease has run out: the next worker to look will declare it lost."""
    alive = worker.state in {Worker.State.ACTIVE, Worker.State.DRAINING}
    return alive and worker.lease_expires_at < timezone.now()
