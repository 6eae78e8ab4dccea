"""The steps that all deletions of data of a collection share: start one, and delete in short transactions."""

from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from apps.accounts.audit_log import record
from apps.accounts.job_retries import progress_fields
from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut
from apps.rollouts.models import Collection, CollectionDeletion, RolloutQuerySet
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.trace_sizes import measure_traces
from apps.tasks.deletion_jobs import AlreadyBeingDeleted

CHUNK = 200
"""Rollouts per transaction: each may have hundreds of events."""


def start_deletion(
    collection: Collection,
    *,
    name: str,
    total: int,
    action: str,
    user: User | None,
    changes: dict[str, Any] | None = None,
    **selection: Any,
) -> CollectionDeletion:
    """Store a deletion for a worker, and apply `changes` to the collection at once.

    `selection` are further fields of the deletion: they say which rollouts or traces to delete. Raise CannotSteer if
    the collection is unfinished, and AlreadyBeingDeleted.
    """
    try:
        with transaction.atomic():
            locked = Collection.objects.select_for_update().get(pk=collection.pk)
            if not locked.is_finished:
                raise CannotSteer(f"{locked.label} is {locked.state}. Cancel it first.")
            deletion = CollectionDeletion.objects.create(
                collection=locked, name=cut(name, 220), total=total, created_by=user, **selection
            )
            if changes:
                Collection.objects.filter(pk=locked.pk).update(**changes)
            record(user=user, action=action, target=f"collection {locked.pk}", rollouts=total, **selection)
    except IntegrityError:
        raise AlreadyBeingDeleted(f"A deletion in {collection.label} is already in progress.") from None
    return deletion


def delete_in_chunks(
    deletion: CollectionDeletion, select: Callable[[], RolloutQuerySet], remove: Callable[[list[int]], int]
) -> None:
    """Call `remove` with ids of selected rollouts until none is left, each time in a transaction.

    `remove` returns the number of deleted rollouts. The deletion stores the progress and the size of their traces.
    """
    while ids := list(select().order_by().values_list("pk", flat=True)[:CHUNK]):
        with transaction.atomic():
            size, removed = measure_traces(ids), remove(ids)
            CollectionDeletion.objects.filter(pk=deletion.pk).update(
                deleted=F("deleted") + removed,
                deleted_events=F("deleted_events") + size.events,
                deleted_bytes=F("deleted_bytes") + size.bytes,
                **progress_fields(),
            )
        process_exit.check()
