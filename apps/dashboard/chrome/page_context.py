"""What every page shows around its content: navigation, the worker pill, the theme. Evaluated only when rendered."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.disk_space import find_shortage
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.destinations import destinations_for, find_url
from apps.rollouts.models import Rollout, Worker

THEMES = ("light", "dark", "system")


@dataclass(frozen=True)
class Link:
    label: str
    url: str
    icon: str
    active: bool


@dataclass(frozen=True)
class Section:
    label: str
    links: list[Link]


def _navigation(request: HttpRequest) -> list[Section]:
    here = request.resolver_match.url_name if request.resolver_match else ""
    word = (here or "").split("_")[0]
    sections: dict[str, list[Link]] = {}
    for each in destinations_for(request.user):
        if each.section is not None:
            link = Link(label=each.label, url=each.url, icon=each.icon, active=word in each.belongs)
            sections.setdefault(each.section, []).append(link)
    return [Section(label=label, links=links) for label, links in sections.items()]


def _worker_pill() -> dict[str, Any]:
    """Seats of the workers whose lease lives, and how many workers went quiet without stopping."""
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
        "url": find_url("worker_list"),
    }


def _busy_seats(seats: dict[int, int]) -> int:
    """By the rows, since a worker's own count is as old as its heartbeat. A row that has ended but is not stored yet
    holds no seat, and is the only reason for more rows than seats."""
    running = Rollout.objects.filter(status=Rollout.Status.RUNNING, lease__in=seats).order_by()
    counted = running.values_list("lease").annotate(rows=Count("pk"))
    return sum(min(rows, seats[lease]) for lease, rows in counted if lease is not None)


def chrome(request: HttpRequest) -> dict[str, Any]:
    theme = request.COOKIES.get("theme", "system")
    return {
        "theme": theme if theme in THEMES else "system",
        "themes": THEMES,
        # On a page twice, for wide and for narrow screens: evaluated once, and not at all for fragments.
        "navigation": SimpleLazyObject(lambda: _navigation(request)),
        "settings_tabs": SimpleLazyObject(lambda: [each for each in destinations_for(request.user) if each.is_setting]),
        "worker_pill": SimpleLazyObject(_worker_pill),
        "disk_shortage": SimpleLazyObject(lambda: str(find_shortage() or "")),
        "happening": SimpleLazyObject(read_happening),
        "permitted": {permission.value: user_may(request.user, permission) for permission in Permission},
    }
