"""Queue, apply, cancel, resume and run rechecks: derive stored rollouts again with the current rules."""

from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import is_due
from apps.accounts.models import User
from apps.exports.rechecks.rollout_changes import select_ended, work_on
from apps.gym.request_refusals import Refusal
from apps.gym.stored_rules import RULES
from apps.rollouts.models import Collection, Recheck
from apps.rollouts.reverification.ownership import as_owner
from apps.rollouts.steering.trace_deletion import explain_deleted_traces
from apps.tasks import fenced_jobs

TURN_SECONDS = 20.0
"""How long a worker works on one recheck while other background jobs wait."""

State = Recheck.State


class RecheckRefused(Refusal, code="recheck-refused"):
    """Raised if a collection cannot be rechecked. `argument` is the field to change."""


class CannotSteerRecheck(Refusal, status=409, code="cannot-steer-recheck"):
    """Raised if a recheck cannot be applied, cancelled or resumed in its current state."""


def queue_recheck(*, collection: Collection, user: User | None = None) -> Recheck:
    """Queue a recheck of a collection, or return the unfinished one. Raise RecheckRefused."""
    if collection.state == Collection.State.PLANNING:
        raise RecheckRefused(f"{collection.label} is still being planned.", "collection")
    if problem := explain_deleted_traces([collection]):
        raise RecheckRefused(problem, "collection")
    total = select_ended(collection).count()
    try:
        with transaction.atomic():
            recheck = Recheck.objects.create(collection=collection, rules=RULES, total=total, created_by=user)
            record(user=user, action="recheck.create", target=f"collection {collection.pk}", rollouts=total)
    except IntegrityError:
        return Recheck.objects.get(collection=collection, state__in=[State.QUEUED, State.RUNNING])
    return recheck


@background_job(waiting=lambda: Recheck.objects.filter(state__in=[State.QUEUED, State.RUNNING]))
def continue_recheck() -> bool:
    """Background job: check or apply the recheck that has waited longest. Return True if there was one."""
    fenced_jobs.requeue_unresponsive(Recheck.objects.filter(state=State.RUNNING), queued=State.QUEUED)
    recheck = Recheck.objects.filter(is_due(), state=State.QUEUED).order_by("touched_at", "id").first()
    if recheck is None:
        return False
    as_owner(recheck, work_on, doing=State.RUNNING, seconds=TURN_SECONDS)
    return True


def apply_recheck(*, recheck: Recheck, user: User | None = None) -> Recheck:
    """Queue the changes to be written to the rollouts. Idempotent."""
    _steer(recheck, {"applies": True}, [State.READY], "recheck.applied", user=user, changed=recheck.changed)
    if not recheck.applies and recheck.state != State.APPLIED:
        raise CannotSteerRecheck(f"{recheck} is {recheck.state}: only one that is ready can be applied.")
    return recheck


def resume_recheck(*, recheck: Recheck, user: User | None = None) -> Recheck:
    """Queue a cancelled or failed recheck again. It continues where it stopped. Idempotent."""
    if not _steer(recheck, {}, [State.CANCELLED, State.FAILED], "recheck.resumed", user=user) and recheck.is_settled:
        raise CannotSteerRecheck(f"{recheck} is {recheck.state}: it cannot be resumed.")
    return recheck


def _steer(recheck: Recheck, changes: dict[str, bool], states: list[str], action: str, **entry: Any) -> bool:
    if recheck.rules != RULES:
        raise CannotSteerRecheck(f"{recheck} used earlier rules. Start a new one.")
    queued = {"state": State.QUEUED, "message": "", "finished_at": None, "touched_at": timezone.now(), **changes}
    try:
        with transaction.atomic():
            return update_row(recheck, queued, only={"state__in": states}, action=action, **entry)
    except IntegrityError:
        raise CannotSteerRecheck(f"Another recheck of {recheck.collection.label} is running.") from None


def cancel_recheck(*, recheck: Recheck, user: User | None = None) -> Recheck:
    """Cancel a recheck. Changes that are already written stay. Idempotent."""
    unapplied = {"state__in": [State.QUEUED, State.RUNNING, State.READY]}
    cancelled = {"state": State.CANCELLED, "finished_at": timezone.now()}
    update_row(recheck, cancelled, only=unapplied, user=user, action="recheck.cancelled")
    if recheck.state != State.CANCELLED:
        raise CannotSteerRecheck(f"{recheck} is {recheck.state}: it cannot be cancelled.")
    return recheck
