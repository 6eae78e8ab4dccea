"""Reject requests that store data while the disk of the database is full."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.disk_space import Place, find_shortage
from apps.accounts.outage_log import DISK

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class FullDiskMiddleware(MiddlewareMixin):
    """Respond with 507 while the disk of the database is full.

    Reads, deletions and settings.FULL_DISK_ROUTES are allowed: these free space, stop work, or store so little that it
    fits into the reserve.
    """

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
        # Imported lazily, because middleware is loaded before the API.
        from gymweb.failures import disk_full

        return disk_full(request, shortage)
