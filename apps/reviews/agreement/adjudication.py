"""Adjudicate disputed items: the adjudicator's verdict overrides the reviews, which are kept."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.reviews.models import QueueItem, Review
from apps.reviews.queues.item_leases import CannotReview, lock_queue
from apps.reviews.queues.queue_alerts import record_if_finished
from apps.reviews.reviews.review_answers import Answer, store_verdicts, take_answer


def adjudicate_item(
    *, item: QueueItem, user: User, answer: Answer, token: str = "", saw_votes: bool | None = None
) -> Review:
    """Adjudicate an item that has at least one review. `answer` has the rollouts in the order of the item.

    Replaces an earlier adjudication. `saw_votes` records whether the adjudicator saw reviews, rewards and models; if
    so, the adjudication is not used to check the verifier. Raise AnswerRefused and CannotReview.
    """
    with transaction.atomic():
        queue = lock_queue(item.queue)
        before = Review.objects.filter(item=item, is_adjudication=True, status=Review.Status.SUBMITTED)
        if token and (sent := before.filter(token=token).first()):
            return sent
        if not Review.objects.filter(item=item).independent().exists():
            raise CannotReview("This item has no reviews to adjudicate.")
        rollouts = list(item.entries.order_by("place").values_list("rollout_id", flat=True))
        if len(rollouts) < item.size:
            raise CannotReview("A rollout of this item has been deleted.")
        review = Review(queue=queue, item=item, reviewer=user, rubric_id=queue.rubric_id, is_adjudication=True)
        review.arrangement = rollouts
        # A user who saw the votes once has seen them in later adjudications, too.
        has_seen = Review.objects.filter(item=item, reviewer=user, is_adjudication=True, saw_votes=True).exists()
        review.saw_votes = True if has_seen else saw_votes
        review.rollout_id = rollouts[0] if item.size == 1 else None
        verdicts = take_answer(review, answer)
        before.update(status=Review.Status.REPLACED)
        review.status, review.token, review.submitted_at = Review.Status.SUBMITTED, token, timezone.now()
        review.save()
        store_verdicts(review, verdicts)
        QueueItem.objects.filter(pk=item.pk).update(is_adjudicated=True)
        record_if_finished(queue)
        record(
            user=user,
            action="queue_item.adjudicate",
            target=f"queue {queue.pk}",
            item=item.pk,
            choice=review.choice,
            ranks=review.ranks,
            scores=review.scores,
            saw_votes=review.saw_votes,
        )
    return review
