"""Keep results hidden across queues, and end reviews of items that lost a rollout.

An annotator reads only their own work (apps/accounts/permissions.py), so only another queue could reveal what a blind
queue hides. All queues hide it until the annotator has answered the item of the blind queue.
"""

from datetime import timedelta

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.reviews.models import ItemRollout, Queue, QueueItem, Review
from apps.tasks.models import Task

UNDO_FOR = timedelta(minutes=10)
"""How long the last submission or skip can be undone. Until then, its item still hides results in other queues."""

BROKEN = "A rollout of this item has been deleted."
SKIPPED = "The item was skipped."
_BEGUN = [Review.Status.OPEN, Review.Status.LAPSED]


def find_unanswered(user: object) -> list[QuerySet[QueueItem]]:
    """Return querysets of items in blind queues that this annotator can still answer.

    These are waiting, started and undoable items, in open and closed queues. Empty for users who may read everything,
    or who may not review.
    """
    if not isinstance(user, User) or user_may(user, Permission.READ) or not user_may(user, Permission.REVIEW):
        return []
    items = QueueItem.objects.filter(queue__in=Queue.objects.blind().values("pk")).order_by()
    mine = Review.objects.filter(reviewer=user, is_adjudication=False)
    open_queues = Queue.objects.open().for_reviewer(user.pk).values("pk")
    first = mine.filter(item=OuterRef("pk"), repeat_of__isnull=True)
    submitted = first.filter(status=Review.Status.SUBMITTED)
    ended = first.filter(status__in=[Review.Status.SUBMITTED, Review.Status.SKIPPED])
    waiting = Q(done__lt=F("queue__overlap"), is_adjudicated=False) & ~Exists(ended)
    repeat = mine.filter(item=OuterRef("pk"), repeat_of__isnull=False)
    repeatable = Q(is_repeated=True) & Exists(submitted) & ~Exists(repeat)
    since = timezone.now() - UNDO_FOR
    undoable = Q(status=Review.Status.SUBMITTED, submitted_at__gt=since, queue__reveals=False)
    unskippable = Q(status=Review.Status.SKIPPED, skipped_at__gt=since)
    started = mine.filter(Q(status__in=_BEGUN) | undoable | unskippable, item__isnull=False).values("item")
    found = [items.filter(waiting | repeatable, queue__in=open_queues), items.filter(pk__in=started)]
    # Added last, so that rollouts are counted only for the remaining items.
    return [each.alias(present=_count_present()).filter(present=F("size")) for each in found]


def find_hidden(review: Review) -> frozenset[str]:
    """Return which of "expected", "reward" and "model" this review must hide.

    They are hidden if the reviewer has an unanswered item of the same task, or of an equal row of another dataset, in a
    queue that hides them.
    """
    if review.item is None:
        return frozenset()
    shown = ("queue__shows_expected", "queue__shows_reward", "queue__shows_model")
    rows: set[tuple[bool, ...]] = set()
    for items in find_unanswered(review.reviewer):
        others = items.filter(_same_task(review.item.task)).exclude(queue=review.queue_id)
        rows.update(others.values_list(*shown).distinct())
    return frozenset(
        name for place, name in enumerate(("expected", "reward", "model")) if any(not r[place] for r in rows)
    )


def will_be_reviewed_again(review: Review) -> bool:
    """Return True if the reviewer still has to review a rollout of this review, in any queue or as a hidden repeat.

    Until then, its reward must stay hidden.
    """
    if review.item is None:
        return False
    if review.item.is_repeated and review.repeat_of_id is None and not review.repeats.submitted().exists():
        return True
    shared = ItemRollout.objects.filter(rollout__in=review.arrangement).exclude(item=review.item_id).values("item")
    return any(items.filter(pk__in=shared).exists() for items in find_unanswered(review.reviewer))


def find_suspended_reviews(queue: Queue, user: User) -> QuerySet[Review]:
    """Return the user's started reviews in a blind queue that the user may not review at present.

    The user can submit them once the queue admits them again.
    """
    begun = Review.objects.filter(queue=queue, reviewer=user, status__in=_BEGUN, is_adjudication=False)
    return begun.filter(is_whole("item")).order_by("pk") if queue.is_blind else begun.none()


def is_broken(review: Review) -> bool:
    """Return True if a rollout of the review's item was deleted."""
    assert review.item is not None
    return review.item.entries.count() < review.item.size


def end_broken(reviews: QuerySet[Review]) -> None:
    """End started reviews whose item has a deleted rollout."""
    _end(reviews.filter(~is_whole("item"), status__in=_BEGUN), BROKEN)


def end_repeats(queue: Queue) -> None:
    """End started hidden repeats of skipped reviews: there is no first answer to compare with."""
    _end(Review.objects.filter(queue=queue, repeat_of__status=Review.Status.SKIPPED, status__in=_BEGUN), SKIPPED)


def is_whole(item: str) -> Exists:
    """Return a query condition: the item with the id in column `item` of the outer query still has all its rollouts."""
    whole = QueueItem.objects.alias(present=_count_present()).filter(present=F("size"))
    return Exists(whole.filter(pk=OuterRef(item)))


def _same_task(task: Task) -> Q:
    same = Q(task=task)
    return same | Q(task__in=Task.objects.filter(row_hash=task.row_hash).values("pk")) if task.row_hash else same


def _count_present() -> Subquery:
    present = ItemRollout.objects.filter(item=OuterRef("pk")).order_by().values("item").annotate(number=Count("pk"))
    return Subquery(present.values("number"))


def _end(reviews: QuerySet[Review], why: str) -> None:
    reviews.update(status=Review.Status.SKIPPED, slot=None, skip_reason=why)
