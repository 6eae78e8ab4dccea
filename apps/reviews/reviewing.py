"""Submit a review, once however often it is sent; take the last one back; score a rollout outside of any queue."""

from datetime import timedelta
from itertools import combinations
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.gym.verdicts import Verdict
from apps.reviews.answers import Answer, store_verdicts, take_answer
from apps.reviews.hiding import BROKEN, LATE_FOR, UNDO_FOR, end_unkept
from apps.reviews.leasing import (
    KEPT,
    CannotReview,
    claim_item,
    find_objection,
    lock_queue,
    own_review,
    refuse_stranger,
    take_slot,
)
from apps.reviews.models import Queue, QueueItem, Review, Rubric
from apps.rollouts.clock import server_now
from apps.rollouts.models import Rollout


class AlreadySubmitted(CannotReview):
    """It was submitted before, with another token: take that back first."""


def submit_review(*, review: Review, user: User, token: str, answer: Answer) -> Review:
    """Store what the reviewer says. The same token again changes nothing, so what was sent twice counts once; what
    comes late, after the lease, counts too. Raises AnswerRefused, AlreadySubmitted and CannotReview, after which the
    answer is the draft."""
    if not token or len(token) > 64:
        raise CannotReview("A submission needs a token of at most 64 characters, a new one for each.")
    assert review.queue is not None
    with transaction.atomic():
        queue = lock_queue(review.queue)
        locked = own_review(review, user)
        # Known already, to whoever tells it.
        locked.queue, locked.reviewer = queue, user
        # Also what was taken back since: its repetition, late, must not bring it back.
        if locked.token == token:
            return locked
        if locked.status == Review.Status.SUBMITTED:
            raise AlreadySubmitted("This review was submitted already. Undo it to change it.")
        verdicts = take_answer(locked, queue.kind, answer, criteria_of(queue))
        if refusal := find_objection(queue, user) or _find_end(locked):
            # Said outside of the transaction, which keeps what was written.
            Review.objects.filter(pk=locked.pk).update(draft={**_told(locked), "note": locked.note})
        else:
            _take(queue, locked, token, verdicts, user)
    if refusal:
        raise CannotReview(f"{refusal} {KEPT}")
    return locked


def submit_and_claim(*, review: Review, user: User, token: str, answer: Answer) -> tuple[Review, Review | None]:
    """The same, and the review that `claim_item` gives this person next in the queue: None where nothing is left, or
    where they may have nothing here any more. Sent twice, both are the same again. Raises as `submit_review`."""
    said = submit_review(review=review, user=user, token=token, answer=answer)
    assert review.queue is not None
    try:
        return said, claim_item(queue=review.queue, user=user)
    except CannotReview:
        return said, None


def _take(queue: Queue, review: Review, token: str, verdicts: list[Verdict], user: User) -> None:
    if review.slot is None:
        take_slot(review, beyond=True)
    _finish(review, token)
    store_verdicts(review, verdicts)
    recount(review)
    record(
        user=user,
        action="review.submit",
        target=f"review {review.pk}",
        queue=queue.pk,
        item=review.item_id,
        **_told(review),
    )


def undo_review(*, queue: Queue, user: User) -> Review:
    """Open this person's last submission in the queue again, with what it said as its draft. Raises CannotReview."""
    with transaction.atomic():
        locked_queue = lock_queue(queue)
        refuse_stranger(locked_queue, user)
        mine = Review.objects.filter(
            queue=queue, reviewer=user, status=Review.Status.SUBMITTED, is_adjudication=False
        ).select_related("item")
        last = mine.order_by("-submitted_at", "-pk").first()
        if last is None or last.submitted_at is None:
            raise CannotReview("There is nothing to undo: you have submitted nothing here.")
        if queue.reveals or last.submitted_at < timezone.now() - UNDO_FOR:
            raise CannotReview("Your last review can be undone no more: you may have seen by now what was hidden.")
        assert last.item is not None
        if last.item.is_adjudicated:
            raise CannotReview("Your last review has been adjudicated: it stays.")
        # One that has only been given out is no answer yet: it waits until this one is submitted again.
        if last.repeats.submitted().exists():
            raise CannotReview("Your last review can be undone no more.")
        if is_broken(last):
            raise CannotReview(BROKEN)
        # What others may give in its place now may have been seen by who left it lying.
        end_unkept(locked_queue)
        said = _told(last)
        last.draft = {**said, "note": last.note}
        last.status, last.submitted_at, last.seconds = Review.Status.OPEN, None, None
        last.leased_until = server_now(timedelta(minutes=locked_queue.lease_minutes))
        last.save()
        last.refresh_from_db(fields=["leased_until"])
        store_verdicts(last, [])
        recount(last)
        record(user=user, action="review.undo", target=f"review {last.pk}", queue=queue.pk, before=said)
    return last


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
    """Score a rollout, or event `seq` of its latest attempt, outside of any queue. What the same person scored before
    by the same rubric is replaced. Raises AnswerRefused and CannotReview."""
    if seq is not None and not rollout.events.filter(attempt=rollout.attempt, seq=seq).exists():
        raise CannotReview(f"The rollout's latest attempt has no event {seq}.")
    with transaction.atomic():
        # Its row keeps two submissions of one person apart.
        Rollout.objects.select_for_update().only("pk").get(pk=rollout.pk)
        mine = Review.objects.filter(rollout=rollout, rubric=rubric, reviewer=reviewer, seq=seq, queue__isnull=True)
        if token and (sent := mine.filter(token=token).first()):
            return sent
        review = Review(rollout=rollout, rubric=rubric, reviewer=reviewer, seq=seq)
        take_answer(review, Queue.Kind.RUBRIC, Answer(scores=scores, note=note), rubric.criteria)
        mine.filter(status=Review.Status.SUBMITTED).update(status=Review.Status.REPLACED)
        review.token, review.status, review.submitted_at = token, Review.Status.SUBMITTED, timezone.now()
        review.save()
        target = f"rollout {rollout.pk}"
        record(user=reviewer, action="review.score", target=target, rubric=rubric.slug, seq=seq, scores=review.scores)
    return review


def _find_end(review: Review) -> str:
    """Why it cannot be taken any more: there is nothing to judge, or what was hidden may have been seen by now."""
    if review.status not in {Review.Status.OPEN, Review.Status.LAPSED}:
        return " ".join(filter(None, [f"This review is {review.status}.", review.skip_reason]))
    if is_broken(review):
        return BROKEN
    is_old = review.leased_until is not None and review.leased_until < timezone.now() - LATE_FOR
    if review.status != Review.Status.LAPSED or not is_old:
        return ""
    assert review.item is not None
    if review.item.is_adjudicated or not take_slot(review, beyond=False):
        return "Others have judged this item since your time with it ran out, more than a day ago."
    return ""


def is_broken(review: Review) -> bool:
    assert review.item is not None
    return review.item.entries.count() < review.item.size


def criteria_of(queue: Queue) -> list[dict[str, Any]]:
    criteria: list[dict[str, Any]] = queue.rubric.criteria if queue.rubric else []
    return criteria


def recount(review: Review) -> None:
    """How many have judged the review's item, and how far they differ."""
    if review.repeat_of_id is not None or review.item_id is None:
        return
    told = Review.objects.filter(item=review.item_id).independent()
    item = QueueItem.objects.filter(pk=review.item_id)
    item.update(done=told.count(), **_doubt(told))


def _doubt(told: QuerySet[Review]) -> dict[str, float]:
    """The share of every two reviewers who say different things of the same; what was doubtful at first stays so until
    two have spoken."""
    opinions: dict[object, list[object]] = {}
    for review in told.prefetch_related("verdicts"):
        for verdict in review.verdicts.all():
            opinions.setdefault((verdict.low_id, verdict.high_id), []).append(verdict.outcome)
        for key, score in review.scores.items():
            if not isinstance(score, str) or len(score) <= 100:
                opinions.setdefault(key, []).append(score)
    differing, compared = 0, 0
    for said in opinions.values():
        compared += len(said) * (len(said) - 1) // 2
        differing += sum(one != other for one, other in combinations(said, 2))
    return {"doubt": differing / compared} if compared else {}


def _finish(review: Review, token: str) -> None:
    now = timezone.now()
    review.status, review.token, review.submitted_at = Review.Status.SUBMITTED, token, now
    review.seconds = max(0.0, (now - review.started_at).total_seconds())
    review.draft = {}
    review.save()


def _told(review: Review) -> dict[str, Any]:
    said = {name: getattr(review, name) for name in ("choice", "ranks", "scores", "reasons", "confidence")}
    return {name: value for name, value in said.items() if value}
