"""Health checks of environments, on demand and on a schedule: does the server respond, and which tools does it have?

The row has the time of its next check, so any worker can do it. An unhealthy server is checked twice; then its
environment gets no new rollouts, and is checked more often until it is healthy.
"""

import asyncio
import json
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.accounts.outages import release_connection
from apps.environments.models import IN_PROCESS, Environment
from apps.environments.resource_servers import connect_environment
from apps.gym import process_exit
from apps.gym.calls.outbound import Outbound
from apps.gym.errors import EnvironmentFault
from apps.gym.resources.protocol import Probe, ResourceServer
from apps.gym.storable import clean_line, find_unstorable
from apps.policies.models import Health
from apps.policies.policy_clients import open_outbound

MOST_AT_ONCE = 16
FIRST_PAUSE = 5.0
"""Seconds until an unhealthy server is checked again. The delay grows with the time it has been unhealthy."""
SECOND_LOOK_SECONDS = 1.0
LOOK_SECONDS = 15.0
MAX_SURVEY = 500_000
"""Maximum characters of JSON stored of a server's description."""
_LISTEN_SECONDS = 0.2
_STALE_AFTER = 3
"""A health result this many intervals old is ignored: no worker renews it, so rollouts would wait forever."""
_MESSAGE_CHARACTERS = 500

worker_group: ContextVar[str] = ContextVar("worker_group", default="")
"""Set by a worker for its background jobs: servers of another group may be unreachable from here."""


def probe_environment(*, environment: Environment) -> Environment:
    """Check the server now and store the result. Never raises if the server fails."""
    release_connection()
    (probe,) = async_to_sync(_probe_all)([environment], looks=1)
    _store(environment, probe)
    environment.refresh_from_db()
    return environment


@background_job(thread="checks", waiting=lambda: Environment.objects.exclude(adapter__in=IN_PROCESS), on_full_disk=True)
def probe_due_environments() -> bool:
    """Background job: check all servers that are due, concurrently. Return True if there were any."""
    due = _claim_due()
    if due:
        # In this thread, which notices requests to leave.
        for environment, probe in zip(due, asyncio.run(_probe_until_leaving(due)), strict=True):
            _store(environment, probe)
    return bool(due)


def is_held_back(adapter: str, health: str, checked_at: datetime | None, now: datetime) -> bool:
    """Return True if an environment in this state gets no new rollouts."""
    if adapter in IN_PROCESS or health != Health.UNHEALTHY or checked_at is None:
        return False
    return now - checked_at <= timedelta(seconds=_STALE_AFTER * max(settings.PROBE_SECONDS, FIRST_PAUSE))


def _claim_due() -> list[Environment]:
    """Claim due checks by setting the time of the next one.

    A worker that dies during a check delays it by one interval.
    """
    now = timezone.now()
    due = Environment.objects.exclude(adapter__in=IN_PROCESS).filter(worker_group__in={"", worker_group.get()})
    due = due.filter(Q(probe_due_at__lte=now) | Q(probe_due_at__isnull=True)).order_by("probe_due_at", "pk")
    following = now + timedelta(seconds=max(settings.PROBE_SECONDS, FIRST_PAUSE))
    return [
        one
        for one in due[:MOST_AT_ONCE]
        if Environment.objects.filter(pk=one.pk, probe_due_at=one.probe_due_at).update(probe_due_at=following)
    ]


async def _probe_until_leaving(environments: Sequence[Environment]) -> list[Probe]:
    """Check the servers. Raise Leaving if the worker shuts down, without waiting for a server that hangs."""
    probing = asyncio.create_task(_probe_all(environments, looks=2))
    try:
        while not probing.done():
            await asyncio.wait([probing], timeout=_LISTEN_SECONDS)
            process_exit.check()
        return await probing
    finally:
        probing.cancel()


async def _probe_all(environments: Sequence[Environment], *, looks: int) -> list[Probe]:
    outbound = open_outbound()
    try:
        return await asyncio.gather(*(_probe(environment, outbound, looks) for environment in environments))
    finally:
        await outbound.close()


async def _probe(environment: Environment, outbound: Outbound, looks: int) -> Probe:
    """Check a server. If it was healthy and does not respond, check a second time, because it may be busy."""
    try:
        server = connect_environment(environment, outbound)
    except EnvironmentFault as fault:
        return Probe(healthy=False, message=str(fault))
    probe = await _look(server)
    if not probe.healthy and looks > 1 and environment.health != Health.UNHEALTHY:
        await asyncio.sleep(SECOND_LOOK_SECONDS)
        probe = await _look(server)
    return probe


async def _look(server: ResourceServer) -> Probe:
    """Run a single check, within its time limit."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await server.probe()
    except TimeoutError:
        return Probe(healthy=False, message=f"no answer within {LOOK_SECONDS:g} s", latency=LOOK_SECONDS)


def _store(environment: Environment, probe: Probe) -> None:
    """Store the result unless the environment was changed meanwhile: then it describes another server."""
    now = timezone.now()
    changes: dict[str, object] = {
        "health": Health.HEALTHY if probe.healthy else Health.UNHEALTHY,
        "health_message": clean_line(_sentence(probe), _MESSAGE_CHARACTERS),
        "health_checked_at": now,
        "unwell_since": None if probe.healthy else environment.unwell_since or now,
    }
    if probe.healthy:
        changes["survey"] = _storable(probe.found)
    if environment.has_server:
        changes["probe_due_at"] = now + timedelta(seconds=_pause(environment, probe, now))
    Environment.objects.filter(pk=environment.pk, updated_at=environment.updated_at).update(**changes)


def _storable(found: dict[str, Any]) -> dict[str, Any]:
    """Return the findings, or nothing if they are too large or not storable; attempts then query the server."""
    return found if find_unstorable(found) is None and len(json.dumps(found)) <= MAX_SURVEY else {}


def _pause(environment: Environment, probe: Probe, now: datetime) -> float:
    longest: float = max(settings.PROBE_SECONDS, FIRST_PAUSE)
    if probe.healthy:
        return longest
    unwell = (now - environment.unwell_since).total_seconds() if environment.unwell_since else 0.0
    return min(longest, max(FIRST_PAUSE, unwell))


def _sentence(probe: Probe) -> str:
    if not probe.healthy:
        return probe.message
    names = ", ".join(tool["name"] for tool in probe.tools)
    tools = f"; tools: {names}" if names else ""
    return f"{probe.message} ({probe.latency * 1000:.1f} ms){tools}"
