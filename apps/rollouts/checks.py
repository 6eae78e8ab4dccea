"""System checks of the engine: unusual settings, and workers that share SQLite across machines."""

import socket
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import OperationalError, connection
from django.utils import timezone

from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE
from apps.rollouts.models import Worker

WORKER_STARTS = "worker-starts"
"""Tag of the checks that query the database when a worker process starts."""
PROCESS_STARTS = "process-starts"
"""Tag of the database checks that run when a process that needs all tables starts."""
SEVERAL_PROCESSES = "several-processes"
"""Tag of the checks for separate web and worker processes. Their commands and `check --deploy` run them."""

SHORTEST_LEASE, LONGEST_LEASE = 5.0, 600.0


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Warn about settings that work but are rarely intended. Invalid settings are refused when they are read."""
    lease = settings.WORKER_LEASE_SECONDS
    if SHORTEST_LEASE <= lease <= LONGEST_LEASE:
        return []
    trouble = (
        "a database that is slow for so long costs workers their rollouts"
        if lease < SHORTEST_LEASE
        else "the rollouts of a dead worker wait that long"
    )
    return [
        Warning(
            f"GYMWEB_WORKER_LEASE_SECONDS is {lease:g}: {trouble}.",
            hint=f"Between {SHORTEST_LEASE:g} and {LONGEST_LEASE:g} is sensible; 30 is the default.",
            id="rollouts.W001",
        )
    ]


def check_hosts(**kwargs: Any) -> list[CheckMessage]:
    """Report workers on other machines that use the same SQLite file: its locks work on one machine only."""
    if connection.vendor != "sqlite":
        return []
    elsewhere = Worker.objects.filter(state__in=STATES_WITH_LEASE, lease_expires_at__gte=timezone.now())
    try:
        hosts = sorted(set(elsewhere.exclude(host=socket.gethostname()).values_list("host", flat=True)))
    except OperationalError:
        return []  # Without tables there are no workers.
    if not hosts:
        return []
    return [
        Error(
            f"Workers on {', '.join(hosts)} use this SQLite file too, and SQLite is for one machine.",
            hint="Give all processes the same PostgreSQL with GYMWEB_DATABASE_URL, or stop the workers there. A worker "
            f"that was killed counts until its lease runs out, after {settings.WORKER_LEASE_SECONDS:g} s.",
            id="rollouts.E005",
        )
    ]


def check_layer(**kwargs: Any) -> list[CheckMessage]:
    if not str(settings.CHANNEL_LAYERS["default"]["BACKEND"]).endswith(".InMemoryChannelLayer"):
        return []
    return [
        Warning(
            "The channel layer is in the memory of each process: pages do not hear from workers in other processes. "
            "They poll, so they are a few seconds late, and workers find planned rollouts within a second or two.",
            hint="Give web and workers the same GYMWEB_REDIS_URL for pages that follow live.",
            id="rollouts.W002",
        )
    ]
