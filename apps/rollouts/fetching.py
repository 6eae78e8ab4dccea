"""Fetch work: claims with all that running them needs, in one transaction."""

import logging
from typing import NamedTuple

from django.db import DatabaseError, transaction

from apps.gym.items import TaskRow
from apps.rollouts.breaking import Endpoint, Turn, read_shut, store_turns
from apps.rollouts.claiming import Claim, claim_rollouts, mark_started
from apps.rollouts.connecting import Settings
from apps.rollouts.running import Setting
from apps.rollouts.sharing import InUse
from apps.tasks.models import Task

logger = logging.getLogger(__name__)


class Work(NamedTuple):
    """A claimed rollout with its task's row and its setting, or what keeps it from having one."""

    claim: Claim
    row: TaskRow
    setting: Setting | Exception


def fetch_work(
    *,
    lease: int,
    seats: int,
    in_use: InUse,
    turns: dict[Endpoint, Turn],
    started: set[int],
    settings_in_use: Settings,
) -> list[Work]:
    """Store what the breakers have to say and claim what there are slots for.

    A task's row is parsed once a batch and shared by its repeats. `started` are collections known to have begun.
    """

    def setting(collection_id: int) -> Setting | Exception:
        try:
            return settings_in_use.get(collection_id)
        except DatabaseError:
            raise  # says nothing of the collection
        except Exception as problem:
            logger.warning("collection %s cannot run: %r", collection_id, problem)
            return problem

    # One transaction: a claim whose tasks or settings cannot be read is no claim.
    with transaction.atomic():
        if turns:
            store_turns(turns)
        claims = claim_rollouts(lease=lease, slots=in_use.slots(seats, read_shut()))
        tasks = Task.objects.filter(pk__in={claim.task_id for claim in claims}).only("row_json")
        rows = {task.pk: task.row for task in tasks}
        collections = {claim.collection_id for claim in claims}
        if not collections <= started:
            mark_started(collections - started)
        work = [Work(claim, rows[claim.task_id], setting(claim.collection_id)) for claim in claims]
    started |= collections
    return work
