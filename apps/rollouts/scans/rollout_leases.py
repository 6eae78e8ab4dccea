"""Claim the rollouts of a scan under a lease, within its budget and the concurrency limit of the judge."""

import math
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.rollouts.database_clock import server_now
from apps.rollouts.models import Scan, ScanAnswer

Rows = QuerySet[ScanAnswer]


def claim_rollouts(scan: Scan, *, lease: int, limit: int) -> list[ScanAnswer] | None:
    """Lease up to `limit` rollouts.

    Complete the scan if no rollout is pending. Pause it if its budget is used up. Return None if the scan is not
    running any more.
    """
    with transaction.atomic():
        # The lock makes workers count and claim one after the other.
        locked = Scan.objects.select_for_update().filter(pk=scan.pk, state=Scan.State.RUNNING).first()
        if locked is None:
            return None
        pending = ScanAnswer.objects.filter(scan=scan, state=ScanAnswer.State.PENDING)
        leased = pending.filter(leased_until__gt=server_now()).count()
        if not leased and not pending.exists():
            _end(locked, Scan.State.COMPLETED)
            return None
        if not leased and locked.cost >= locked.budget:
            _end(locked, Scan.State.PAUSED, f"The budget of ${locked.budget:,.2f} is used up.")
            return None
        room = min(limit, _free_calls(scan), _affordable(locked, leased))
        if room <= 0:
            return []
        free = pending.filter(Q(leased_until=None) | Q(leased_until__lte=server_now()))
        # Rollouts whose call failed come last, so that an outage of the judge does not use up their tries.
        rows = list(free.order_by("tries", "pk").select_related("rollout")[:room])
        ScanAnswer.objects.filter(pk__in=[row.pk for row in rows]).update(
            lease=lease, leased_until=_lease_end(), tries=F("tries") + 1
        )
        for row in rows:
            row.tries += 1
        return rows


def _end(scan: Scan, state: str, message: str = "") -> None:
    finished = timezone.now() if state == Scan.State.COMPLETED else None
    Scan.objects.filter(pk=scan.pk).update(state=state, message=message, finished_at=finished)


def _free_calls(scan: Scan) -> int:
    """Return how many more calls the judge accepts. Scans of all workers share its concurrency limit."""
    leased = ScanAnswer.objects.filter(
        scan__judge_model=scan.judge_model_id, state=ScanAnswer.State.PENDING, leased_until__gt=server_now()
    )
    return scan.judge_model.concurrency - leased.count()


def _affordable(scan: Scan, leased: int) -> int:
    """Return how many more rollouts the budget covers at the mean cost so far.

    Return at least 1 if budget is left and no rollout is leased.
    """
    each = scan.cost / scan.done if scan.done else scan.estimated_cost / max(1, scan.total)
    left = scan.budget - scan.cost
    most = math.floor(left / each) - leased if each > 0 else scan.total
    return max(most, int(left > 0 and not leased))


def renew_leases(lease: int) -> None:
    leased_rows(lease).update(leased_until=_lease_end())


def release_rollouts(lease: int, rows: list[int] | None = None) -> None:
    """Return leased rollouts, or only these rows, to the scan."""
    leased = leased_rows(lease) if rows is None else leased_rows(lease).filter(pk__in=rows)
    leased.update(lease=None, leased_until=None)


def leased_rows(lease: int) -> Rows:
    """Return the rows whose answer only the holder of this lease may write."""
    return ScanAnswer.objects.filter(lease=lease, state=ScanAnswer.State.PENDING)


def _lease_end() -> object:
    return server_now(timedelta(seconds=settings.WORKER_LEASE_SECONDS))
