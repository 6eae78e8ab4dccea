"""Submit reviews idempotently, and score rollouts outside of queues."""

from itertools import combinations
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.pairs.verdicts import Verdict
from apps.reviews.models import Queue, QueueItem, Review, Rubric
from apps.reviews.queues.hidden_items import is_whole
from apps.reviews.queues.item_leases import DRAFT_KEPT, CannotReview, claim_item, lock_review, reserve_slot_for_answer
from apps.reviews.queues.queue_alerts import record_if_finished
from apps.reviews.reviews.review_answers import Answer, store_verdicts, take_answer
from apps.rollouts.models import Rollout


class AlreadySubmitted(CannotReview, code="already-submitted"):
    """Raised if the review was submitted with another token. Undo that submission first."""


def submit_review(*, review: Review, user: User, token: str, answer: Answer, shown_with: int = 1) -> Review:
    """Submit a review. Its time is divided by `shown_with`, the number of reviews that were answered on one page.

    Idempotent by token, and allowed after the lease expired. Raise AnswerRefused, AlreadySubmitted and CannotReview;
    the answer is then kept as a draft.
    """
    if not token or len(token) > 64:
        raise CannotReview("A submission needs a new token of at most 64 characters.")
    with transaction.atomic():
        queue, locked = lock_review(review, user)
        # Include withdrawn reviews: a late retry must not resubmit them.
        if locked.token == token:
            return locked
        if locked.status == Review.Status.SUBMITTED:
            raise AlreadySubmitted("This review was submitted already. Undo it to change it.")
        refusal = reserve_slot_for_answer(queue, locked, user)
        verdicts = take_answer(locked, answer)
        if refusal:
            # Raised outside the transaction, so that the draft is kept.
            Review.objects.filter(pk=locked.pk).update(draft={**locked.answers, "note": locked.note})
        else:
            _store(locked, token, verdicts, shown_with)
            record_if_finished(queue)
    if refusal:
        raise CannotReview(f"{refusal} {DRAFT_KEPT}")
    return locked


def submit_and_claim(*, review: Review, user: User, token: str, answer: Answer) -> tuple[Review, Review | None]:
    """Submit a review and claim the user's next item in the queue.

    Return (review, next review). The second is None if no item is left or the user may no longer review. Idempotent.
    Raises like `submit_review`.
    """
    submitted = submit_review(review=review, user=user, token=token, answer=answer)
    assert review.queue is not None
    try:
        return submitted, claim_item(queue=review.queue, user=user)
    except CannotReview:
        return submitted, None


def _store(review: Review, token: str, verdicts: list[Verdict], shown_with: int) -> None:
    now = timezone.now()
    review.status, review.token, review.submitted_at = Review.Status.SUBMITTED, token, now
    review.seconds = max(0.0, (now - review.started_at).total_seconds() / shown_with)
    review.draft = {}
    review.save()
    store_verdicts(review, verdicts)
    recount(review)
    detail = {"queue": review.queue_id, "item": review.item_id, **review.answers}
    record(user=review.reviewer, action="review.submit", target=f"review {review.pk}", **detail)


def score_rollout(
    *,
    rollout: Rollout,
    rubric: Rubric,
    scores: dict[str, Any],
    reviewer: User,
    seq: int | None = None,
    note: str = "",
    token: str = "",
) -> Review:
    """Score a rollout, or event `seq` of its latest attempt, outside of queues.

    Replaces the user's earlier scores by the same rubric. Raise AnswerRefused and CannotReview.
    """
    if seq is not None and not rollout.events.filter(attempt=rollout.attempt, seq=seq).exists():
        raise CannotReview(f"The rollout's latest attempt has no event {seq}.")
    with transaction.atomic():
        # Lock the rollout to serialize concurrent submissions of one user.
        Rollout.objects.select_for_update().only("pk").get(pk=rollout.pk)
        mine = Review.objects.filter(rollout=rollout, rubric=rubric, reviewer=reviewer, seq=seq, queue__isnull=True)
        if token and (sent := mine.filter(token=token).first()):
            return sent
        review = Review(rollout=rollout, rubric=rubric, reviewer=reviewer, seq=seq)
        take_answer(review, Answer(scores=scores, note=note))
        mine.filter(status=Review.Status.SUBMITTED).update(status=Review.Status.REPLACED)
        review.token, review.status, review.submitted_at = token, Review.Status.SUBMITTED, timezone.now()
        review.save()
        target = f"rollout {rollout.pk}"
        record(user=reviewer, action="review.score", target=target, rubric=rubric.slug, seq=seq, scores=review.scores)
    return review


def find_lapsed(queue: Queue, user: User) -> list[Review]:
    """Return this user's reviews with an expired lease. They can still be submitted."""
    mine = Review.objects.filter(queue=queue, reviewer=user, status=Review.Status.LAPSED, is_adjudication=False)
    return list(mine.filter(is_whole("item")).select_related("queue__rubric", "item__task").order_by("pk"))


def recount(review: Review) -> None:
    """Update the review counts and the doubt of the review's item."""
    if review.repeat_of_id is not None or review.item_id is None:
        return
    reviews = Review.objects.filter(item=review.item_id).independent()
    item = QueueItem.objects.filter(pk=review.item_id)
    item.update(done=reviews.count(), **_doubt(reviews))


def _doubt(reviews: QuerySet[Review]) -> dict[str, float]:
    """Return the share of disagreeing pairs of reviewers.

    The initial doubt counts until two reviewers have answered.
    """
    opinions: dict[object, list[object]] = {}
    for review in reviews.prefetch_related("verdicts"):
        for verdict in review.verdicts.all():
            opinions.setdefault((verdict.low_id, verdict.high_id), []).append(verdict.outcome)
        for key, score in review.scores.items():
            if not isinstance(score, str) or len(score) <= 100:
                opinions.setdefault(key, []).append(score)
    differing, compared = 0, 0
    for answers in opinions.values():
        compared += len(answers) * (len(answers) - 1) // 2
        differing += sum(one != other for one, other in combinations(answers, 2))
    return {"doubt": differing / compared} if compared else {}
