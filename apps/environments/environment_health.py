"""Health checks of environments: is the server there, and which tools does it name? On demand, and on a schedule.

When a check is due is a row's own column, so that any worker may do it. A server that is found unwell is looked at
twice; then its environment gets no new rollouts, and is asked again soon, until it is well.
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
"""Seconds until a server that was found unwell is asked again; later as long as it has been unwell already."""
SECOND_LOOK_SECONDS = 1.0
LOOK_SECONDS = 15.0
MAX_SURVEY = 500_000
"""Characters of JSON kept of what a server tells of itself."""
_LISTEN_SECONDS = 0.2
_STALE_AFTER = 3
"""A verdict this many intervals old says nothing any more: nobody asks, so nobody would let its rollouts go on."""
_MESSAGE_CHARACTERS = 500

worker_group: ContextVar[str] = ContextVar("worker_group", default="")
"""Set by a worker for its background jobs: what belongs to another group may not even be reachable from here."""


def probe_environment(*, environment: Environment) -> Environment:
    """Ask the server now and store what came of it. Never raises for a server that fails."""
    (probe,) = async_to_sync(_probe_all)([environment], looks=1)
    _store(environment, probe)
    environment.refresh_from_db()
    return environment


def probe_due_environments() -> bool:
    """Ask the servers whose check is due, all at once; True when there were any. A background job."""
    due = _claim_due()
    if due:
        # In this very thread, where whoever asks it to leave is heard.
        for environment, probe in zip(due, asyncio.run(_probe_until_leaving(due)), strict=True):
            _store(environment, probe)
    return bool(due)


def is_held_back(adapter: str, health: str, checked_at: datetime | None, now: datetime) -> bool:
    """Whether an environment in this state gets no new rollouts."""
    if adapter in IN_PROCESS or health != Health.UNHEALTHY or checked_at is None:
        return False
    return now - checked_at <= timedelta(seconds=_STALE_AFTER * max(settings.PROBE_SECONDS, FIRST_PAUSE))


def _claim_due() -> list[Environment]:
    """Taken by setting the next time: a worker that dies amid a check costs one interval."""
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
    """Raises Leaving: a server that hangs holds up no worker that is asked to go."""
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
    """A server that was well and does not answer may only have been busy: it gets a second look."""
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
    """All that one look asks, within its time."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await server.probe()
    except TimeoutError:
        return Probe(healthy=False, message=f"no answer within {LOOK_SECONDS:g} s", latency=LOOK_SECONDS)


def _store(environment: Environment, probe: Probe) -> None:
    """Unless the environment was changed meanwhile: then this was about another server."""
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
    """What was found, or nothing where it is too much or holds what no database takes: attempts then ask themselves."""
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
