"""The steps that all deletions of data of a collection share: start one, and store its progress."""

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from apps.accounts.audit_log import record
from apps.accounts.job_retries import progress_fields
from apps.accounts.models import User
from apps.gym.redaction.shortening import cut
from apps.rollouts.models import Collection, CollectionDeletion
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.trace_sizes import TraceSize
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

    `selection` has the fields of the deletion that select what is deleted. Raise CannotSteer for an unfinished
    collection, and AlreadyBeingDeleted.
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


def store_progress(deletion: CollectionDeletion, rollouts: int, size: TraceSize) -> None:
    """Add deleted rollouts and the size of their traces to the deletion."""
    CollectionDeletion.objects.filter(pk=deletion.pk).update(
        deleted=F("deleted") + rollouts,
        deleted_events=F("deleted_events") + size.events,
        deleted_bytes=F("deleted_bytes") + size.bytes,
        **progress_fields(),
    )
