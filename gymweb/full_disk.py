"""Refuse requests that store something while the disk of the database is full."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.disk_space import Place, find_shortage
from apps.accounts.outage_log import DISK

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class FullDiskMiddleware(MiddlewareMixin):
    """Answer 507 before the view runs. Reads and deletions go through, and so do settings.FULL_DISK_ROUTES: they free
    space, stop work or store next to nothing, for which the reserve is there."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        match = request.resolver_match
        if request.method in _READS or request.method == "DELETE" or match is None:
            return None
        if match.view_name in settings.FULL_DISK_ROUTES:
            return None
        shortage = find_shortage(Place.DATABASE)
        if shortage is None:
            DISK.works()
            return None
        # Imported here: middleware is loaded before the API, which cannot be imported from its module of problems.
        from gymweb.failures import disk_full

        return disk_full(request, shortage)
