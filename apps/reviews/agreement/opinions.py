"""What people said in a queue that counts as an opinion: submitted, no hidden repeat, no adjudication."""

from typing import Any

from django.db.models import Q

from apps.reviews.models import PairVerdict, Queue, Review


def find_opinions(queue: Queue) -> Any:
    return Review.objects.filter(queue=queue).independent()


def find_verdicts(queue: Queue) -> Any:
    said = Q(review__status=Review.Status.SUBMITTED, review__repeat_of=None, review__is_adjudication=False)
    return PairVerdict.objects.filter(said, review__queue=queue)
