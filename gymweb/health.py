"""Liveness and readiness checks for load balancers and supervisors."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

from channels.layers import get_channel_layer
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse

from apps.accounts.disk_space import DiskFull, find_shortage, note_error
from apps.accounts.outage_log import DATABASE, LAYER, OutageLog
from apps.accounts.permissions import Permission, allow
from gymweb.migration_state import find_mismatch

READY_SECONDS = 3.0
"""/readyz responds within this time, even if components hang."""

_database = ThreadPoolExecutor(1, "readiness")
_disk = OutageLog("The disk")
_asked: "Future[dict[str, str]] | None" = None


@allow(GET=Permission.PUBLIC)
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200 without using the database: a slow database must not cause restarts of web processes."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@allow(GET=Permission.PUBLIC)
async def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200, or 503 with the failing components. Public, so addresses and names are only logged."""
    database, layer = await asyncio.gather(_ask_database(), _ask_layer())
    missing = {name: problem for name, problem in [*database.items(), ("layer", layer)] if problem}
    return JsonResponse({"ready": not missing, "missing": missing}, status=503 if missing else 200)


async def _ask_database() -> dict[str, str]:
    """Return the problems of the database. Simultaneous callers share one check."""
    global _asked  # noqa: PLW0603
    if _asked is None or _asked.done():
        _asked = _database.submit(_look_at_database)
    try:
        async with asyncio.timeout(READY_SECONDS):
            problems = await asyncio.shield(asyncio.wrap_future(_asked))
    except TimeoutError:
        return {"database": f"no answer within {READY_SECONDS:g} s"}
    return problems


def _look_at_database() -> dict[str, str]:
    """Return the problems by component.

    Uses a separate connection: an existing one may work when new ones fail.
    """
    problems = {}
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


async def _ask_layer() -> str:
    try:
        async with asyncio.timeout(READY_SECONDS):
            # The group has no members.
            await get_channel_layer().group_send("readiness", {"type": "readiness.asked"})
    except (OSError, TimeoutError) as problem:
        LAYER.failed("checking readiness", problem)
        return "unavailable; pages poll instead"
    return ""
