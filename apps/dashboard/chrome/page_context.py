"""Context of every page: navigation, worker pill, theme. Evaluated when rendered."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.disk_space import find_shortage
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.destinations import OWN_ACCOUNT, Destination, destinations_for
from apps.rollouts.models import Rollout, Worker

THEMES = ("light", "dark", "system")


def _navigation(request: HttpRequest) -> list[tuple[str, list[tuple[Destination, bool]]]]:
    """Return the headings of the side menu with their destinations, and whether each contains the current page."""
    word = _first_word(request)
    sections: dict[str, list[tuple[Destination, bool]]] = {}
    for each in destinations_for(request.user):
        if each.section is not None:
            sections.setdefault(each.section, []).append((each, word in each.belongs))
    return list(sections.items())


def _first_word(request: HttpRequest) -> str:
    """Return the prefix of the URL name, which tells what the page belongs to."""
    here = request.resolver_match.url_name if request.resolver_match else ""
    return (here or "").split("_")[0]


def _worker_pill() -> dict[str, Any]:
    """Return the seats of live workers, and the number of unresponsive workers."""
    now = timezone.now()
    working = Worker.objects.filter(state__in=[Worker.State.ACTIVE, Worker.State.DRAINING])
    live = [worker for worker in working if worker.lease_expires_at > now]
    running = count_by_worker(live)
    stale = len(working) - len(live)
    return {
        "live": len(live),
        "seats": sum(worker.seats for worker in live),
        "busy": sum(min(running.get(worker.pk, 0), worker.seats) for worker in live),
        "stale": stale,
        "kind": "warn" if stale else "ok" if live else "muted",
        "url": reverse("dashboard:worker_list"),
    }


def count_by_worker(workers: Iterable[Worker]) -> dict[int, int]:
    """Return the number of running rollouts by worker.

    Counted from rows, because a worker's own count is as old as its heartbeat. It can exceed the seats: finished
    rollouts that are not stored yet are counted, but hold no seat.
    """
    leases = [worker.pk for worker in workers]
    rows = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__in=leases).order_by()
    return dict(rows.values_list("lease").annotate(rows=Count("pk")))


def chrome(request: HttpRequest) -> dict[str, Any]:
    theme = request.COOKIES.get("theme", "system")
    return {
        "theme": theme if theme in THEMES else "system",
        "themes": THEMES,
        # Rendered twice per page, for wide and narrow screens: evaluated once, and not for fragments.
        "navigation": SimpleLazyObject(lambda: _navigation(request)),
        "is_own_account": _first_word(request) in OWN_ACCOUNT,
        "settings_tabs": SimpleLazyObject(lambda: [each for each in destinations_for(request.user) if each.is_setting]),
        "worker_pill": SimpleLazyObject(_worker_pill),
        "disk_shortage": SimpleLazyObject(lambda: str(find_shortage() or "")),
        "happening": SimpleLazyObject(read_happening),
        "permitted": {permission.value: user_may(request.user, permission) for permission in Permission},
    }
