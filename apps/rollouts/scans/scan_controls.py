"""Create, start, resume and cancel scans."""

import dataclasses

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.rollouts.models import Scan, ScanAnswer
from apps.rollouts.scans.scan_estimates import ScanRefused, estimate_scan, find_rollouts
from apps.rollouts.scans.scan_spec import ScanSpec

BATCH = 2_000
"""Rows of one INSERT."""

State = Scan.State


class CannotScan(Refusal, status=409, code="cannot-scan"):
    """Raised if a scan cannot be started, resumed or cancelled in its current state."""


def create_scan(spec: ScanSpec, *, user: User | None = None) -> Scan:
    """Create a scan with its estimate. It calls no judge until it is started. Raises like estimate_scan."""
    estimate = estimate_scan(spec)
    if not estimate.rollouts:
        raise ScanRefused("No finished rollout matches this filter.", "filter")
    with transaction.atomic():
        scan = Scan.objects.create(
            **{given.name: getattr(spec, given.name) for given in dataclasses.fields(spec)},
            total=estimate.rollouts,
            estimated_cost=estimate.cost,
            created_by=user,
        )
        record(user=user, action="scan.create", target=f"scan {scan.pk}", rollouts=estimate.rollouts)
    return scan


def start_scan(*, scan: Scan, user: User | None = None) -> Scan:
    """Store which rollouts the scan covers, and let workers ask the judge. Idempotent.

    Raise ScanRefused and CannotScan.
    """
    ids = find_rollouts(scan.filter) if scan.state == State.DRAFT else []
    with transaction.atomic():
        started = {"state": State.RUNNING, "total": len(ids), "touched_at": timezone.now()}
        if update_row(scan, started, only={"state": State.DRAFT}, user=user, action="scan.started", rollouts=len(ids)):
            ScanAnswer.objects.bulk_create((ScanAnswer(scan=scan, rollout_id=pk) for pk in ids), batch_size=BATCH)
    if scan.state not in {State.RUNNING, State.COMPLETED}:
        raise CannotScan(f"{scan} is {scan.get_state_display()}: only a new scan can be started.")
    return scan


def resume_scan(*, scan: Scan, budget: float | None = None, user: User | None = None) -> Scan:
    """Continue a paused scan, with a higher budget if its budget is used up. Idempotent. Raise CannotScan."""
    budget = scan.budget if budget is None else budget
    if scan.state == State.PAUSED and budget <= scan.cost:
        raise CannotScan(f"The scan has cost ${scan.cost:.2f}. Give a higher budget.")
    resumed = {"state": State.RUNNING, "budget": budget, "message": "", "retry_at": None}
    with transaction.atomic():
        only = {"state": State.PAUSED}
        if update_row(scan, resumed, only=only, user=user, action="scan.resumed", after={"budget": budget}):
            ScanAnswer.objects.filter(scan=scan, state=ScanAnswer.State.PENDING).update(tries=0)
    if scan.state not in {State.RUNNING, State.COMPLETED}:
        raise CannotScan(f"{scan} is {scan.get_state_display()}: only a paused scan can be resumed.")
    return scan


def cancel_scan(*, scan: Scan, user: User | None = None) -> Scan:
    """End a scan. Its answers are kept. Idempotent. Raise CannotScan if it is completed."""
    cancelled = {"state": State.CANCELLED, "finished_at": timezone.now()}
    unfinished = {"state__in": [State.DRAFT, State.RUNNING, State.PAUSED]}
    update_row(scan, cancelled, only=unfinished, user=user, action="scan.cancelled", answered=scan.answered)
    if scan.state != State.CANCELLED:
        raise CannotScan(f"{scan} is {scan.get_state_display()}: it cannot be cancelled.")
    return scan
