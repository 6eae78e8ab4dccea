"""Context of every page: navigation, worker pill, theme. Evaluated when rendered."""

from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.disk_space import find_shortage
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.destinations import Destination, destinations_for
from apps.rollouts.models import Rollout, Worker

THEMES = ("light", "dark", "system")


def _navigation(request: HttpRequest) -> list[tuple[str, list[tuple[Destination, bool]]]]:
    """Return the headings at the side with their destinations, and whether the page belongs to each."""
    here = request.resolver_match.url_name if request.resolver_match else ""
    word = (here or "").split("_")[0]
    sections: dict[str, list[tuple[Destination, bool]]] = {}
    for each in destinations_for(request.user):
        if each.section is not None:
            sections.setdefault(each.section, []).append((each, word in each.belongs))
    return list(sections.items())


def _worker_pill() -> dict[str, Any]:
    """Return the seats of live workers, and the number of unresponsive workers."""
    now = timezone.now()
    working = Worker.objects.filter(state__in=[Worker.State.ACTIVE, Worker.State.DRAINING])
    seats = {worker.pk: worker.seats for worker in working if worker.lease_expires_at > now}
    stale = len(working) - len(seats)
    return {
        "live": len(seats),
        "seats": sum(seats.values()),
        "busy": _busy_seats(seats),
        "stale": stale,
        "kind": "warn" if stale else "ok" if seats else "muted",
        "url": reverse("dashboard:worker_list"),
    }


def _busy_seats(seats: dict[int, int]) -> int:
    """Return the number of busy seats, counted from rows, because a worker's own count is as old as its heartbeat.

    A worker counts at most its seats: rows of finished but unstored rollouts hold no seat.
    """
    running = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__in=seats).order_by()
    counted = running.values_list("lease").annotate(rows=Count("pk"))
    return sum(min(rows, seats[lease]) for lease, rows in counted if lease is not None)


def chrome(request: HttpRequest) -> dict[str, Any]:
    theme = request.COOKIES.get("theme", "system")
    return {
        "theme": theme if theme in THEMES else "system",
        "themes": THEMES,
        # Rendered twice per page, for wide and narrow screens: evaluated once, and not for fragments.
        "navigation": SimpleLazyObject(lambda: _navigation(request)),
        "settings_tabs": SimpleLazyObject(lambda: [each for each in destinations_for(request.user) if each.is_setting]),
        "worker_pill": SimpleLazyObject(_worker_pill),
        "disk_shortage": SimpleLazyObject(lambda: str(find_shortage() or "")),
        "happening": SimpleLazyObject(read_happening),
        "permitted": {permission.value: user_may(request.user, permission) for permission in Permission},
    }
