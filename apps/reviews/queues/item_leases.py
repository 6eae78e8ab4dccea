"""Give a reviewer the next item of a queue and keep it for them, by the database's clock.

Whoever takes an item holds the queue's row meanwhile: one after the other, no two get the same place.
"""

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.gym.redaction.shortening import cut
from apps.gym.request_refusals import Refusal
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.hidden_items import BROKEN, end_broken, end_repeats, is_broken, is_whole
from apps.reviews.queues.side_order import arrange, arrange_again
from apps.rollouts.database_clock import server_now

REPEAT_AFTER = 10
"""A hidden repeat comes after so many other reviews, or when nothing else is left."""

MAX_DRAFT = 100_000
KEPT = "What you wrote is kept as a draft."
_ORDERS = {
    Queue.Order.RANDOM: ("shuffle",),
    Queue.Order.DISAGREEMENT: ("-doubt", "shuffle"),
    Queue.Order.NEWEST: ("-pk",),
}


class CannotReview(Refusal, status=409, code="cannot-review"):
    """The queue is closed, it is for others, or this review is over; the message says which."""


class LeaseLost(CannotReview, code="lease-lost"):
    """Somebody else has the item by now. What was written is kept, and may still be submitted."""


def claim_item(*, queue: Queue, user: User) -> Review | None:
    """The review that this person works on: the one they have open, else one of the next item, None where nothing is
    left for them. Raises CannotReview."""
    with transaction.atomic():
        locked = lock_queue(queue)
        refuse_stranger(locked, user)
        mine = Review.objects.filter(queue=locked, reviewer=user, is_adjudication=False)
        end_broken(mine)
        held = find_held(locked, user)
        if held is not None:
            return hold(locked, held)
        _let_lapse(locked)
        lapsed = _take_up(locked, mine)
        return (
            lapsed
            or _repeat(locked, mine, user, least=REPEAT_AFTER)
            or _next(locked, user)
            or _repeat(locked, mine, user)
        )


def find_held(queue: Queue, user: User) -> Review | None:
    """The review that this person has open in the queue, unless its item has lost a rollout."""
    mine = Review.objects.filter(queue=queue, reviewer=user, is_adjudication=False, status=Review.Status.OPEN)
    whole = mine.filter(is_whole("item")).select_related("queue__rubric", "item__task")
    return whole.order_by("-leased_until").first()


def renew_lease(*, review: Review, user: User, draft: dict[str, Any] | None = None) -> Review:
    """Keep the item for as long again, and the draft. Raises LeaseLost where somebody else has it, and CannotReview:
    the draft is kept all the same."""
    with transaction.atomic():
        queue, locked = lock_review(review, user)
        if locked.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
            raise CannotReview(f"This review is {locked.status} already.")
        if draft is not None:
            locked.draft = draft
            locked.save(update_fields=["draft"])
        refusal = find_objection(queue, user)
        if not refusal and (locked.is_open or take_slot(locked, beyond=False)):
            return hold(queue, locked)
    if refusal:
        raise CannotReview(f"{refusal} {KEPT}")
    raise LeaseLost("Your time with this item ran out and somebody else has it. You may still submit what you wrote.")


def skip_item(*, review: Review, user: User, reason: str) -> Review:
    """Leave the item to others; it does not come to this person again. With the same reason again it changes nothing.
    Raises CannotReview."""
    reason = cut(reason.strip(), 500)
    if not reason:
        raise CannotReview("Say why you skip it: who leads the queue reads that.")
    with transaction.atomic():
        queue, locked = lock_review(review, user)
        if locked.skipped_at is not None and locked.skip_reason == reason:
            return locked
        if locked.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
            raise CannotReview(f"This review is {locked.status} already.")
        locked.status, locked.slot, locked.skip_reason = Review.Status.SKIPPED, None, reason
        locked.skipped_at = timezone.now()
        locked.save(update_fields=["status", "slot", "skip_reason", "skipped_at"])
        end_repeats(queue)
        target = f"review {locked.pk}"
        record(user=user, action="review.skip", target=target, queue=queue.pk, item=locked.item_id, reason=reason)
    return locked


def lock_queue(queue: Queue) -> Queue:
    """Its row as it is now, held until the transaction ends. Raises CannotReview where it has been deleted."""
    locked = Queue.objects.select_for_update().filter(pk=queue.pk).first()
    if locked is None:
        raise CannotReview("This queue has been deleted, and its reviews with it.")
    return locked


def lock_review(review: Review, user: User) -> tuple[Queue, Review]:
    """Return the rows of the queue and the review as they are now, locked. Raises CannotReview."""
    assert review.queue is not None
    queue = lock_queue(review.queue)
    locked = Review.objects.select_for_update().select_related(None).get(pk=review.pk)
    if locked.reviewer_id != user.pk:
        raise CannotReview("This review is somebody else's.")
    locked.queue, locked.reviewer = queue, user
    return queue, locked


def admit_answer(queue: Queue, review: Review, user: User) -> str:
    """Give a locked review a slot for its answer, beyond the overlap if none is free; return why it may not be answered
    any more, or nothing."""
    if refusal := find_objection(queue, user):
        return refusal
    if review.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
        return " ".join(filter(None, [f"This review is {review.status}.", review.skip_reason]))
    if is_broken(review):
        return BROKEN
    if review.slot is None:
        take_slot(review, beyond=True)
    return ""


def refuse_stranger(queue: Queue, user: User) -> None:
    """Raise CannotReview where the queue is closed or for others."""
    if refusal := find_objection(queue, user):
        raise CannotReview(refusal)


def find_objection(queue: Queue, user: User) -> str:
    """Why this person may not review here now; empty where they may."""
    if not queue.is_open:
        return f"The {queue} is closed."
    is_named = not queue.named_reviewers or queue.reviewers.filter(user=user).exists()
    return "" if is_named and user_may(user, Permission.REVIEW) else "This queue is for other reviewers."


def take_slot(review: Review, *, beyond: bool) -> bool:
    """Give the review a free slot of its item; with `beyond` one more than the queue wants where none is free."""
    if review.repeat_of_id is not None or review.is_adjudication:
        return True
    assert review.queue is not None and review.item_id is not None
    taken = set(
        _holding(Review.objects.filter(item=review.item_id)).exclude(pk=review.pk).values_list("slot", flat=True)
    )
    free = next(number for number in range(len(taken) + 1) if number not in taken)
    if free >= review.queue.overlap and not beyond:
        return False
    review.slot = free
    return True


def find_free(user: User, holding: QuerySet[Review]) -> QuerySet[QueueItem]:
    """The items that this person could be given next, of all queues, when these reviews hold places."""
    taken = holding.filter(item=OuterRef("pk")).order_by().values("item").annotate(number=Count("pk"))
    seen = Review.objects.filter(item=OuterRef("pk"), reviewer=user)
    return (
        QueueItem.objects.filter(~Exists(seen), is_whole("pk"), is_adjudicated=False, done__lt=F("queue__overlap"))
        .annotate(taken=Coalesce(Subquery(taken.values("number")), 0))
        .filter(taken__lt=F("queue__overlap"))
    )


def _holding(reviews: QuerySet[Review]) -> QuerySet[Review]:
    """Those that have a slot of their item."""
    return reviews.filter(status__in=[Review.Status.OPEN, Review.Status.SUBMITTED], slot__isnull=False)


def hold(queue: Queue, review: Review) -> Review:
    """Save the review as an open one, with a lease."""
    review.status = Review.Status.OPEN
    review.leased_until = server_now(timedelta(minutes=queue.lease_minutes))
    review.save()
    review.refresh_from_db(fields=["leased_until"])
    return review


def _let_lapse(queue: Queue) -> None:
    """What was left lying is free for others. Repeats are nobody else's."""
    left = Review.objects.filter(
        queue=queue,
        status=Review.Status.OPEN,
        repeat_of__isnull=True,
        is_adjudication=False,
        leased_until__lt=server_now(),
    )
    left.update(status=Review.Status.LAPSED, slot=None)


def _take_up(queue: Queue, mine: QuerySet[Review]) -> Review | None:
    """What this person began, where there is still room for it."""
    for review in mine.filter(status=Review.Status.LAPSED, item__is_adjudicated=False).select_related("queue"):
        if take_slot(review, beyond=False):
            return hold(queue, review)
    return None


def _next(queue: Queue, user: User) -> Review | None:
    free = find_free(user, _holding(Review.objects.all())).filter(queue=queue)
    items = list(free.order_by(*_ORDERS[Queue.Order(queue.order)])[: REPEAT_AFTER + 1 if queue.repeat_share else 1])
    if not items:
        return None
    if len(items) <= REPEAT_AFTER:
        # The repeat of the last of all would follow it at once.
        items.sort(key=lambda each: not each.is_repeated)
    item = items[0]
    rollouts = list(item.entries.order_by("place").values_list("rollout_id", flat=True))
    shown = arrange(queue=queue, rollouts=rollouts, reviewer_id=user.pk)
    review = Review(queue=queue, item=item, reviewer=user, rubric_id=queue.rubric_id, arrangement=shown)
    review.rollout_id = shown[0] if queue.kind == Queue.Kind.RUBRIC else None
    review.is_swapped = queue.kind == Queue.Kind.PAIRWISE and shown != rollouts
    take_slot(review, beyond=True)
    return hold(queue, review)


def _repeat(queue: Queue, mine: QuerySet[Review], user: User, *, least: int = 0) -> Review | None:
    """The first review of this person whose item comes twice and that has at least so many after it."""
    told = mine.filter(status=Review.Status.SUBMITTED, repeat_of__isnull=True)
    waiting = told.filter(is_whole("item"), item__is_repeated=True, repeats__isnull=True)
    due = waiting.order_by("submitted_at", "pk").first()
    if due is None or told.filter(Q(submitted_at__gt=due.submitted_at)).count() < least:
        return None
    shown = arrange_again(due)
    review = Review(queue=queue, item_id=due.item_id, reviewer=user, rubric_id=queue.rubric_id, repeat_of=due)
    review.arrangement, review.rollout_id = shown, due.rollout_id
    review.is_swapped = queue.kind == Queue.Kind.PAIRWISE and not due.is_swapped
    return hold(queue, review)
