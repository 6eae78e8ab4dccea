"""Create, change, close, reopen and delete queues."""

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
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.steering.trace_deletion import explain_deleted_traces

ROWS = 2_000
MAX_REVIEWERS = 200


def create_queue(*, queue: Queue, items: Sequence[Item], reviewers: Iterable[User] = (), user: User | None) -> Queue:
    """Save a queue with its items, for the named reviewers, or for all users who may review.

    The item order depends on the seed of the queue. Hidden repeats and the order of rollouts in an item are drawn from
    system randomness, so that reviewers cannot predict them. Raise ValidationError by field, and QueueRefused.
    """
    if queue.kind == Queue.Kind.RUBRIC and queue.rubric is None:
        raise QueueRefused("A rubric queue needs a rubric.", "rubric")
    if queue.reveals and queue.repeat_share:
        message = (
            "A queue that shows results cannot have hidden repeats, because reviewers would already know the results."
        )
        raise QueueRefused(message, "repeat_share")
    if not items:
        raise QueueRefused("A queue needs at least one item.", "items")
    _check_traces(items)
    named = _check_reviewers(reviewers)
    queue.item_count, queue.named_reviewers, queue.created_by = len(items), bool(named), user
    queue.seed = queue.seed or random.SystemRandom().randrange(1, 2**53)
    queue.full_clean(exclude=["created_by"])
    doubts = _initial_doubt(queue, items)
    rng = random.Random(queue.seed)
    places = list(range(len(items)))
    rng.shuffle(places)
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
    """Change name, instructions, overlap, order, lease time or reviewers.

    What reviewers see cannot be changed: verdicts given under different conditions are not comparable. Raise
    QueueRefused and ValidationError.
    """
    known = {"name", "instructions", "overlap", "order", "lease_minutes"}
    if unknown := sorted(set(changes) - known):
        raise QueueRefused(f"{unknown[0]} cannot be changed after the queue is created.", unknown[0])
    named = None if reviewers is None else _check_reviewers(reviewers)
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
        changes_to_log: dict[str, Any] = {} if named is None else {"reviewers": [each.username for each in named]}
        record(
            user=user,
            action="queue.change",
            target=f"queue {locked.pk}",
            before=before,
            after=describe(locked),
            **changes_to_log,
        )
    return locked


def _check_traces(items: Sequence[Item]) -> None:
    rollouts = [rollout_id for _, rollouts in items for rollout_id in rollouts]
    for start in range(0, len(rollouts), ROWS):
        used = Rollout.objects.filter(pk__in=rollouts[start : start + ROWS]).order_by().values("collection")
        if problem := explain_deleted_traces(Collection.objects.filter(pk__in=used)):
            raise QueueRefused(problem, "items")


def close_queue(*, queue: Queue, user: User) -> Queue:
    """Close a queue: no more items are assigned. Started reviews can be submitted after it is reopened."""
    return _set_open(queue, user, is_open=False)


def open_queue(*, queue: Queue, user: User) -> Queue:
    return _set_open(queue, user, is_open=True)


def delete_queue(*, queue: Queue, user: User) -> None:
    """Delete a queue with its reviews. Raise QueueRefused if it has submitted reviews."""
    with transaction.atomic():
        # Lock first: a concurrent submission is either visible here or rejected.
        locked = _lock(queue)
        if locked.reviews.filter(status="submitted").exists():
            raise QueueRefused("The queue has submitted reviews. Close it instead to keep them.")
        record(user=user, action="queue.delete", target=f"queue {locked.pk}", before=describe(locked))
        locked.delete()


def _set_open(queue: Queue, user: User, *, is_open: bool) -> Queue:
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
        raise QueueRefused("This queue was deleted in the meantime.")
    return locked


def _check_reviewers(reviewers: Iterable[User]) -> list[User]:
    named = list({each.pk: each for each in reviewers}.values())
    if len(named) > MAX_REVIEWERS:
        raise QueueRefused(f"A queue has at most {MAX_REVIEWERS} named reviewers.", "reviewers")
    for each in named:
        if not user_may(each, Permission.REVIEW):
            raise QueueRefused(
                f"{each.username} cannot review. Give the user the role annotator or engineer.", "reviewers"
            )
    return named


def _initial_doubt(queue: Queue, items: Sequence[Item]) -> dict[int, float]:
    """Return the initial disagreement by rollout id, for rollouts whose reward was flagged as wrong."""
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
