"""Save a user's own verdict on compared rollouts.

A verdict is a review, and a review of several rollouts needs an item: it becomes the only item of a personal queue. The
queue shows rewards and models, as the comparison did, so it is not blind.
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


def judge_compared(*, rollout_ids: Sequence[int], user: User, answer: Answer, token: str) -> Review:
    """Save a verdict on rollouts in the given order: a choice for two, ranks for more.

    It replaces the user's earlier verdict on them; the audit log keeps that. It counts as one vote and never as an
    adjudication, because the user saw the rewards. Raise QueueRefused if they cannot form an item, AnswerRefused and
    CannotReview.
    """
    ids = list(rollout_ids)
    with transaction.atomic():
        queue = _own_queue(ids, user) or _make_queue(ids, user)
        item = queue.items.get()
        if sent := Review.objects.filter(item=item, reviewer=user, token=token).first():
            return sent
        review = claim_item(queue=queue, user=user) or _reopen_said(queue, user)
        said = _turn(answer, ids, review.arrangement)
        return submit_review(review=review, user=user, token=token, answer=said)


def _reopen_said(queue: Queue, user: User) -> Review:
    locked = lock_queue(queue)
    said = Review.objects.select_related("item").get(queue=queue, reviewer=user, is_adjudication=False)
    assert said.item is not None
    if said.item.is_adjudicated:
        raise CannotReview(f"Reviews in “{queue}” were adjudicated. Change the adjudication on the page of that queue.")
    reopen_review(queue=locked, review=said, user=user)
    return said


def read_compared(rollout_ids: Sequence[int], user: User) -> Answer | None:
    """Return the user's last verdict on these rollouts, in the given order."""
    ids = list(rollout_ids)
    queue = _own_queue(ids, user)
    if queue is None:
        return None
    said = Review.objects.filter(queue=queue, reviewer=user).submitted().order_by("submitted_at", "pk").last()
    if said is None:
        return None
    given = {name: getattr(said, name) for name in ("choice", "ranks", "reasons", "note", "confidence")}
    return _turn(Answer(**given), said.arrangement, ids)


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


def _turn(answer: Answer, given: Sequence[int], wanted: Sequence[int]) -> Answer:
    """Return the answer for another order of the rollouts. Invalid parts stay unchanged, to be rejected."""
    choice, ranks = answer.choice, answer.ranks
    if list(given) != list(wanted):
        choice = mirror(choice)
    if len(ranks) == len(given):
        ranked = dict(zip(given, ranks, strict=True))
        ranks = [ranked[one] for one in wanted]
    return msgspec.structs.replace(answer, choice=choice, ranks=ranks)
