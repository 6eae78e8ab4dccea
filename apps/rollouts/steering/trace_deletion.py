"""Delete the traces of a finished collection. Its rollouts, rewards and figures stay."""

from collections.abc import Iterable

from django.db.models import Exists, OuterRef
from django.utils import timezone

from apps.accounts.models import User
from apps.rollouts.models import (
    Collection,
    CollectionDeletion,
    Rollout,
    RolloutQuerySet,
    RolloutWords,
    TraceEvent,
    UnindexedRollout,
)
from apps.rollouts.notifications import announce_collection
from apps.rollouts.steering.deletion_steps import delete_in_chunks, start_deletion


def queue_trace_deletion(*, collection: Collection, user: User | None = None) -> CollectionDeletion:
    """Start the deletion of all traces of a collection by a worker. Nothing new can use the traces from now on.

    Raise CannotSteer for an unfinished collection, and AlreadyBeingDeleted.
    """
    return start_deletion(
        collection,
        name=f"traces of {collection.label}",
        total=rollouts_with_traces(collection).count(),
        action="collection.traces_deleted",
        user=user,
        changes={"traces_deleted_at": timezone.now()},
        traces_only=True,
    )


def rollouts_with_traces(collection: Collection) -> RolloutQuerySet:
    mine = {"rollout": OuterRef("pk")}
    rollouts: RolloutQuerySet = Rollout.objects.filter(collection=collection)
    return rollouts.filter(Exists(TraceEvent.objects.filter(**mine)) | Exists(RolloutWords.objects.filter(**mine)))


def remove_traces(deletion: CollectionDeletion, collection: Collection) -> None:
    """Carry out the deletion in short transactions."""

    def remove(ids: list[int]) -> int:
        for model in (TraceEvent, RolloutWords, UnindexedRollout):
            model._default_manager.filter(rollout__in=ids).delete()
        return len(ids)

    delete_in_chunks(deletion, lambda: rollouts_with_traces(collection), remove)
    announce_collection(collection.pk)


def explain_deleted_traces(collections: Iterable[Collection], *, remedy: str = " Choose another.") -> str:
    """Return why these collections cannot be used for work on traces, followed by `remedy`, or an empty string."""
    deleted = [collection for collection in collections if collection.traces_deleted_at]
    if not deleted:
        return ""
    return f"The traces of {deleted[0].label} were deleted on {deleted[0].traces_deleted_at:%Y-%m-%d}.{remedy}"
