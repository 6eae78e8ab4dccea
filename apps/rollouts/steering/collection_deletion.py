"""Delete a collection with its rollouts, traces, comments and pairs.

A worker does it in short transactions and shows progress.
"""

from django.db import IntegrityError, transaction
from django.db.models import F

from apps.accounts.audit_log import record
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import progress_fields
from apps.accounts.models import User
from apps.gym import process_exit
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, CollectionDeletion, Rollout
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.steering.rollout_deletion import remove_rollouts
from apps.rollouts.steering.trace_deletion import remove_traces
from apps.rollouts.trace_sizes import measure_traces
from apps.tasks.deletion_jobs import (
    UNFINISHED_DELETIONS,
    AlreadyBeingDeleted,
    find_references,
    refuse_losses,
    run_next_deletion,
)
from apps.tasks.stored_images import delete_unused_images

CHUNK = 200
"""Rollouts per transaction: each may have hundreds of events."""


def queue_collection_deletion(*, collection: Collection, user: User | None = None) -> CollectionDeletion:
    """Start the deletion of a collection by a worker. The collection is hidden at once.

    Raise CannotSteer for an unfinished collection, StillInUse if exports use it, and AlreadyBeingDeleted.
    """
    refuse_losses(find_references(collection), collection.label)
    try:
        with transaction.atomic():
            locked = Collection.objects.select_for_update().get(pk=collection.pk)
            if not locked.is_finished:
                raise CannotSteer(f"{locked.label} is {locked.state}. Cancel it first.")
            deletion = CollectionDeletion.objects.create(
                collection=locked, name=locked.label[:220], total=locked.total, created_by=user
            )
            Collection.objects.filter(pk=locked.pk).update(is_being_deleted=True)
            record(user=user, action="collection.deleted", target=f"collection {locked.pk}", rollouts=locked.total)
    except IntegrityError:
        raise AlreadyBeingDeleted(f"{collection.label} is being deleted already.") from None
    return deletion


@background_job(
    thread="datasets",
    waiting=lambda: CollectionDeletion.objects.filter(state__in=UNFINISHED_DELETIONS),
    on_full_disk=True,
)
def delete_next_collection() -> bool:
    """Background job: carry out one deletion. Return True if there was one."""
    rows = CollectionDeletion.objects.select_related("collection")
    return run_next_deletion(rows, _delete, _restore, lost="rollouts")


def _restore(deletion: CollectionDeletion) -> None:
    Collection.objects.filter(pk=deletion.collection_id or 0).update(is_being_deleted=False)


def _delete(deletion: CollectionDeletion) -> None:
    collection = deletion.collection
    if collection is None:
        return  # An earlier attempt finished it.
    if deletion.traces_only:
        remove_traces(deletion, collection)
        return
    if deletion.chosen:
        remove_rollouts(deletion, collection)
        return
    refuse_losses(find_references(collection), collection.label)
    mine = CollectionDeletion.objects.filter(pk=deletion.pk)
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    while tasks := dict(rollouts.values_list("pk", "task")[:CHUNK]):
        with transaction.atomic():
            size = measure_traces(list(tasks))
            Rollout.objects.filter(pk__in=tasks).delete()
            mark_changed((collection.pk, task_id) for task_id in tasks.values())
            mine.update(
                deleted=F("deleted") + len(tasks),
                deleted_events=F("deleted_events") + size.events,
                deleted_bytes=F("deleted_bytes") + size.bytes,
                **progress_fields(),
            )
        process_exit.check()
    collection.delete()
    delete_unused_images()
