"""Fetch work: claims with all that running them needs, in one transaction."""

from typing import NamedTuple

from django.db import transaction

from apps.accounts.disk_space import Place, check_space
from apps.gym.traces.items import TaskRow
from apps.rollouts.engine.circuit_breakers import Endpoint, Turn, read_shut, store_turns
from apps.rollouts.engine.claiming import Claim, claim_rollouts, count_elsewhere, mark_started, queue_up
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.shared_limits import InUse
from apps.tasks.models import Task


class Work(NamedTuple):
    """A claimed rollout with its task's row and its setting."""

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
    """Store what the breakers have to say and claim what there are slots for, and what this worker is able to run.

    A task's row is parsed once a batch and shared by its repeats. `started` are collections known to have begun.
    Raises DiskFull: what runs already may still be stored in the reserve, so nothing more is begun.
    """
    check_space(Place.DATABASE)
    # One transaction: a claim whose tasks or settings cannot be read is no claim.
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
