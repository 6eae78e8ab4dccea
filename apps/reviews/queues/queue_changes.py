"""Make a queue of items, change who reviews it, close and open it."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import describe, record
from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.reviews.models import Flag, ItemRollout, Queue, QueueItem, QueueReviewer
from apps.reviews.queues.queue_items import Item, QueueRefused
from apps.reviews.queues.side_order import choose_repeats, shuffle
from apps.rollouts.models import Rollout

ROWS = 2_000
MAX_REVIEWERS = 200


def create_queue(*, queue: Queue, items: Sequence[Item], reviewers: Iterable[User] = (), user: User | None) -> Queue:
    """Save it with its items, for the reviewers that are named, or any annotator where none is. Raises ValidationError
    by field, and QueueRefused.

    The random order is drawn by the queue's seed; which items come twice, and in which order an item keeps its
    rollouts, by nothing that anybody can know.
    """
    if queue.kind == Queue.Kind.RUBRIC and queue.rubric is None:
        raise QueueRefused("A rubric queue needs a rubric.", "rubric")
    if queue.reveals and queue.repeat_share:
        message = (
            "A queue that reveals rewards has no hidden repeats: who was told would answer them by what they know."
        )
        raise QueueRefused(message, "repeat_share")
    if not items:
        raise QueueRefused("A queue needs at least one item.", "items")
    named = _checked(reviewers)
    queue.item_count, queue.named_reviewers, queue.created_by = len(items), bool(named), user
    queue.seed = queue.seed or random.SystemRandom().randrange(1, 2**53)
    queue.full_clean(exclude=["created_by"])
    doubts = _doubts(queue, items)
    drawn = random.Random(queue.seed)
    places = list(range(len(items)))
    drawn.shuffle(places)
    repeats = choose_repeats(len(items), queue.repeat_share)
    with transaction.atomic():
        queue.save()
        QueueReviewer.objects.bulk_create(QueueReviewer(queue=queue, user=each) for each in named)
        rows = QueueItem.objects.bulk_create(
            (
                QueueItem(
                    queue=queue,
                    task_id=task_id,
                    size=len(rollouts),
                    shuffle=places[number],
                    doubt=max((doubts.get(one, 0.0) for one in rollouts), default=0.0),
                    is_repeated=number in repeats,
                )
                for number, (task_id, rollouts) in enumerate(items)
            ),
            batch_size=ROWS,
        )
        ItemRollout.objects.bulk_create(
            (
                ItemRollout(item=row, rollout_id=one, place=place)
                for row, (_, rollouts) in zip(rows, items, strict=True)
                for place, one in enumerate(shuffle(rollouts))
            ),
            batch_size=ROWS,
        )
        record(
            user=user,
            action="queue.create",
            target=f"queue {queue.pk}",
            after=describe(queue),
            reviewers=[each.username for each in named],
        )
    return queue


def change_queue(
    *, queue: Queue, changes: dict[str, Any], reviewers: Iterable[User] | None = None, user: User
) -> Queue:
    """Change its name, instructions, overlap, order or lease time, or who reviews it. What reviewers see and what the
    items are stays: verdicts that were given under other conditions would not compare. Raises QueueRefused and
    ValidationError."""
    known = {"name", "instructions", "overlap", "order", "lease_minutes"}
    if unknown := sorted(set(changes) - known):
        raise QueueRefused(f"{unknown[0]} stays as it was when the queue was made.", unknown[0])
    named = None if reviewers is None else _checked(reviewers)
    with transaction.atomic():
        locked = _lock(queue)
        before = describe(locked)
        for name, value in changes.items():
            setattr(locked, name, value)
        if named is not None:
            locked.named_reviewers = bool(named)
            QueueReviewer.objects.filter(queue=locked).delete()
            QueueReviewer.objects.bulk_create(QueueReviewer(queue=locked, user=each) for each in named)
        locked.full_clean(exclude=["created_by"])
        locked.save()
        told: dict[str, Any] = {} if named is None else {"reviewers": [each.username for each in named]}
        record(
            user=user, action="queue.change", target=f"queue {locked.pk}", before=before, after=describe(locked), **told
        )
    return locked


def close_queue(*, queue: Queue, user: User) -> Queue:
    """Stop giving out items. What people began stays theirs: they can submit it when the queue is open again."""
    return _turn(queue, user, is_open=False)


def open_queue(*, queue: Queue, user: User) -> Queue:
    return _turn(queue, user, is_open=True)


def delete_queue(*, queue: Queue, user: User) -> None:
    """With all its reviews and verdicts; refused while there are any that somebody submitted."""
    with transaction.atomic():
        # Held first, as by who submits: what is submitted meanwhile is either seen here, or refused there.
        locked = _lock(queue)
        if locked.reviews.filter(status="submitted").exists():
            raise QueueRefused("People have submitted reviews in it: close it instead, and they stay.")
        record(user=user, action="queue.delete", target=f"queue {locked.pk}", before=describe(locked))
        locked.delete()


def _turn(queue: Queue, user: User, *, is_open: bool) -> Queue:
    with transaction.atomic():
        locked = _lock(queue)
        if locked.is_open != is_open:
            locked.closed_at = None if is_open else timezone.now()
            locked.save(update_fields=["closed_at"])
            record(user=user, action="queue.open" if is_open else "queue.close", target=f"queue {locked.pk}")
    return locked


def _lock(queue: Queue) -> Queue:
    locked = Queue.objects.select_for_update().filter(pk=queue.pk).first()
    if locked is None:
        raise QueueRefused("This queue has been deleted meanwhile.")
    return locked


def _checked(reviewers: Iterable[User]) -> list[User]:
    named = list({each.pk: each for each in reviewers}.values())
    if len(named) > MAX_REVIEWERS:
        raise QueueRefused(f"A queue names at most {MAX_REVIEWERS} reviewers.", "reviewers")
    for each in named:
        if not user_may(each, Permission.REVIEW):
            raise QueueRefused(f"{each.username} may not review: that takes the role of an annotator.", "reviewers")
    return named


def _doubts(queue: Queue, items: Sequence[Item]) -> dict[int, float]:
    """What is doubtful before anybody reviews here: rollouts whose reward somebody has called wrong."""
    if queue.order != Queue.Order.DISAGREEMENT:
        return {}
    ids = [one for _, rollouts in items for one in rollouts]
    doubted: dict[int, float] = {}
    for start in range(0, len(ids), ROWS):
        chunk = Rollout.objects.filter(pk__in=ids[start : start + ROWS])
        wrong = Flag.objects.filter(
            rollout__in=chunk, kind__in=[Flag.Kind.VERIFIER_WRONG, Flag.Kind.REWARD_HACKED], withdrawn_at__isnull=True
        )
        doubted.update(dict.fromkeys(wrong.values_list("rollout_id", flat=True), 0.5))
    return doubted
