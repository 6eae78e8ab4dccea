"""Database calls of the worker's loop.

A claim reads everything needed to run the rollouts in one transaction. Once a second it reads cancellations, limits,
breakers, and the state of all workers.
"""

from typing import NamedTuple

from django.db import transaction

from apps.accounts.disk_space import Place, check_space
from apps.gym.traces.items import TaskRow
from apps.rollouts.engine.circuit_breakers import Endpoint, Turn, read_shut, store_turns
from apps.rollouts.engine.claiming import Claim, claim_rollouts, count_elsewhere, has_queued, mark_started, queue_up
from apps.rollouts.engine.collection_limits import pause_overdue
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.throttling import read_limited
from apps.rollouts.engine.worker_leases import is_draining, live_workers
from apps.rollouts.models import Collection
from apps.tasks.models import Task


class Work(NamedTuple):
    """A claimed rollout with its task row and its settings."""

    claim: Claim
    row: TaskRow
    setting: Setting


def fetch_work(
    *,
    lease: int,
    seats: int,
    in_use: InUse,
    turns: dict[Endpoint, Turn],
    started: set[int],
    settings_in_use: Settings,
) -> list[Work]:
    """Store the breaker reports, then claim rollouts for the free slots that this worker can run.

    A task row is parsed once per batch and shared by its repeats. `started` are collections known to have started.
    Raise DiskFull: then no new rollouts start, but running ones can still be stored in the reserve.
    """
    check_space(Place.DATABASE)
    if not in_use.running and not turns and not has_queued(in_use.group):
        return []
    # One transaction: if tasks or settings cannot be read, nothing is claimed.
    with transaction.atomic():
        if turns:
            store_turns(turns)
        queue_up()
        shut = read_shut()
        slots = in_use.slots(seats, shut, count_elsewhere(lease))
        claims = claim_rollouts(lease=lease, slots=slots, can_run=settings_in_use.can_run)
        tasks = Task.objects.filter(pk__in={claim.task_id for claim in claims}).only("row_json")
        rows = {task.pk: task.row for task in tasks}
        collections = {claim.collection_id for claim in claims}
        in_use.take_trials(shut, collections)
        if not collections <= started:
            mark_started(collections - started)
        work = [Work(claim, rows[claim.task_id], settings_in_use.get(claim.collection_id)) for claim in claims]
    started |= collections
    return work


class Surroundings(NamedTuple):
    """Changes outside of the worker.

    `cancelled`: the given collections that were cancelled or deleted; `paused`: collections paused by this call;
    `live`: workers with their groups.
    """

    cancelled: set[int]
    paused: list[int]
    live: list[tuple[int, str]]
    shut: list[Endpoint]
    throttled: list[Endpoint]
    is_draining: bool


def look_around(*, lease: int, collection_ids: set[int], turns: dict[Endpoint, Turn]) -> Surroundings:
    """Store the breaker reports, pause collections that ran out of time, and return cancellations and workers."""
    store_turns(turns)
    going_on = Collection.objects.filter(pk__in=collection_ids).exclude(state=Collection.State.CANCELLED)
    return Surroundings(
        cancelled=collection_ids - set(going_on.values_list("pk", flat=True)),
        paused=pause_overdue(),
        live=live_workers(),
        shut=list(read_shut()),
        throttled=read_limited(),
        is_draining=is_draining(lease),
    )
