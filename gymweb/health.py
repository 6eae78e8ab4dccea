"""Liveness and readiness checks for load balancers and supervisors."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from channels.layers import get_channel_layer
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse

from apps.accounts.disk_space import DiskFull, find_shortage, note_error
from apps.accounts.outage_log import DATABASE, LAYER, OutageLog
from apps.accounts.permissions import Permission, allow
from gymweb.migration_state import find_mismatch

READY_SECONDS = 3.0
"""Time limit of /readyz in seconds, even if components hang."""

_database = ThreadPoolExecutor(1, "readiness")
_disk = OutageLog("The disk")
_pending_check: "Future[dict[str, str]] | None" = None


@allow(GET=Permission.PUBLIC)
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200 without a query: supervisors must not restart web processes because of a slow database."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@allow(GET=Permission.PUBLIC)
async def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200, or 503 with the failing components. Public, so addresses and names are only logged."""
    database, layer = await asyncio.gather(_check_database(), _check_layer())
    missing = {name: problem for name, problem in [*database.items(), ("layer", layer)] if problem}
    return JsonResponse({"ready": not missing, "missing": missing}, status=503 if missing else 200)


async def _check_database() -> dict[str, str]:
    """Return the problems of the database. Concurrent callers share one check."""
    global _pending_check  # noqa: PLW0603
    if _pending_check is None or _pending_check.done():
        _pending_check = _database.submit(_run_database_check)
    try:
        async with asyncio.timeout(READY_SECONDS):
            problems = await asyncio.shield(asyncio.wrap_future(_pending_check))
    except TimeoutError:
        return {"database": f"no answer within {READY_SECONDS:g} s"}
    return problems


def _run_database_check() -> dict[str, str]:
    """Return the problems by component.

    Uses a new connection: existing ones may still work when new ones fail.
    """
    problems = {}
    own: Any = connection
    own.is_pooled = False
    try:
        if mismatch := find_mismatch():
            problems["migrations"] = mismatch
    except DatabaseError as problem:
        if not note_error(problem):
            DATABASE.failed("checking readiness", problem)
            problems["database"] = "unavailable"
    finally:
        shortage = find_shortage()
        connection.close()
    if shortage:
        _disk.failed("checking readiness", DiskFull(shortage))
        problems["disk"] = f"{shortage.disk} is full"
    else:
        _disk.works()
    return problems


async def _check_layer() -> str:
    try:
        async with asyncio.timeout(READY_SECONDS):
            # The group is empty: this only tests the connection.
            await get_channel_layer().group_send("readiness", {"type": "readiness.asked"})
    except (OSError, TimeoutError) as problem:
        LAYER.failed("checking readiness", problem)
        return "unavailable; pages poll instead"
    return ""
