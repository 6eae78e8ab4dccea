"""Who reads a collection as a stream, over all web processes: what nobody reads on is cancelled, unless it is kept."""

import uuid
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from apps.rollouts.models import Collection
from apps.rollouts.steering.controls import CannotSteer, cancel_collection

COME_BACK = timedelta(seconds=10)
"""How long what was asked for with a key waits for its reader, who may have lost the answer and ask again."""
UNFINISHED = [Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED]


def expect_reader(*, collection: Collection) -> None:
    """Somebody is about to read it. Until they begin it counts as left: the answer may never reach them."""
    unread = Q(reader__isnull=True) | Q(left_at__isnull=False)
    Collection.objects.filter(unread, pk=collection.pk).update(left_at=timezone.now())


def begin_reading(*, collection: Collection) -> uuid.UUID:
    """The token of a reader. Whoever came last is the one who counts: the others have lost their connection."""
    reader = uuid.uuid4()
    Collection.objects.filter(pk=collection.pk).update(reader=reader, left_at=None)
    return reader


def leave_unread(*, collection: Collection, reader: uuid.UUID) -> None:
    """This reader has gone. Unless another one came later, the collection is cancelled where nobody comes back."""
    mine = Collection.objects.filter(pk=collection.pk, reader=reader, state__in=UNFINISHED)
    mine.update(left_at=timezone.now())


def is_last_reader(*, collection: Collection, reader: uuid.UUID) -> bool:
    return Collection.objects.filter(pk=collection.pk, reader=reader).exists()


def sweep_left() -> bool:
    """Cancel one collection that nobody came back to read; True when there was one. A background job."""
    gone = Collection.objects.filter(left_at__lt=timezone.now() - COME_BACK, state__in=UNFINISHED)
    left = gone.select_related("created_by").first()
    if left is None:
        return False
    try:
        cancel_collection(collection=left, user=left.created_by)
    except CannotSteer:
        # It has ended meanwhile.
        return True
    return True
