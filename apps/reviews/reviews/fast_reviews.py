"""Detect reviews that were much faster than usual in their queue. Users only see a hint."""

from datetime import timedelta
from statistics import median

import msgspec
from django.utils import timezone

from apps.accounts.models import User
from apps.reviews.models import Queue, Review

SAMPLE = 200
"""The usual time is the median of the latest reviews, at most this many."""

FEWEST = 5
"""Speed is not checked with fewer reviews."""
LEAST_SECONDS = 8.0
"""Speed is not checked if the usual time is below this."""

SHARE = 0.25
SHOWN_FOR = timedelta(minutes=2)


class FastReview(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the last review and of a usual review in the queue."""

    took: float
    usual: float


def find_fast_review(queue: Queue, user: User) -> FastReview | None:
    """Return the user's last submission if it is recent and took less than a quarter of the usual time."""
    mine = Review.objects.filter(queue=queue, reviewer=user, is_adjudication=False).submitted()
    recent = mine.filter(submitted_at__gt=timezone.now() - SHOWN_FOR)
    last = recent.order_by("-submitted_at", "-pk").values_list("pk", "seconds").first()
    if last is None or last[1] is None:
        return None
    took = last[1]
    others = Review.objects.filter(queue=queue).independent().exclude(pk=last[0])
    newest = others.order_by("-pk").values_list("seconds", flat=True)[:SAMPLE]
    seconds = [each for each in newest if each is not None]
    usual = median(seconds) if len(seconds) >= FEWEST else 0.0
    if usual < LEAST_SECONDS or took >= usual * SHARE:
        return None
    return FastReview(took=took, usual=usual)
