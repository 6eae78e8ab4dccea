"""Steer a collection that runs."""

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.rollouts.announcing import announce_collection
from apps.rollouts.models import Collection, Rollout


def cancel_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Cancel what is queued at once; workers see it within a second and drop what runs. Cancelling twice is once."""
    with transaction.atomic():
        unfinished = [Collection.State.PLANNING, Collection.State.RUNNING]
        mine = Collection.objects.filter(pk=collection.pk, state__in=unfinished)
        if mine.update(state=Collection.State.CANCELLED, finished_at=timezone.now()):
            queued = Rollout.objects.filter(collection=collection, status=Rollout.Status.QUEUED)
            dropped = queued.update(status=Rollout.Status.CANCELLED, finished_at=timezone.now())
            Collection.objects.filter(pk=collection.pk).update(cancelled=F("cancelled") + dropped)
            record(user=user, action="collection.cancelled", target=f"collection {collection.pk}", rollouts=dropped)
    transaction.on_commit(lambda: announce_collection(collection.pk))
    collection.refresh_from_db()
    return collection
