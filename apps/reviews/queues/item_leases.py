"""Lease the next item of a queue to a reviewer, by the clock of the database.

Claims lock the row of the queue, so that two reviewers never get the same slot of an item.
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
from apps.reviews.queues.side_order import arrange, swap_sides
from apps.rollouts.database_clock import server_now

REPEAT_AFTER = 10
"""Number of other reviews between an item and its hidden repeat, unless nothing else is left."""

MAX_DRAFT = 100_000
DRAFT_KEPT = "Your text is kept as a draft."
_ORDERS = {
    Queue.Order.RANDOM: ("shuffle",),
    Queue.Order.DISAGREEMENT: ("-doubt", "shuffle"),
    Queue.Order.NEWEST: ("-pk",),
}


class CannotReview(Refusal, status=409, code="cannot-review"):
    """Raised if the queue is closed, if the user is not one of its reviewers, or if the review has ended."""


class LeaseLost(CannotReview, code="lease-lost"):
    """Raised if another reviewer now has the item. The draft is kept, and the review can still be submitted."""


def claim_item(*, queue: Queue, user: User) -> Review | None:
    """Return the user's open review, else lease the next item. None if no item is left. Raise CannotReview."""
    with transaction.atomic():
        locked = lock_queue(queue)
        check_may_review(locked, user)
        mine = Review.objects.filter(queue=locked, reviewer=user, is_adjudication=False)
        end_broken(mine)
        held = find_open_review(locked, user)
        if held is not None:
            return lease_review(locked, held)
        _release_expired(locked)
        lapsed = _resume_lapsed(locked, mine)
        return (
            lapsed
            or _repeat(locked, mine, user, least=REPEAT_AFTER)
            or _next(locked, user)
            or _repeat(locked, mine, user)
        )


def claim_items(*, queue: Queue, user: User, number: int) -> None:
    """Renew the user's leases and lease further items, up to `number` in total. Raise CannotReview.

    Hidden repeats are not among the further items, because the page shows several items at a time.
    """
    with transaction.atomic():
        locked = lock_queue(queue)
        check_may_review(locked, user)
        end_broken(Review.objects.filter(queue=locked, reviewer=user, is_adjudication=False))
        held = [lease_review(locked, review) for review in find_open(locked, user)[:number]]
        _release_expired(locked)
        for _ in range(number - len(held)):
            if _next(locked, user) is None:
                break


def find_open_review(queue: Queue, user: User, pk: int | None = None) -> Review | None:
    """Return the user's open review in the queue, or the one with the key `pk`.

    None if a rollout of its item was deleted.
    """
    mine = find_open(queue, user)
    return (mine if pk is None else mine.filter(pk=pk)).order_by("-leased_until").first()


def find_open(queue: Queue, user: User) -> QuerySet[Review]:
    """Return the user's open reviews in the queue, oldest first. Items with deleted rollouts are left out."""
    mine = Review.objects.filter(queue=queue, reviewer=user, is_adjudication=False, status=Review.Status.OPEN)
    return mine.filter(is_whole("item")).select_related("queue__rubric", "item__task").order_by("pk")


def renew_lease(*, review: Review, user: User, draft: dict[str, Any] | None = None) -> Review:
    """Renew the lease and save the draft. The draft is saved even if the lease cannot be renewed.

    Raise LeaseLost if another reviewer has the item, and CannotReview. An ended review keeps its draft unchanged.
    """
    with transaction.atomic():
        queue, locked = lock_review(review, user)
        if locked.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
            raise CannotReview(f"This review is already {locked.status}.")
        if draft is not None:
            locked.draft = draft
            locked.save(update_fields=["draft"])
        refusal = find_review_problem(queue, user)
        if not refusal and (locked.is_open or take_slot(locked, may_exceed_overlap=False)):
            return lease_review(queue, locked)
    if refusal:
        raise CannotReview(f"{refusal} {DRAFT_KEPT}")
    raise LeaseLost("Your reservation expired and another reviewer has the item. You can still submit your review.")


def skip_item(*, review: Review, user: User, reason: str) -> Review:
    """Skip the item: it stays available to other reviewers, but not to this user.

    Idempotent for the same reason. Raise CannotReview.
    """
    reason = cut(reason.strip(), 500)
    if not reason:
        raise CannotReview("Give a reason for skipping. The owner of the queue reads it.")
    with transaction.atomic():
        queue, locked = lock_review(review, user)
        if locked.skipped_at is not None and locked.skip_reason == reason:
            return locked
        if locked.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
            raise CannotReview(f"This review is already {locked.status}.")
        locked.status, locked.slot, locked.skip_reason = Review.Status.SKIPPED, None, reason
        locked.skipped_at = timezone.now()
        locked.save(update_fields=["status", "slot", "skip_reason", "skipped_at"])
        end_repeats(queue)
        target = f"review {locked.pk}"
        record(user=user, action="review.skip", target=target, queue=queue.pk, item=locked.item_id, reason=reason)
    return locked


def lock_queue(queue: Queue) -> Queue:
    """Lock the queue and return its current row. Raise CannotReview if it was deleted."""
    locked = Queue.objects.select_for_update().filter(pk=queue.pk).first()
    if locked is None:
        raise CannotReview("This queue has been deleted, and its reviews with it.")
    return locked


def lock_review(review: Review, user: User) -> tuple[Queue, Review]:
    """Lock queue and review, and return their current rows. Raise CannotReview."""
    assert review.queue is not None
    queue = lock_queue(review.queue)
    locked = Review.objects.select_for_update().select_related(None).get(pk=review.pk)
    if locked.reviewer_id != user.pk:
        raise CannotReview("This review belongs to another reviewer.")
    locked.queue, locked.reviewer = queue, user
    return queue, locked


def reserve_slot_for_answer(queue: Queue, review: Review, user: User) -> str:
    """Reserve a slot for the answer of a locked review.

    If all slots are taken, add one beyond the queue's overlap (reviews per item). Return why the review can no longer
    be answered, or an empty string.
    """
    if refusal := find_review_problem(queue, user):
        return refusal
    if review.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
        return " ".join(filter(None, [f"This review is {review.status}.", review.skip_reason]))
    if is_broken(review):
        return BROKEN
    if review.slot is None:
        take_slot(review, may_exceed_overlap=True)
    return ""


def check_may_review(queue: Queue, user: User) -> None:
    """Raise CannotReview if the queue is closed, or if the user is not one of its reviewers."""
    if refusal := find_review_problem(queue, user):
        raise CannotReview(refusal)


def find_review_problem(queue: Queue, user: User) -> str:
    """Return why this user may not review in the queue, or an empty string."""
    if not queue.is_open:
        return f"The {queue} is closed."
    is_named = not queue.named_reviewers or queue.reviewers.filter(user=user).exists()
    return "" if is_named and user_may(user, Permission.REVIEW) else "This queue is for other reviewers."


def take_slot(review: Review, *, may_exceed_overlap: bool) -> bool:
    """Assign a free slot of the item to the review. Return False if no slot is free.

    With `may_exceed_overlap`, add a slot if none is free.
    """
    if review.repeat_of_id is not None or review.is_adjudication:
        return True
    assert review.queue is not None and review.item_id is not None
    taken = set(
        _occupying_slots(Review.objects.filter(item=review.item_id))
        .exclude(pk=review.pk)
        .values_list("slot", flat=True)
    )
    free = next(number for number in range(len(taken) + 1) if number not in taken)
    if free >= review.queue.overlap and not may_exceed_overlap:
        return False
    review.slot = free
    return True


def find_free(user: User, holding: QuerySet[Review]) -> QuerySet[QueueItem]:
    """Return the items of all queues that this user could claim, given that reviews in `holding` occupy slots."""
    taken = holding.filter(item=OuterRef("pk")).order_by().values("item").annotate(number=Count("pk"))
    seen = Review.objects.filter(item=OuterRef("pk"), reviewer=user)
    return (
        QueueItem.objects.filter(~Exists(seen), is_whole("pk"), is_adjudicated=False, done__lt=F("queue__overlap"))
        .annotate(taken=Coalesce(Subquery(taken.values("number")), 0))
        .filter(taken__lt=F("queue__overlap"))
    )


def _occupying_slots(reviews: QuerySet[Review]) -> QuerySet[Review]:
    """Return reviews that occupy a slot of their item."""
    return reviews.filter(status__in=[Review.Status.OPEN, Review.Status.SUBMITTED], slot__isnull=False)


def lease_review(queue: Queue, review: Review) -> Review:
    """Save the review as open, with a new lease."""
    review.status = Review.Status.OPEN
    review.leased_until = server_now(timedelta(minutes=queue.lease_minutes))
    review.save()
    review.refresh_from_db(fields=["leased_until"])
    return review


def _release_expired(queue: Queue) -> None:
    """Release the slots of expired leases. Hidden repeats are exempt: no other reviewer can take them."""
    expired = Review.objects.filter(
        queue=queue,
        status=Review.Status.OPEN,
        repeat_of__isnull=True,
        is_adjudication=False,
        leased_until__lt=server_now(),
    )
    expired.update(status=Review.Status.LAPSED, slot=None)


def _resume_lapsed(queue: Queue, mine: QuerySet[Review]) -> Review | None:
    """Lease a lapsed review of this user again, if its item still has a free slot."""
    for review in mine.filter(status=Review.Status.LAPSED, item__is_adjudicated=False).select_related("queue"):
        if take_slot(review, may_exceed_overlap=False):
            return lease_review(queue, review)
    return None


def _next(queue: Queue, user: User) -> Review | None:
    free = find_free(user, _occupying_slots(Review.objects.all())).filter(queue=queue)
    items = list(free.order_by(*_ORDERS[Queue.Order(queue.order)])[: REPEAT_AFTER + 1 if queue.repeat_share else 1])
    if not items:
        return None
    if len(items) <= REPEAT_AFTER:
        # Assign items with hidden repeats first. Otherwise the repeat of the last item would follow it immediately.
        items.sort(key=lambda each: not each.is_repeated)
    item = items[0]
    rollouts = list(item.entries.order_by("place").values_list("rollout_id", flat=True))
    shown = arrange(queue=queue, rollouts=rollouts, reviewer_id=user.pk)
    review = Review(queue=queue, item=item, reviewer=user, rubric_id=queue.rubric_id, arrangement=shown)
    review.rollout_id = shown[0] if queue.kind == Queue.Kind.RUBRIC else None
    review.is_swapped = queue.kind == Queue.Kind.PAIRWISE and shown != rollouts
    take_slot(review, may_exceed_overlap=True)
    return lease_review(queue, review)


def _repeat(queue: Queue, mine: QuerySet[Review], user: User, *, least: int = 0) -> Review | None:
    """Lease a hidden repeat of the user's first review that has at least `least` reviews after it."""
    submitted = mine.filter(status=Review.Status.SUBMITTED, repeat_of__isnull=True)
    waiting = submitted.filter(is_whole("item"), item__is_repeated=True, repeats__isnull=True)
    due = waiting.order_by("submitted_at", "pk").first()
    if due is None or submitted.filter(Q(submitted_at__gt=due.submitted_at)).count() < least:
        return None
    shown = swap_sides(due)
    review = Review(queue=queue, item_id=due.item_id, reviewer=user, rubric_id=queue.rubric_id, repeat_of=due)
    review.arrangement, review.rollout_id = shown, due.rollout_id
    review.is_swapped = queue.kind == Queue.Kind.PAIRWISE and not due.is_swapped
    return lease_review(queue, review)
