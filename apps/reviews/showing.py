"""On which sides a reviewer sees the rollouts of an item: drawn by the queue's seed, balanced for each reviewer."""

import random
from collections.abc import Sequence

from apps.reviews.models import Queue, QueueItem, Review


def arrange(*, queue: Queue, item: QueueItem, rollouts: Sequence[int], reviewer_id: int) -> list[int]:
    """The rollouts in the order to show. Of the pairs that a reviewer has seen in a queue never two more are swapped
    than are not; which of the two comes first is drawn, so that the side tells nothing."""
    drawn = random.Random(f"{queue.seed}:{item.pk}:{reviewer_id}")
    shown = list(rollouts)
    if queue.kind == Queue.Kind.PAIRWISE:
        seen = Review.objects.filter(queue=queue, reviewer=reviewer_id, repeat_of__isnull=True, is_adjudication=False)
        swapped = seen.filter(is_swapped=True).count()
        straight = seen.count() - swapped
        is_swapped = swapped < straight if swapped != straight else drawn.random() < 0.5
        return shown[::-1] if is_swapped else shown
    drawn.shuffle(shown)
    return shown


def arrange_again(first: Review) -> list[int]:
    """For the hidden repeat of a review: the other way round."""
    return [int(each) for each in reversed(first.arrangement)]
