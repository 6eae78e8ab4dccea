"""Delete a collection with its rollouts, their traces, comments and pairs: visible work of a worker, in short
transactions, that really ends with the rows gone."""

import logging
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, ProtectedError
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.job_retries import claimed, is_due, progressed, put_back
from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.models import Collection, CollectionDeletion, Rollout
from apps.rollouts.steering.controls import CannotSteer
from apps.rollouts.steering.rollout_deletion import remove_rollouts
from apps.tasks.dataset_deletion import AlreadyBeingDeleted, StillInUse, find_references

logger = logging.getLogger(__name__)

CHUNK = 200
"""Rollouts a transaction: each may have hundreds of events."""
QUIET = timedelta(minutes=5)
"""A deletion without a sign of life for so long has lost its worker."""

State = CollectionDeletion.State


def queue_collection_deletion(*, collection: Collection, user: User | None = None) -> CollectionDeletion:
    """A deletion that a worker carries out; from now on nobody sees the collection.

    Raises CannotSteer for one that goes on, StillInUse where files were made of it, and AlreadyBeingDeleted.
    """
    refuse_collection_references(collection)
    try:
        with transaction.atomic():
            locked = Collection.objects.select_for_update().get(pk=collection.pk)
            if not locked.is_finished:
                raise CannotSteer(f"{locked.label} is {locked.state}: cancel it before it is deleted.")
            deletion = CollectionDeletion.objects.create(
                collection=locked, name=locked.label[:220], total=locked.total, created_by=user
            )
            Collection.objects.filter(pk=locked.pk).update(is_being_deleted=True)
            record(user=user, action="collection.deleted", target=f"collection {locked.pk}", rollouts=locked.total)
    except IntegrityError:
        raise AlreadyBeingDeleted(f"{collection.label} is being deleted already.") from None
    return deletion


def refuse_collection_references(collection: Collection) -> None:
    """Raise StillInUse where something that was made of it would lose its origin."""
    if references := find_references(collection):
        counted = " and ".join(f"{count:,} {name}" for name, count in references.items())
        them = "it" if sum(references.values()) == 1 else "them"
        raise StillInUse(f"{counted} made of {collection.label} would lose their rollouts: delete {them} first.")


def delete_next_collection() -> bool:
    """Background job: carry out one deletion; says whether there was one."""
    now = timezone.now()
    quiet = CollectionDeletion.objects.filter(state=State.DELETING, touched_at__lt=now - QUIET)
    if quiet.exists():
        quiet.update(state=State.QUEUED)
    queued = CollectionDeletion.objects.filter(is_due(), state=State.QUEUED)
    deletion = queued.select_related("collection").order_by("id").first()
    if deletion is None:
        return False
    if queued.filter(pk=deletion.pk).update(state=State.DELETING, **claimed()):
        _carry_out(deletion)
    return True


def _carry_out(deletion: CollectionDeletion) -> None:
    row = CollectionDeletion.objects.filter(pk=deletion.pk)
    try:
        if deletion.collection is not None:  # else an earlier attempt came to the end
            if deletion.chosen:
                remove_rollouts(deletion, deletion.collection)
            else:
                _delete(deletion, deletion.collection)
    except process_exit.Leaving:
        row.update(state=State.QUEUED)
        raise
    except (StillInUse, ProtectedError) as problem:
        # Something was made of it in the moment before: what is still whole comes back.
        message = str(problem) if isinstance(problem, StillInUse) else "Something refers to its rollouts."
        Collection.objects.filter(pk=deletion.collection_id or 0).update(is_being_deleted=False)
        row.update(state=State.FAILED, message=cut_clean(message, 500), touched_at=timezone.now())
    except Exception as problem:
        if put_back(row.filter(state=State.DELETING), problem, state=State.QUEUED):
            return
        logger.exception("deletion %s of a collection failed", deletion.pk)
        message = cut_clean(f"{type(problem).__name__}: {problem}", 500)
        row.update(state=State.FAILED, message=message, touched_at=timezone.now())
    else:
        row.update(state=State.DONE, touched_at=timezone.now())


def _delete(deletion: CollectionDeletion, collection: Collection) -> None:
    refuse_collection_references(collection)
    mine = CollectionDeletion.objects.filter(pk=deletion.pk)
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    while ids := list(rollouts.values_list("pk", flat=True)[:CHUNK]):
        with transaction.atomic():
            Rollout.objects.filter(pk__in=ids).delete()
        mine.update(deleted=F("deleted") + len(ids), **progressed())
        process_exit.check()
    collection.delete()
