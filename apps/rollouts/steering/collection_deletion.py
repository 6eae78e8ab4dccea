"""Delete a collection with its rollouts, traces, comments and pairs.

A worker does it in short transactions and shows progress.
"""

from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, CollectionDeletion, Rollout
from apps.rollouts.steering.deletion_steps import delete_in_chunks, start_deletion
from apps.rollouts.steering.rollout_deletion import remove_rollouts
from apps.rollouts.steering.trace_deletion import remove_traces
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

    def remove(ids: list[int]) -> int:
        tasks = list(Rollout.objects.filter(pk__in=ids).values_list("collection", "task"))
        Rollout.objects.filter(pk__in=ids).delete()
        mark_changed(tasks)
        return len(ids)

    delete_in_chunks(deletion, lambda: Rollout.objects.filter(collection=collection), remove)
    collection.delete()
    delete_unused_images()
