"""Share the request rate of an endpoint between all workers, through its row in the database.

Each worker has a gate per endpoint. Once the endpoint throttles, the gate reports to the row while calls wait, from
several times a second to once in 5 seconds, and receives a grant: the start times of the next calls. See
docs/decisions/0011.
"""

import asyncio
import math
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from django.db import connection, transaction
from django.db.models import Q

from apps.accounts.outage_log import RetryLog
from apps.gym.calls.flow_control import Gate
from apps.gym.calls.rate_control import Grant, RateControl, Report
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.database_clock import server_now
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.collection_limits import pause_collections
from apps.rollouts.engine.database_thread import DatabaseThread
from apps.rollouts.models import Collection, Throttle

RETRY_SECONDS = 1.0
"""Seconds between retries if the database is unavailable."""


class Throttles:
    """The gates of one process. Used on its event loop; only `gate` is thread-safe."""

    def __init__(self) -> None:
        self._process_id = secrets.token_hex(8)
        self._gates: dict[Endpoint, Gate] = {}
        self._limited: frozenset[Endpoint] = frozenset()
        self._quotas: dict[Endpoint, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = RetryLog("sharing the rate of throttled endpoints")
        # A separate connection, opened at the first throttled reply, so that grants do not wait for batches of
        # results.
        self._database = DatabaseThread()

    def gate(self, endpoint: Endpoint) -> Gate:
        """Return the gate of this process for an endpoint."""
        gate = self._gates.get(endpoint)
        if gate is None:
            gate = self._gates.setdefault(endpoint, Gate(partial(self._start_sharing, endpoint)))
        return gate

    def limit_throttled(self, limited: Iterable[Endpoint]) -> None:
        """Start limiting endpoints that other processes found throttled."""
        self._limited = frozenset(limited)
        for endpoint in self._limited & self._gates.keys():
            self._gates[endpoint].limit()

    def report_exhausted_quota(self, endpoint: Endpoint, message: str) -> None:
        """Pause collections that use an endpoint with an exhausted quota."""
        is_first = endpoint not in self._quotas
        self._quotas[endpoint] = message
        if is_first:
            self._start_task(self._pause(endpoint))

    def claimable(self) -> dict[Endpoint, int]:
        """Return how many rollouts this process may claim for each endpoint that throttles or has no quota left."""
        limits = {one: gate.claimable for one, gate in self._gates.copy().items() if gate.limited}
        return {**limits, **dict.fromkeys(self._quotas, 0)}

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._database.close()

    def _start_sharing(self, endpoint: Endpoint, gate: Gate) -> None:
        self._start_task(self._share_rate(endpoint, gate))

    def _start_task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _share_rate(self, endpoint: Endpoint, gate: Gate) -> None:
        """Exchange reports for grants while the endpoint is limited."""
        while gate.limited:
            report = gate.report()
            grant = await self._retry(exchange, endpoint, self._process_id, report, gate.message)
            gate.apply(grant)
            if gate.limited:
                await gate.wait_for_activity(grant.report_in)

    async def _pause(self, endpoint: Endpoint) -> None:
        await self._retry(pause_for_quota, endpoint, self._quotas[endpoint])
        del self._quotas[endpoint]

    async def _retry(self, work: Any, *given: Any) -> Any:
        while True:
            try:
                done = await self._database.run(work, *given)
            except Exception as problem:
                self._log.failed(problem)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._log.works()
                return done


def exchange(endpoint: Endpoint, holder: str, report: Report, message: str = "") -> Grant:
    """Merge a report into the row of the endpoint, and return a grant. Times are by the clock of the database."""
    with transaction.atomic():
        throttle, _ = Throttle.objects.select_for_update().get_or_create(**endpoint.key)
        now = _server_seconds()
        control = msgspec.convert(throttle.control, RateControl)
        grant = control.exchange(holder, report, now)
        throttle.control = msgspec.to_builtins(control)
        if throttle.limited_until is None or throttle.limited_until <= _to_datetime(now):
            throttle.limited_since = _to_datetime(now)
        throttle.limited_until = _to_datetime(control.limited_until)
        throttle.paused_until = _to_datetime(control.paused_until)
        # Capped by the ceiling: the computed rate grows without limit while no calls are made.
        throttle.rate = min(1e308, control.rate(now), control.ceiling or math.inf)
        throttle.concurrency = None if control.cap is None else int(control.cap)
        if report.throttled:
            throttle.message = cut_clean(message.replace("\0", ""), 500)
            throttle.retry_after = report.retry_after
        throttle.save()
    return grant


def pause_for_quota(endpoint: Endpoint, message: str) -> int:
    """Pause all running collections that use the endpoint. Return their number."""
    uses = Q(environment=endpoint.pk)
    if endpoint.kind == "policy_model":
        uses = Q(policy_model=endpoint.pk) | Q(environment__judge_model=endpoint.pk)
    with transaction.atomic():
        fields = {"quota_message": cut_clean(message.replace("\0", ""), 500), "quota_at": server_now()}
        Throttle.objects.get_or_create(**endpoint.key)
        Throttle.objects.filter(**endpoint.key).update(**fields)
        running = Collection.objects.filter(uses, state=Collection.State.RUNNING)
        return len(pause_collections(running, Collection.PauseReason.QUOTA))


def _server_seconds() -> float:
    """Return the clock of the database in seconds since 1970."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC).timestamp()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(cursor.fetchone()[0])


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
