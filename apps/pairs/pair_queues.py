"""Create blind queues of proposed pairs. Verdicts count in the next version of the pair set."""

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from apps.accounts.models import User
from apps.pairs.models import PairSet, PreferencePair
from apps.reviews.models import ItemRollout, Queue
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import QueueRefused, fill_from_sets

MOST = 1_000
USUAL = 100


def ask_people(
    *, pair_set: PairSet, name: str = "", limit: int = USUAL, overlap: int = 1, user: User | None = None
) -> Queue:
    """Create a pairwise queue of proposed pairs. Smallest margin first, where rewards are least certain.

    A queue compares rollouts of one task, so pairs across dataset versions are left out, and so are pairs in open
    queues. Raise QueueRefused, and ValidationError by field.
    """
    if not 1 <= limit <= MOST:
        raise QueueRefused(f"A queue takes 1 to {MOST:,} pairs.", "limit")
    proposed = PreferencePair.objects.filter(pair_set=pair_set, status=PreferencePair.Status.PROPOSED)
    unjudged = proposed.exclude(source=PreferencePair.Source.VERDICT).filter(chosen__task=F("rejected__task"))
    queue = Queue(
        name=name.strip() or f"Pairs of {pair_set.title}",
        kind=Queue.Kind.PAIRWISE,
        overlap=overlap,
        source={"pair_set": pair_set.pk},
    )
    with transaction.atomic():
        # Locks the pair set, which serializes simultaneous requests.
        PairSet.objects.select_for_update().get(pk=pair_set.pk)
        unasked = unjudged.filter(~Exists(_asked()))
        sets = list(unasked.order_by("margin", "id").values_list("chosen_id", "rejected_id")[:limit])
        if not sets:
            left = "without reviews and outside open queues"
            raise QueueRefused(f"{pair_set.title} has no proposed pair {left}.", "pair_set")
        return create_queue(queue=queue, items=fill_from_sets(sets, kind=queue.kind), user=user)


def _asked() -> QuerySet[ItemRollout]:
    """Return items of open pairwise queues with the two rollouts of the outer query's pair."""
    return ItemRollout.objects.filter(
        rollout=OuterRef("chosen"),
        item__entries__rollout=OuterRef("rejected"),
        item__queue__kind=Queue.Kind.PAIRWISE,
        item__queue__closed_at__isnull=True,
    )
