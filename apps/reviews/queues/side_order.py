"""On which sides a reviewer sees the rollouts of an item: drawn by nothing that anybody can know, and kept balanced."""

import random
from collections.abc import Sequence

from django.db.models import Count, Q

from apps.reviews.models import Queue, Review

MOST_APART = 4
"""Of the pairs that a reviewer has seen in a queue never more than so many more are swapped than are not, or less."""

# Not by the queue's seed, which can be read: who computes the sides knows the chosen one of a proposed pair.
_drawn = random.SystemRandom()


def arrange(*, queue: Queue, rollouts: Sequence[int], reviewer_id: int) -> list[int]:
    """The rollouts in the order to show. The more of a reviewer's pairs were swapped, the less likely the next is."""
    shown = list(rollouts)
    if queue.kind != Queue.Kind.PAIRWISE:
        return shuffle(shown)
    seen = Review.objects.filter(queue=queue, reviewer=reviewer_id, repeat_of__isnull=True, is_adjudication=False)
    counted = seen.aggregate(swapped=Count("pk", filter=Q(is_swapped=True)), all=Count("pk"))
    apart = 2 * counted["swapped"] - counted["all"]
    return shown[::-1] if _drawn.random() * 2 * MOST_APART < MOST_APART - apart else shown


def arrange_again(first: Review) -> list[int]:
    """For the hidden repeat of a review: the other way round."""
    return [int(each) for each in reversed(first.arrangement)]


def shuffle(rollouts: Sequence[int]) -> list[int]:
    """The order in which an item keeps them: whoever named them may have put the better one first."""
    return _drawn.sample(rollouts, len(rollouts))


def choose_repeats(number: int, share: float) -> frozenset[int]:
    """Which of so many items come twice."""
    return frozenset(_drawn.sample(range(number), round(share * number)))
