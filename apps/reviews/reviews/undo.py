"""Undo a user's last action in a queue, a submission or a skip. A submitted answer becomes the draft."""

from django.db import transaction
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.reviews.models import Queue, Review
from apps.reviews.queues.hidden_items import BROKEN, UNDO_FOR, is_broken
from apps.reviews.queues.item_leases import (
    CannotReview,
    check_may_review,
    find_review_problem,
    lease_review,
    lock_queue,
    take_slot,
)
from apps.reviews.reviews.review_answers import store_verdicts
from apps.reviews.reviews.submission import recount

_ENDED = [Review.Status.SUBMITTED, Review.Status.SKIPPED]
_BEGUN = [Review.Status.OPEN, Review.Status.LAPSED]


def undo_review(*, queue: Queue, user: User, wanted: int | None = None) -> Review:
    """Reopen the user's last submitted or skipped review in the queue, with its answer as a draft.

    `wanted` restricts it to this review, so that a repeated request does not undo another one. If the slot of a skipped
    review is taken, it becomes lapsed and can still be submitted. Raise CannotReview.
    """
    with transaction.atomic():
        locked_queue = lock_queue(queue)
        check_may_review(locked_queue, user)
        if wanted is not None and (begun := _find_begun(queue, user, wanted)):
            return begun
        last = _find_last(queue, user)
        if last is None:
            raise CannotReview("Nothing to undo: you have not submitted a review here.")
        if wanted not in {None, last.pk}:
            raise CannotReview(f"Review {wanted} is not your last review in this queue. Nothing was undone.")
        if refusal := _find_refusal(locked_queue, last):
            raise CannotReview(refusal)
        reopen_review(queue=locked_queue, review=last, user=user)
    return last


def reopen_review(*, queue: Queue, review: Review, user: User) -> None:
    """Reopen a submitted or skipped review of any age. The caller must hold the lock of its queue."""
    if review.status == Review.Status.SKIPPED:
        _reopen_skipped(queue, review, user)
        return
    said = review.answers
    review.draft = {**said, "note": review.note}
    review.submitted_at, review.seconds = None, None
    lease_review(queue, review)
    store_verdicts(review, [])
    recount(review)
    record(user=user, action="review.undo", target=f"review {review.pk}", queue=queue.pk, before=said)


def find_undoable(queue: Queue, user: User) -> Review | None:
    """Return the review that `undo_review` would reopen now."""
    last = None if find_review_problem(queue, user) else _find_last(queue, user)
    return last if last is not None and not _find_refusal(queue, last) else None


def _find_last(queue: Queue, user: User) -> Review | None:
    """Return the last review that the user ended. Reviews ended by the system have no end time."""
    mine = Review.objects.filter(queue=queue, reviewer=user, status__in=_ENDED, is_adjudication=False)
    ended = mine.alias(at=Coalesce("submitted_at", "skipped_at")).filter(at__isnull=False)
    return ended.select_related("item").order_by("-at", "-pk").first()


def _find_begun(queue: Queue, user: User, pk: int) -> Review | None:
    mine = Review.objects.filter(queue=queue, reviewer=user, status__in=_BEGUN, is_adjudication=False)
    return mine.filter(pk=pk).first()


def _find_refusal(queue: Queue, last: Review) -> str:
    """Return why the review cannot be reopened, or an empty string."""
    assert last.item is not None and last.ended_at is not None
    is_skipped = last.status == Review.Status.SKIPPED
    shown = queue.reveals and not is_skipped
    if shown or last.ended_at < timezone.now() - UNDO_FOR:
        return "Your last review can no longer be undone, because you may have seen hidden results since."
    if last.item.is_adjudicated:
        return "Your last review was adjudicated and can no longer be undone."
    # An open repeat has no answer yet. It is suspended until this review is submitted again.
    if not is_skipped and last.repeats.submitted().exists():
        return "Your last review can no longer be undone."
    return BROKEN if is_broken(last) else ""


def _reopen_skipped(queue: Queue, last: Review, user: User) -> None:
    why = last.skip_reason
    last.queue = queue
    last.status, last.skipped_at, last.skip_reason = Review.Status.LAPSED, None, ""
    if take_slot(last, may_exceed_overlap=False):
        lease_review(queue, last)
    else:
        last.save()
    record(user=user, action="review.undo", target=f"review {last.pk}", queue=queue.pk, skipped=why)
