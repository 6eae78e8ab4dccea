"""Choose the sides on which a reviewer sees the rollouts of an item: random, unpredictable and balanced."""

import random
from collections.abc import Sequence

from django.db.models import Count, Q

from apps.reviews.models import Queue, Review

MOST_APART = 4
"""Maximum difference between the numbers of swapped and unswapped pairs that a reviewer has seen in a queue."""

# Not seeded by the queue's seed, which users can read: the side would reveal the chosen rollout of a proposed pair.
_drawn = random.SystemRandom()


def arrange(*, queue: Queue, rollouts: Sequence[int], reviewer_id: int) -> list[int]:
    """Return the rollouts in the order to show. The more pairs were swapped, the less likely the next is swapped."""
    shown = list(rollouts)
    if queue.kind != Queue.Kind.PAIRWISE:
        return shuffle(shown)
    seen = Review.objects.filter(queue=queue, reviewer=reviewer_id, repeat_of__isnull=True, is_adjudication=False)
    counted = seen.aggregate(swapped=Count("pk", filter=Q(is_swapped=True)), all=Count("pk"))
    apart = 2 * counted["swapped"] - counted["all"]
    return shown[::-1] if _drawn.random() * 2 * MOST_APART < MOST_APART - apart else shown


def swap_sides(first: Review) -> list[int]:
    """Return the order for the hidden repeat of a review: the reverse."""
    return [int(each) for each in reversed(first.arrangement)]


def shuffle(rollouts: Sequence[int]) -> list[int]:
    """Return the rollouts in random order, because the given order may start with the better one."""
    return _drawn.sample(rollouts, len(rollouts))


def choose_repeats(number: int, share: float) -> frozenset[int]:
    """Return the numbers of the items to repeat."""
    return frozenset(_drawn.sample(range(number), round(share * number)))
