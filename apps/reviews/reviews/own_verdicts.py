"""Save a user's own verdict about rollouts on the comparison page.

Verdicts are reviews, and a review of several rollouts needs a queue item, so each verdict creates a personal queue with
one item. The queue is not blind, because the page shows rewards and models.
"""

from collections.abc import Sequence

import msgspec
from django.db import transaction

from apps.accounts.models import User
from apps.gym.pairs.verdicts import mirror
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import CannotReview, claim_item, lock_queue
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.submission import submit_review
from apps.reviews.reviews.undo import reopen_review


def save_own_verdict(*, rollout_ids: Sequence[int], user: User, answer: Answer, token: str) -> Review:
    """Save a verdict on rollouts in the given order: a choice for two, ranks for more.

    It replaces the user's earlier verdict about them, which stays in the audit log. It counts as one vote, never as an
    adjudication, because the user saw the rewards. Raise QueueRefused if the rollouts cannot form an item,
    AnswerRefused and CannotReview.
    """
    ids = list(rollout_ids)
    with transaction.atomic():
        queue = _own_queue(ids, user) or _make_queue(ids, user)
        item = queue.items.get()
        if sent := Review.objects.filter(item=item, reviewer=user, token=token).first():
            return sent
        review = claim_item(queue=queue, user=user) or _reopen_submitted(queue, user)
        reordered = _reorder_answer(answer, ids, review.arrangement)
        return submit_review(review=review, user=user, token=token, answer=reordered)


def _reopen_submitted(queue: Queue, user: User) -> Review:
    locked = lock_queue(queue)
    submitted = Review.objects.select_related("item").get(queue=queue, reviewer=user, is_adjudication=False)
    assert submitted.item is not None
    if submitted.item.is_adjudicated:
        raise CannotReview(f"Reviews in “{queue}” were adjudicated. Change the adjudication on the page of that queue.")
    reopen_review(queue=locked, review=submitted, user=user)
    return submitted


def read_own_verdict(rollout_ids: Sequence[int], user: User) -> Answer | None:
    """Return the user's last verdict on these rollouts, in the given order."""
    ids = list(rollout_ids)
    queue = _own_queue(ids, user)
    if queue is None:
        return None
    last = Review.objects.filter(queue=queue, reviewer=user).submitted().order_by("submitted_at", "pk").last()
    if last is None:
        return None
    given = {name: getattr(last, name) for name in ("choice", "ranks", "reasons", "note", "confidence")}
    return _reorder_answer(Answer(**given), last.arrangement, ids)


def _own_queue(ids: list[int], user: User) -> Queue | None:
    mine = Queue.objects.open().filter(created_by=user, kind=_kind(ids), source__compared=sorted(ids))
    return mine.order_by("pk").first()


def _make_queue(ids: list[int], user: User) -> Queue:
    queue = Queue(
        name=f"Compared: {', '.join(f'#{one}' for one in ids)}",
        kind=_kind(ids),
        shows_expected=True,
        shows_reward=True,
        shows_model=True,
        source={"compared": sorted(ids)},
    )
    items = fill_from_sets([ids], kind=queue.kind)
    return create_queue(queue=queue, items=items, reviewers=[user], user=user)


def _kind(ids: list[int]) -> str:
    return Queue.Kind.PAIRWISE if len(ids) == 2 else Queue.Kind.RANKING


def _reorder_answer(answer: Answer, given: Sequence[int], wanted: Sequence[int]) -> Answer:
    """Convert an answer to another order of the rollouts. Invalid parts are unchanged; validation rejects them."""
    choice, ranks = answer.choice, answer.ranks
    if list(given) != list(wanted):
        choice = mirror(choice)
    if len(ranks) == len(given):
        ranked = dict(zip(given, ranks, strict=True))
        ranks = [ranked[one] for one in wanted]
    return msgspec.structs.replace(answer, choice=choice, ranks=ranks)
