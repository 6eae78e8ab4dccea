"""What blind queues hide from an annotator in other queues, and items that can no longer be reviewed.

An annotator reads only their own work (apps/accounts/permissions.py), so only another queue could reveal what a blind
queue hides. Both queues hide it until the annotator has answered the item of the blind one.
"""

from datetime import timedelta

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.reviews.models import ItemRollout, Queue, QueueItem, Review
from apps.tasks.models import Task

UNDO_FOR = timedelta(minutes=10)
"""How long the last submission or skip can be undone. Meanwhile its item still hides what it hid before."""

BROKEN = "A rollout of this item has been deleted."
LEFT = "The item was skipped."
_BEGUN = [Review.Status.OPEN, Review.Status.LAPSED]


def find_unsaid(user: object) -> list[QuerySet[QueueItem]]:
    """Return the items of blind queues that this annotator can still answer.

    These are waiting, started or undoable ones, in open and closed queues. Empty for users who may read everything or
    review nothing.
    """
    if not isinstance(user, User) or user_may(user, Permission.READ) or not user_may(user, Permission.REVIEW):
        return []
    items = QueueItem.objects.filter(queue__in=Queue.objects.blind().values("pk")).order_by()
    mine = Review.objects.filter(reviewer=user, is_adjudication=False)
    theirs = Queue.objects.open().for_reviewer(user.pk).values("pk")
    first = mine.filter(item=OuterRef("pk"), repeat_of__isnull=True)
    said = first.filter(status=Review.Status.SUBMITTED)
    ended = first.filter(status__in=[Review.Status.SUBMITTED, Review.Status.SKIPPED])
    waiting = Q(done__lt=F("queue__overlap"), is_adjudicated=False) & ~Exists(ended)
    again = mine.filter(item=OuterRef("pk"), repeat_of__isnull=False)
    twice = Q(is_repeated=True) & Exists(said) & ~Exists(again)
    since = timezone.now() - UNDO_FOR
    undoable = Q(status=Review.Status.SUBMITTED, submitted_at__gt=since, queue__reveals=False)
    unskippable = Q(status=Review.Status.SKIPPED, skipped_at__gt=since)
    kept = mine.filter(Q(status__in=_BEGUN) | undoable | unskippable, item__isnull=False).values("item")
    found = [items.filter(waiting | twice, queue__in=theirs), items.filter(pk__in=kept)]
    # Last, so that it counts only the remaining items.
    return [each.alias(present=_count_present()).filter(present=F("size")) for each in found]


def find_hidden(review: Review) -> frozenset[str]:
    """Return which of expected, reward and model this review must hide.

    They are hidden if the reviewer has unanswered items of the same task, or of the same row in another dataset, in
    queues that hide them.
    """
    if review.item is None:
        return frozenset()
    shown = ("queue__shows_expected", "queue__shows_reward", "queue__shows_model")
    rows: set[tuple[bool, ...]] = set()
    for items in find_unsaid(review.reviewer):
        others = items.filter(_same_task(review.item.task)).exclude(queue=review.queue_id)
        rows.update(others.values_list(*shown).distinct())
    return frozenset(
        name for place, name in enumerate(("expected", "reward", "model")) if any(not r[place] for r in rows)
    )


def is_still_judged(review: Review) -> bool:
    """Return True if the reviewer will still review a rollout of this review, in any queue or as a hidden repeat.

    Its reward must stay hidden until then.
    """
    if review.item is None:
        return False
    if review.item.is_repeated and review.repeat_of_id is None and not review.repeats.submitted().exists():
        return True
    shared = ItemRollout.objects.filter(rollout__in=review.arrangement).exclude(item=review.item_id).values("item")
    return any(items.filter(pk__in=shared).exists() for items in find_unsaid(review.reviewer))


def find_kept(queue: Queue, user: User) -> QuerySet[Review]:
    """Return the user's started reviews in a blind queue that they currently may not review.

    They can submit them later.
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
    """End started hidden repeats whose first review was skipped meanwhile: there is no first answer to compare."""
    _end(Review.objects.filter(queue=queue, repeat_of__status=Review.Status.SKIPPED, status__in=_BEGUN), LEFT)


def is_whole(item: str) -> Exists:
    """Return a condition: the item in this column of the outer query still has all its rollouts."""
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
