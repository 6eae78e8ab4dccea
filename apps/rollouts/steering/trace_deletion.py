"""Delete the traces of a finished collection. Its rollouts, rewards and figures stay."""

from collections.abc import Iterable

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.job_retries import progress_fields
from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut
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
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.trace_sizes import measure_traces
from apps.tasks.deletion_jobs import AlreadyBeingDeleted

CHUNK = 200


def queue_trace_deletion(*, collection: Collection, user: User | None = None) -> CollectionDeletion:
    """Start the deletion of all traces of a collection by a worker. Nothing new can use the traces from now on.

    Raise CannotSteer for an unfinished collection, and AlreadyBeingDeleted.
    """
    try:
        with transaction.atomic():
            locked = Collection.objects.select_for_update().get(pk=collection.pk)
            if not locked.is_finished:
                raise CannotSteer(f"{locked.label} is {locked.state}. Cancel it first.")
            total = rollouts_with_traces(locked).count()
            deletion = CollectionDeletion.objects.create(
                collection=locked,
                name=cut(f"traces of {locked.label}", 220),
                total=total,
                traces_only=True,
                created_by=user,
            )
            Collection.objects.filter(pk=locked.pk).update(traces_deleted_at=timezone.now())
            record(user=user, action="collection.traces_deleted", target=f"collection {locked.pk}", rollouts=total)
    except IntegrityError:
        raise AlreadyBeingDeleted(f"A deletion in {collection.label} is already in progress.") from None
    return deletion


def rollouts_with_traces(collection: Collection) -> RolloutQuerySet:
    mine = {"rollout": OuterRef("pk")}
    rollouts: RolloutQuerySet = Rollout.objects.filter(collection=collection)
    return rollouts.filter(Exists(TraceEvent.objects.filter(**mine)) | Exists(RolloutWords.objects.filter(**mine)))


def remove_traces(deletion: CollectionDeletion, collection: Collection) -> None:
    """Carry out the deletion in short transactions."""
    mine = CollectionDeletion.objects.filter(pk=deletion.pk)
    while ids := list(rollouts_with_traces(collection).order_by().values_list("pk", flat=True)[:CHUNK]):
        with transaction.atomic():
            size = measure_traces(ids)
            for model in (TraceEvent, RolloutWords, UnindexedRollout):
                model._default_manager.filter(rollout__in=ids).delete()
            mine.update(
                deleted=F("deleted") + len(ids),
                deleted_events=F("deleted_events") + size.events,
                deleted_bytes=F("deleted_bytes") + size.bytes,
                **progress_fields(),
            )
        process_exit.check()
    announce_collection(collection.pk)


def explain_deleted_traces(collections: Iterable[Collection], *, remedy: str = " Choose another.") -> str:
    """Return why these collections cannot be used for work on traces, followed by `remedy`, or an empty string."""
    deleted = [collection for collection in collections if collection.traces_deleted_at]
    if not deleted:
        return ""
    return f"The traces of {deleted[0].label} were deleted on {deleted[0].traces_deleted_at:%Y-%m-%d}.{remedy}"
