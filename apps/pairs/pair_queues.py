"""Ask people about pairs that rewards proposed: a queue in which they judge the two, blindly, and whose verdicts count
in the next version of the set."""

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
    """A pairwise queue of so many proposed pairs, those of the smallest margin first: there the reward knows least.

    A queue refers to rollouts of one task, so that pairs over versions of a dataset are left out, and so are those that
    an open queue asks about already: asked twice, people are asked about others. Raises QueueRefused, and
    ValidationError by field.
    """
    if not 1 <= limit <= MOST:
        raise QueueRefused(f"People are asked about 1 to {MOST:,} pairs.", "limit")
    proposed = PreferencePair.objects.filter(pair_set=pair_set, status=PreferencePair.Status.PROPOSED)
    unjudged = proposed.exclude(source=PreferencePair.Source.VERDICT).filter(chosen__task=F("rejected__task"))
    queue = Queue(
        name=name.strip() or f"Pairs of {pair_set.title}",
        kind=Queue.Kind.PAIRWISE,
        overlap=overlap,
        source={"pair_set": pair_set.pk},
    )
    with transaction.atomic():
        # Its row keeps two who ask at once apart.
        PairSet.objects.select_for_update().get(pk=pair_set.pk)
        unasked = unjudged.filter(~Exists(_asked()))
        sets = list(unasked.order_by("margin", "id").values_list("chosen_id", "rejected_id")[:limit])
        if not sets:
            left = "that nobody has judged and no open queue asks about"
            raise QueueRefused(f"{pair_set.title} has no proposed pair {left}.", "pair_set")
        return create_queue(queue=queue, items=fill_from_sets(sets, kind=queue.kind), user=user)


def _asked() -> QuerySet[ItemRollout]:
    """The items of open pairwise queues that are of the two rollouts of the outer query's pair."""
    return ItemRollout.objects.filter(
        rollout=OuterRef("chosen"),
        item__entries__rollout=OuterRef("rejected"),
        item__queue__kind=Queue.Kind.PAIRWISE,
        item__queue__closed_at__isnull=True,
    )
