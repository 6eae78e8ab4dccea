"""Control a collection: pause, resume, cancel, change limits, retry failures, resolve flags, archive."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.job_declarations import background_job
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.rollouts.collection_alerts import record_ended, record_paused
from apps.rollouts.engine.collection_limits import spent_limit
from apps.rollouts.figure_marks import mark_changed
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.notifications import announce_and_notify
from apps.rollouts.plans.plan_spec import LIMITS
from apps.rollouts.plans.validation import check_limits
from apps.rollouts.steering.holds import RAISE, REMEDIES

CHUNK = 2_000
"""Rows per transaction. Larger transactions would delay heartbeats on SQLite."""


class CannotSteer(Refusal, status=409, code="cannot-steer"):
    """Raised if the state of the collection or worker does not allow this."""


def pause_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Stop claiming rollouts; rollouts in flight finish. Idempotent."""
    paused = {"state": Collection.State.PAUSED, "pause_reason": Collection.PauseReason.ASKED}
    running = {"state": Collection.State.RUNNING}
    with transaction.atomic():
        changed = update_row(collection, paused, only=running, user=user, action="collection.paused")
        if changed:
            record_paused([collection.pk], Collection.PauseReason.ASKED)
    if not changed and collection.state != Collection.State.PAUSED:
        raise CannotSteer(f"{collection.label} is {collection.state}: only a running collection can be paused.")
    return _told(collection)


def resume_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Claim rollouts again. Idempotent. If a limit is reached, raise it first."""
    with transaction.atomic():
        collection = Collection.objects.select_for_update().get(pk=collection.pk)
        if collection.state == Collection.State.RUNNING:
            return collection
        if collection.state != Collection.State.PAUSED:
            raise CannotSteer(f"{collection.label} is {collection.state}: only a paused collection can be resumed.")
        if spent := spent_limit(collection):
            raise CannotSteer(f"{collection.label} stays paused because {spent.label}: {REMEDIES[spent]}.")
        collection.state, collection.pause_reason = Collection.State.RUNNING, ""
        collection.save(update_fields=["state", "pause_reason"])
        record(user=user, action="collection.resumed", target=f"collection {collection.pk}")
    return _told(collection)


def adjust_collection(*, collection: Collection, changes: dict[str, Any], user: User | None = None) -> Collection:
    """Set priority, concurrency and limits (plan_spec.LIMITS), even while the collection runs.

    Raise ValidationError by field, and CannotSteer for a finished collection.
    """
    unknown = sorted(set(changes) - set(LIMITS))
    if unknown:
        raise TypeError(f"unknown limit: {', '.join(unknown)}")
    check_limits(changes)
    with transaction.atomic():
        collection = Collection.objects.select_for_update().get(pk=collection.pk)
        if not collection.can_continue:
            raise CannotSteer(f"{collection.label} is {collection.state}: no rollouts are left to run.")
        before = {name: getattr(collection, name) for name in changes}
        Collection.objects.filter(pk=collection.pk).update(**changes)
        record(
            user=user, action="collection.adjusted", target=f"collection {collection.pk}", before=before, after=changes
        )
    collection.refresh_from_db()
    return _told(collection)


def cancel_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Cancel queued rollouts; workers cancel running ones when they next poll. Idempotent."""
    unfinished = [Collection.State.PLANNING, Collection.State.RUNNING, Collection.State.PAUSED]
    cancelled = {"state": Collection.State.CANCELLED, "pause_reason": "", "finished_at": timezone.now()}
    # First, in its own transaction: after it, no rollouts are claimed or planned.
    with transaction.atomic():
        only = {"state__in": unfinished}
        if update_row(collection, cancelled, only=only, user=user, action="collection.cancelled"):
            record_ended([collection.pk])
    if collection.state != Collection.State.CANCELLED:
        raise CannotSteer(f"{collection.label} is {collection.state}: no rollouts are left to cancel.")
    # Workers notice by themselves; pages are notified once, at the end.
    _cancel_queued(collection)
    collection.refresh_from_db()
    return _told(collection)


def _cancel_queued(collection: Collection) -> None:
    queued = Rollout.objects.filter(collection=collection, status=Rollout.Status.QUEUED).order_by("pk")
    while True:
        with transaction.atomic():
            # Retries lock the collection too, and find it cancelled.
            state = Collection.objects.select_for_update().values_list("state", flat=True).get(pk=collection.pk)
            if state != Collection.State.CANCELLED:
                return
            tasks = dict(queued.values_list("pk", "task")[:CHUNK])
            still = Rollout.objects.filter(pk__in=tasks, status=Rollout.Status.QUEUED)
            dropped = still.update(status=Rollout.Status.CANCELLED, finished_at=timezone.now())
            Collection.objects.filter(pk=collection.pk).update(cancelled=F("cancelled") + dropped)
            mark_changed((collection.pk, task_id) for task_id in tasks.values())
        if not tasks:
            return


@background_job(every=15.0, on_full_disk=True)
def sweep_cancelled() -> bool:
    """Background job: cancel queued rollouts of an interrupted cancellation. Return True if there were any."""
    queued = Rollout.objects.filter(collection=OuterRef("pk"), status=Rollout.Status.QUEUED)
    lately = timezone.now() - timedelta(days=1)
    left = Collection.objects.filter(Exists(queued), state=Collection.State.CANCELLED, finished_at__gte=lately).first()
    if left is None:
        return False
    _cancel_queued(left)
    return True


def retry_failed(*, collection: Collection, error_kinds: Sequence[str] = (), user: User | None = None) -> int:
    """Queue failed rollouts again, all or by error kind. Return their number.

    Earlier attempts stay readable. Raise CannotSteer for a collection that is cancelled or being planned, and for one
    that has reached a limit, because it would pause at once.
    """
    collection.refresh_from_db()
    # The time limit of a finished collection starts again.
    over = collection.state == Collection.State.COMPLETED
    if (spent := spent_limit(collection)) and not (over and spent == Collection.PauseReason.MAX_SECONDS):
        raise CannotSteer(f"{collection.label} cannot continue because {spent.label}: {RAISE[spent]}.")
    failed = Rollout.objects.filter(collection=collection, status=Rollout.Status.FAILED).order_by("pk")
    if error_kinds:
        failed = failed.filter(error_kind__in=error_kinds)
    # Rollouts that fail again meanwhile are not retried twice.
    last = failed.order_by("-pk").values_list("pk", flat=True).first() or 0
    first, queued = 0, 0
    while ids := list(failed.filter(pk__gt=first, pk__lte=last).values_list("pk", flat=True)[:CHUNK]):
        queued += _queue_again(collection, ids)
        first = ids[-1]
    if queued:
        kinds = list(error_kinds)
        target = f"collection {collection.pk}"
        record(user=user, action="collection.retried", target=target, rollouts=queued, error_kinds=kinds)
    collection.refresh_from_db()
    _told(collection)
    return queued


def _queue_again(collection: Collection, ids: list[int]) -> int:
    """Requeue a chunk.

    Rows, counters and state change in one transaction, so that the collection does not end too early.
    """
    with transaction.atomic():
        locked = Collection.objects.select_for_update().get(pk=collection.pk)
        if locked.state not in {Collection.State.RUNNING, Collection.State.PAUSED, Collection.State.COMPLETED}:
            raise CannotSteer(f"{locked.label} is {locked.state}: its rollouts cannot be retried.")
        chunk = Rollout.objects.filter(pk__in=ids, status=Rollout.Status.FAILED)
        number = chunk.update(
            status=Rollout.Status.QUEUED,
            error_kind="",
            error_message="",
            failures=0,
            lost=0,
            turns=0,
            tool_calls=0,
            tool_errors=0,
            input_tokens=0,
            output_tokens=0,
            cost=0.0,
            duration=0.0,
            started_at=None,
            finished_at=None,
        )
        if locked.state == Collection.State.COMPLETED and number:
            locked.state, locked.finished_at, locked.started_at = Collection.State.RUNNING, None, None
        tasks = Rollout.objects.filter(pk__in=ids).values_list("task", flat=True)
        mark_changed((collection.pk, task_id) for task_id in tasks)
        locked.failed = F("failed") - number
        locked.retried = F("retried") + number
        locked.save(update_fields=["state", "finished_at", "started_at", "failed", "retried"])
    return number


def drain_worker(*, worker: Worker, user: User | None = None) -> Worker:
    """Ask a worker to stop claiming and to leave when its rollouts have finished. Idempotent."""
    draining, active = {"state": Worker.State.DRAINING}, {"state": Worker.State.ACTIVE}
    update_row(worker, draining, only=active, user=user, action="worker.drained")
    if worker.state != Worker.State.DRAINING:
        raise CannotSteer(f"{worker} is {worker.state}: only an active worker can be drained.")
    return worker


def _told(collection: Collection) -> Collection:
    transaction.on_commit(lambda: announce_and_notify(collection.pk))
    return collection


def archive_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Hide a collection from lists. Idempotent. Raise CannotSteer if it is not finished."""
    with transaction.atomic():
        collection = Collection.objects.select_for_update().get(pk=collection.pk)
        if not collection.is_finished:
            raise CannotSteer(f"{collection.label} is {collection.state}: only finished collections can be archived.")
        if not collection.is_archived:
            collection.archived_at = timezone.now()
            collection.save(update_fields=["archived_at"])
            record(user=user, action="collection.archived", target=f"collection {collection.pk}")
    return collection


def restore_collection(*, collection: Collection, user: User | None = None) -> Collection:
    """Show an archived collection in lists again. Idempotent."""
    with transaction.atomic():
        collection = Collection.objects.select_for_update().get(pk=collection.pk)
        if collection.is_archived:
            collection.archived_at = None
            collection.save(update_fields=["archived_at"])
            record(user=user, action="collection.restored", target=f"collection {collection.pk}")
    return collection


def resolve_flag(*, rollout: Rollout, user: User | None = None) -> Rollout:
    """Resolve the flag, so that exports include the trace again. Idempotent."""
    counts = rollout.redactions
    with transaction.atomic():
        update_row(
            rollout, {"flagged": False}, only={"flagged": True}, user=user, action="rollout.flag_resolved", **counts
        )
        mark_changed([(rollout.collection_id, rollout.task_id)])
    return rollout


def resolve_flags(*, collection: Collection, user: User | None = None) -> int:
    """Resolve the flags of all finished rollouts of a collection. Return their number."""
    ended = [Rollout.Status.COMPLETED, Rollout.Status.FAILED, Rollout.Status.CANCELLED]
    flagged = Rollout.objects.filter(collection=collection, flagged=True, status__in=ended).order_by("pk")
    total = 0
    while chunk := dict(flagged.values_list("pk", "task_id")[:CHUNK]):
        with transaction.atomic():
            total += Rollout.objects.filter(pk__in=chunk, flagged=True).update(flagged=False)
            mark_changed((collection.pk, task_id) for task_id in chunk.values())
    if total:
        record(user=user, action="collection.flags_resolved", target=f"collection {collection.pk}", rollouts=total)
    return total
