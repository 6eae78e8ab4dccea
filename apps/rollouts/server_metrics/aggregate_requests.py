"""Ask the resource server of a collection for its own metrics, in the background, and store them."""

import asyncio
from collections import abc
from collections.abc import Iterator
from typing import Any

import orjson
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import is_due
from apps.accounts.models import User
from apps.environments.environment_health import worker_group
from apps.environments.models import Adapter, Environment
from apps.environments.resource_servers import connect_caller
from apps.gym import process_exit
from apps.gym.errors import EnvironmentFault, GymError
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.gym.resources.aggregate_metrics import AggregatedMetrics, ask_metrics, verify_response
from apps.policies.policy_clients import open_outbound
from apps.rollouts.last_verifications import read_last_verifications
from apps.rollouts.models import Collection, Rollout, ServerMetrics
from apps.tasks import fenced_jobs
from apps.tasks.stored_images import full_row

ADAPTERS = (Adapter.HTTP, Adapter.GYMNASIUM)
MAX_BODY = 64 * 1024 * 1024
"""Maximum bytes of one request."""
_CHUNK = 200
_LISTEN_SECONDS = 0.2

State = ServerMetrics.State


class NoServerMetrics(Refusal, status=409, code="no-server-metrics"):
    """Raised if the environment of the collection has no server that could compute metrics."""


def may_have_metrics(environment: Environment) -> bool:
    """Return True if a server over HTTP computes the rewards of this environment."""
    return environment.adapter in ADAPTERS and environment.verifies and not environment.verifies_here


def request_server_metrics(*, collection: Collection, user: User | None = None) -> ServerMetrics:
    """Request the metrics of a collection again. Raise NoServerMetrics if no server computes its rewards."""
    if not may_have_metrics(collection.environment):
        raise NoServerMetrics(
            f"No server over HTTP computes the rewards of {collection.environment}, so it has no metrics of its own."
        )
    if not collection.rewarded:
        raise NoServerMetrics(f"No rollout of {collection.label} has a reward yet.")
    queue_server_metrics([collection.pk])
    record(user=user, action="collection.server_metrics", target=f"collection {collection.pk}")
    return ServerMetrics.objects.select_related("collection").get(collection=collection)


def queue_server_metrics(collection_ids: abc.Collection[int]) -> None:
    """Queue the requests of those collections whose environment may have metrics of its own."""
    chosen = Collection.objects.filter(pk__in=collection_ids, environment__adapter__in=ADAPTERS, rewarded__gt=0)
    now = timezone.now()
    rows = [
        ServerMetrics(collection=each, state=State.QUEUED, touched_at=now)
        for each in chosen.select_related("environment")
        if may_have_metrics(each.environment)
    ]
    ServerMetrics.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["collection"],
        update_fields=["state", "attempt", "message", "retry_at", "failing_since", "touched_at"],
    )


@background_job(
    thread="server_metrics",
    waiting=lambda: ServerMetrics.objects.filter(state__in=[State.QUEUED, State.COMPUTING]),
)
def request_queued_metrics() -> bool:
    """Background job: request the metrics that were queued first. Return True if there were any."""
    fenced_jobs.requeue_unresponsive(ServerMetrics.objects.filter(state=State.COMPUTING), queued=State.QUEUED)
    reachable = {"collection__environment__worker_group__in": {"", worker_group.get()}}
    queued: QuerySet[ServerMetrics] = ServerMetrics.objects.filter(is_due(), state=State.QUEUED)
    row = queued.filter(**reachable).order_by("touched_at", "id").first()
    attempt = fenced_jobs.claim(queued, row.pk, doing=State.COMPUTING, queued=State.QUEUED) if row else None
    if row is None or attempt is None:
        return False
    with attempt.store_errors():
        try:
            _request(row, attempt)
        except GymError as problem:
            # An expected failure: it is shown on the page of the collection.
            attempt.write(state=State.FAILED, message=cut_clean(str(problem), 500), attempt=0)
    return True


def _request(row: ServerMetrics, attempt: fenced_jobs.Attempt) -> None:
    collection = Collection.objects.select_related("environment", "agent").get(pk=row.collection_id)
    # Read before the rollouts: rewards that change meanwhile make the metrics outdated.
    counted = {"rewarded": collection.rewarded, "reward_sum": collection.reward_sum}
    body = _encode(_responses(collection, attempt))
    found = asyncio.run(_ask_until_leaving(collection.environment, body))
    if found is None:
        attempt.write(state=State.UNSUPPORTED, message="", attempt=0)
        return
    attempt.write(state=State.READY, attempt=0, measured_at=timezone.now(), **counted, **found._asdict())


def _responses(collection: Collection, attempt: fenced_jobs.Attempt) -> Iterator[dict[str, Any]]:
    rows = Rollout.objects.filter(collection=collection).rewarded().select_related("task")
    rows = rows.order_by("task_id", "repeat")
    last: tuple[int, int] = (0, -1)
    while True:
        following = rows.filter(task_id=last[0], repeat__gt=last[1])[:_CHUNK]
        chunk = list(following) or list(rows.filter(task_id__gt=last[0])[:_CHUNK])
        if not chunk:
            return
        verified = read_last_verifications(rollout.pk for rollout in chunk)
        for rollout in chunk:
            assert rollout.reward is not None
            yield verify_response(
                full_row(rollout.task),
                verified[rollout.pk].details if rollout.pk in verified else {},
                reward=rollout.reward,
                components=rollout.components,
                task_index=rollout.task.index,
                repeat=rollout.repeat,
                agent=collection.agent.slug,
                tokens=(rollout.input_tokens, rollout.output_tokens),
            )
        last = chunk[-1].task_id, chunk[-1].repeat
        process_exit.check()
        attempt.write()


def _encode(responses: Iterator[dict[str, Any]]) -> bytes:
    """Return a JSON array. Raise EnvironmentFault if it is larger than MAX_BODY."""
    body = bytearray(b"[")
    for response in responses:
        if len(body) > 1:
            body += b","
        body += orjson.dumps(response)
        if len(body) > MAX_BODY:
            most = f"{MAX_BODY // 1024 // 1024} MiB"
            raise EnvironmentFault(
                f"The verified rollouts take more than {most}, the maximum of one request"
            ).permanent()
    return bytes(body + b"]")


async def _ask_until_leaving(environment: Environment, body: bytes) -> AggregatedMetrics | None:
    """Ask the server. Raise Leaving if the worker shuts down meanwhile."""
    asking = asyncio.create_task(_ask(environment, body))
    try:
        while not asking.done():
            await asyncio.wait([asking], timeout=_LISTEN_SECONDS)
            process_exit.check()
        return await asking
    finally:
        asking.cancel()


async def _ask(environment: Environment, body: bytes) -> AggregatedMetrics | None:
    outbound = open_outbound()
    try:
        caller = connect_caller(environment, outbound)
        return await ask_metrics(caller, body, seconds=environment.verify_timeout)
    finally:
        await outbound.close()
