"""Create blind review queues from proposed pairs. The next version of the pair set uses their verdicts."""

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from apps.accounts.models import User
from apps.pairs.models import PairSet, PreferencePair
from apps.reviews.models import ItemRollout, Queue
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import QueueRefused, fill_from_sets

MAX_PAIRS = 1_000
DEFAULT_PAIRS = 100


def create_pair_queue(
    *, pair_set: PairSet, name: str = "", limit: int = DEFAULT_PAIRS, overlap: int = 1, user: User | None = None
) -> Queue:
    """Create a pairwise queue of at most `limit` proposed pairs, smallest margin first.

    Pairs in open queues are left out, and pairs across dataset versions, because a queue item compares rollouts of one
    task. Raise QueueRefused, or ValidationError with errors by field.
    """
    if not 1 <= limit <= MAX_PAIRS:
        raise QueueRefused(f"A queue takes 1 to {MAX_PAIRS:,} pairs.", "limit")
    proposed = PreferencePair.objects.filter(pair_set=pair_set, status=PreferencePair.Status.PROPOSED)
    unreviewed = proposed.exclude(source=PreferencePair.Source.VERDICT).filter(chosen__task=F("rejected__task"))
    queue = Queue(
        name=name.strip() or f"Pairs of {pair_set.title}",
        kind=Queue.Kind.PAIRWISE,
        overlap=overlap,
        source={"pair_set": pair_set.pk},
    )
    with transaction.atomic():
        # Lock the pair set to serialize concurrent requests.
        PairSet.objects.select_for_update().get(pk=pair_set.pk)
        open_pairs = unreviewed.filter(~Exists(_open_queue_items()))
        sets = list(open_pairs.order_by("margin", "id").values_list("chosen_id", "rejected_id")[:limit])
        if not sets:
            problem = f"All proposed pairs of {pair_set.title} have reviews or are in an open queue."
            raise QueueRefused(problem, "pair_set")
        return create_queue(queue=queue, items=fill_from_sets(sets, kind=queue.kind), user=user)


def _open_queue_items() -> QuerySet[ItemRollout]:
    """Return items of open pairwise queues with the two rollouts of the outer query's pair."""
    return ItemRollout.objects.filter(
        rollout=OuterRef("chosen"),
        item__entries__rollout=OuterRef("rejected"),
        item__queue__kind=Queue.Kind.PAIRWISE,
        item__queue__closed_at__isnull=True,
    )
