"""Share one request rate for each endpoint between all workers, in rows of the database.

Each worker has a gate for each endpoint that it calls. Once an endpoint throttles, its gate tells the endpoint's row
what it has seen, several times a second while calls wait, and gets starts for them. See docs/decisions/0011.
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
from apps.rollouts.engine.database_thread import DatabaseThread
from apps.rollouts.models import Collection, Throttle

RETRY_SECONDS = 1.0
"""Between two tries to reach the database."""


class Throttles:
    """The gates of one process. Used by its loop, except for `gate`, which any thread may call."""

    def __init__(self) -> None:
        self._holder = secrets.token_hex(8)
        self._gates: dict[Endpoint, Gate] = {}
        self._limited: frozenset[Endpoint] = frozenset()
        self._quotas: dict[Endpoint, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = RetryLog("sharing the rate of throttled endpoints")
        # Its own connection, opened at the first throttle reply: starts must not wait behind a batch of results.
        self._database = DatabaseThread()

    def gate(self, endpoint: Endpoint) -> Gate:
        """Return the gate of this process for an endpoint."""
        gate = self._gates.get(endpoint)
        if gate is None:
            gate = self._gates.setdefault(endpoint, Gate(partial(self._begin, endpoint)))
        return gate

    def learn(self, limited: Iterable[Endpoint]) -> None:
        """Limit what other processes found to be throttled."""
        self._limited = frozenset(limited)
        for endpoint in self._limited & self._gates.keys():
            self._gates[endpoint].limit()

    def exhausted(self, endpoint: Endpoint, message: str) -> None:
        """Pause what uses an endpoint whose quota is exhausted."""
        is_first = endpoint not in self._quotas
        self._quotas[endpoint] = message
        if is_first:
            self._keep(self._pause(endpoint))

    def claimable(self) -> dict[Endpoint, int]:
        """How many rollouts this process may claim for each endpoint that is throttled or exhausted."""
        limits = {one: gate.claimable for one, gate in self._gates.copy().items() if gate.limited}
        return {**limits, **dict.fromkeys(self._quotas, 0)}

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._database.close()

    def _begin(self, endpoint: Endpoint, gate: Gate) -> None:
        self._keep(self._mind(endpoint, gate))

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _mind(self, endpoint: Endpoint, gate: Gate) -> None:
        """Exchange reports for starts while the endpoint is limited."""
        while gate.limited:
            report = gate.report()
            grant = await self._retry(exchange, endpoint, self._holder, report, gate.message)
            gate.apply(grant)
            if gate.limited:
                await gate.wait_for_news(grant.report_in)

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
    """Take a report into the endpoint's row and hand out starts, by the database's clock."""
    with transaction.atomic():
        Throttle.objects.get_or_create(**_key(endpoint))
        throttle = Throttle.objects.select_for_update().get(**_key(endpoint))
        now = _server_seconds()
        control = msgspec.convert(throttle.control, RateControl)
        grant = control.exchange(holder, report, now)
        throttle.control = msgspec.to_builtins(control)
        throttle.limited_until = _moment(control.limited_until)
        throttle.paused_until = _moment(control.paused_until)
        # Not above what the endpoint took last: the rate grows with time until it is tried.
        throttle.rate = min(1e308, control.rate(now), control.ceiling or math.inf)
        throttle.concurrency = None if control.cap is None else int(control.cap)
        if report.throttled:
            throttle.message = cut_clean(message.replace("\0", ""), 500)
            throttle.retry_after = report.retry_after
        throttle.save()
    return grant


def read_limited() -> list[Endpoint]:
    """Return the endpoints that throttle now."""
    rows = Throttle.objects.filter(limited_until__gt=server_now()).values_list("policy_model_id", "environment_id")
    return [
        Endpoint("policy_model", model) if model else Endpoint("environment", environment)
        for model, environment in rows
    ]


def pause_for_quota(endpoint: Endpoint, message: str) -> int:
    """Pause all running collections that use the endpoint. Return how many that were."""
    uses = Q(environment=endpoint.pk)
    if endpoint.kind == "policy_model":
        uses = Q(policy_model=endpoint.pk) | Q(environment__judge_model=endpoint.pk)
    with transaction.atomic():
        said = {"quota_message": cut_clean(message.replace("\0", ""), 500), "quota_at": server_now()}
        Throttle.objects.get_or_create(**_key(endpoint))
        Throttle.objects.filter(**_key(endpoint)).update(**said)
        running = Collection.objects.filter(uses, state=Collection.State.RUNNING).values("pk")
        # The state twice: after waiting for a row's lock PostgreSQL checks only the outer condition again.
        return Collection.objects.filter(pk__in=running, state=Collection.State.RUNNING).update(
            state=Collection.State.PAUSED, pause_reason=Collection.PauseReason.QUOTA
        )


def _server_seconds() -> float:
    """The database's clock in seconds since 1970."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC).timestamp()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(cursor.fetchone()[0])


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _key(endpoint: Endpoint) -> dict[str, Any]:
    return {f"{endpoint.kind}_id": endpoint.pk}
