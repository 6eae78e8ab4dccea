"""Background job: send the stored points of tracked runs to their trackers.

If a worker dies between sending and storing the result, the same points are sent again. They have the same numbers,
steps, times and values, and each tracker recognises them (see its client), so that no point is doubled.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.gym.calls.outbound import Outbound, OutboundFailed
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.errors import PolicyError
from apps.policies.policy_clients import open_outbound
from apps.tracking.models import TrackedPoint, TrackedRun
from apps.tracking.page_links import page_link
from apps.tracking.run_batches import Point, RunBatch, SentRun, TrackerClient, TrackerFailed
from apps.tracking.sample_tables import sample_rollouts
from apps.tracking.send_leases import claim_due, store_failure, store_success
from apps.tracking.tracker_clients import open_client

logger = logging.getLogger(__name__)

BATCH = 8
"""Maximum runs that are sent at the same time."""
MAX_POINTS = 500
SEND_SECONDS = 200.0
"""Time limit of an attempt, shorter than its lease."""

State = TrackedRun.State


class _Attempt(NamedTuple):
    run: TrackedRun
    client: TrackerClient
    batch: RunBatch


def _unsent() -> QuerySet[TrackedRun]:
    return TrackedRun.objects.filter(Q(recorded__gt=F("sent")) | Q(is_complete=True), state=State.ACTIVE)


@background_job(thread="tracking_sends", waiting=_unsent)
def send_runs() -> bool:
    """Background job: send the runs that are due, concurrently. Return True if there were any."""
    claimed = claim_due(_unsent().select_related("tracker", "collection"), most=BATCH)
    if claimed:
        send_claimed(claimed)
    return bool(claimed)


def send_claimed(runs: Sequence[TrackedRun]) -> None:
    """Send one batch of each run, and store the results."""
    outbound = open_outbound()
    attempts = [attempt for run in runs if (attempt := _prepare(run, outbound))]

    async def send_all() -> list[SentRun | BaseException]:
        try:
            return await asyncio.gather(*(_send(attempt) for attempt in attempts), return_exceptions=True)
        finally:
            await outbound.close()

    for attempt, result in zip(attempts, asyncio.run(send_all()), strict=True):
        if isinstance(result, SentRun):
            _store_success(attempt, result)
        else:
            _store_failure(attempt.run, result)


def _prepare(run: TrackedRun, outbound: Outbound) -> _Attempt | None:
    """Return the next attempt of a run. An error of one run does not delay the others."""
    try:
        client = open_client(run, outbound)
        return _Attempt(run, client, make_batch(run, rewrites=client.rewrites))
    except PolicyError:
        message = "GYMWEB_SECRET_KEY has changed. Enter the credential of the tracker again."
        _store_failure(run, TrackerFailed(message, is_final=True))
    except Exception as problem:
        _store_failure(run, problem)
    return None


async def _send(attempt: _Attempt) -> SentRun:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            return await attempt.client.send(attempt.batch)
    except TimeoutError:
        raise TrackerFailed(f"The tracker did not confirm the points within {SEND_SECONDS:g} s.") from None
    except OutboundRefused as error:
        raise TrackerFailed(str(error), is_final=True) from None
    except OutboundFailed as error:
        raise TrackerFailed(str(error)) from None


def make_batch(run: TrackedRun, *, rewrites: bool) -> RunBatch:
    """Return the next points of a run. The last batch of a finished collection also has its samples and state."""
    points = list(run.points.filter(number__lt=run.recorded))
    sent = points if rewrites else points[run.sent : run.sent + MAX_POINTS]
    is_last = run.is_complete and (rewrites or len(points) <= run.sent + MAX_POINTS)
    last = points[-1] if points else None
    return RunBatch(
        key=run.key.hex,
        run_id=run.run_id,
        name=run.name,
        project=run.project,
        link=page_link("collection_detail", run.collection_id),
        started_at=run.collection.created_at.timestamp(),
        recorded=len(points),
        last_step=last.step if last else 0,
        last_at=(last.at if last else timezone.now()).timestamp(),
        settings=run.config,
        points=[_point(one) for one in sent],
        samples=sample_rollouts(run.collection, run.samples) if is_last and run.samples else None,
        state=run.collection.state if is_last else "",
    )


def _point(row: TrackedPoint) -> Point:
    return Point(
        number=row.number,
        at=row.at.timestamp(),
        step=row.step,
        values=row.values,
        of_version=row.of_version,
        version=row.version,
    )


def _store_success(attempt: _Attempt, sent: SentRun) -> None:
    run, batch, now = attempt.run, attempt.batch, timezone.now()
    last = batch.points[-1].number + 1 if batch.points else run.sent
    changes = {
        "run_id": sent.run_id,
        "url": sent.url,
        "sent": max(run.sent, last),
        "last_sent_at": now,
        "next_attempt_at": now,
        **({"state": State.FINISHED} if batch.state else {}),
    }
    store_success(TrackedRun.objects.filter(state=State.ACTIVE), run, changes)


def _store_failure(run: TrackedRun, problem: BaseException) -> None:
    active = TrackedRun.objects.filter(state=State.ACTIVE)
    message, is_final = str(problem), isinstance(problem, TrackerFailed) and problem.is_final
    if not isinstance(problem, TrackerFailed):
        # Users see the message in the row; the log has the traceback.
        logger.error("%s could not be sent", run, exc_info=problem)
        message = f"{type(problem).__name__}: {problem}"
    store_failure(active, run, message, is_final=is_final, failed={"state": State.FAILED})
