"""Delete a collection with its rollouts, traces, comments and pairs.

A worker does it in short transactions and shows progress.
"""

from django.db import transaction

from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.gym import process_exit
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, CollectionDeletion, Rollout
from apps.rollouts.steering.deletion_steps import CHUNK, start_deletion, store_progress
from apps.rollouts.steering.rollout_deletion import remove_rollouts
from apps.rollouts.steering.trace_deletion import remove_traces
from apps.rollouts.trace_sizes import measure_traces
from apps.tasks.deletion_jobs import (
    UNFINISHED_DELETIONS,
    find_references,
    refuse_losses,
    run_next_deletion,
)
from apps.tasks.stored_images import delete_unused_images


def queue_collection_deletion(*, collection: Collection, user: User | None = None) -> CollectionDeletion:
    """Start the deletion of a collection by a worker. The collection is hidden at once.

    Raise CannotSteer for an unfinished collection, StillInUse if exports use it, and AlreadyBeingDeleted.
    """
    refuse_losses(find_references(collection), collection.label)
    return start_deletion(
        collection,
        name=collection.label,
        total=collection.total,
        action="collection.deleted",
        user=user,
        changes={"is_being_deleted": True},
    )


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
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    while tasks := dict(rollouts.values_list("pk", "task")[:CHUNK]):
        with transaction.atomic():
            size = measure_traces(list(tasks))
            Rollout.objects.filter(pk__in=tasks).delete()
            mark_changed((collection.pk, task_id) for task_id in tasks.values())
            store_progress(deletion, len(tasks), size)
        process_exit.check()
    collection.delete()
    delete_unused_images()
