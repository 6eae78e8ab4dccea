"""Ask people about pairs that rewards proposed: a queue in which they judge the two, blindly, and whose verdicts count
in the next version of the set."""

from django.db.models import F

from apps.accounts.models import User
from apps.exports.models import PairSet, PreferencePair
from apps.reviews.filling import QueueRefused, fill_from_sets
from apps.reviews.models import Queue
from apps.reviews.queueing import create_queue

MOST = 1_000
USUAL = 100


def ask_people(
    *, pair_set: PairSet, name: str = "", limit: int = USUAL, overlap: int = 1, user: User | None = None
) -> Queue:
    """A pairwise queue of so many proposed pairs, those of the smallest margin first: there the reward knows least.

    A queue refers to rollouts of one task, so that pairs over versions of a dataset are left out. Raises QueueRefused,
    and ValidationError by field.
    """
    if not 1 <= limit <= MOST:
        raise QueueRefused(f"People are asked about 1 to {MOST:,} pairs.", "limit")
    proposed = PreferencePair.objects.filter(pair_set=pair_set, status=PreferencePair.Status.PROPOSED)
    unjudged = proposed.exclude(source=PreferencePair.Source.VERDICT).filter(chosen__task=F("rejected__task"))
    sets = list(unjudged.order_by("margin", "id").values_list("chosen_id", "rejected_id")[:limit])
    if not sets:
        raise QueueRefused(f"{pair_set.title} has no proposed pair that nobody has judged.", "pair_set")
    queue = Queue(
        name=name.strip() or f"Pairs of {pair_set.title}",
        kind=Queue.Kind.PAIRWISE,
        overlap=overlap,
        source={"pair_set": pair_set.pk},
    )
    return create_queue(queue=queue, items=fill_from_sets(sets, kind=queue.kind), user=user)
