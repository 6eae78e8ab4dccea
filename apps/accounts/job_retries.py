"""Retry background jobs after transient database errors, with increasing waits.

A job is a row, for example an export or an upload. Select due jobs by `is_due()`, claim one by setting
`claim_fields()`, and call `requeue_if_transient` if the attempt raises.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import models
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from apps.accounts.disk_space import DiskFull, find_shortage, is_disk_full, note_error
from apps.accounts.outages import drop_broken_connection, is_transient
from apps.accounts.shared_columns import Dated
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

SPACE_WAIT = timedelta(seconds=15)
"""Time between attempts of a job that waits for disk space."""
FIRST_WAIT = timedelta(seconds=2)
LONGEST_WAIT = timedelta(minutes=1)
GIVE_UP_AFTER = timedelta(hours=1)
"""A job fails if transient errors last this long without progress."""
DATABASE_WAIT_SECONDS = 1.0
"""Interval at which a worker checks whether the database is back."""


class RetriedJob(Dated):
    """Columns of a job that is retried."""

    failing_since = models.DateTimeField(
        null=True, blank=True, help_text="When transient errors started; null after progress"
    )
    retry_at = models.DateTimeField(null=True, blank=True, help_text="While queued after an error: the next attempt")

    class Meta:
        abstract = True


def is_due() -> Q:
    """Return a condition on queued jobs that may be claimed now."""
    return Q(retry_at=None) | Q(retry_at__lte=timezone.now())


def claim_fields() -> dict[str, Any]:
    """Return the fields to set when a job is claimed. Unless it is a retry, `failing_since` is cleared."""
    is_retry = When(retry_at__isnull=False, then=F("failing_since"))
    since = Case(is_retry, default=Value(None), output_field=models.DateTimeField())
    return {"message": "", "retry_at": None, "failing_since": since, "touched_at": timezone.now()}


def progress_fields() -> dict[str, Any]:
    """Return the fields to set after a part of a resumable job is done."""
    return {"touched_at": timezone.now(), "failing_since": None}


def requeue_if_transient(owned: QuerySet[Any], problem: BaseException, **queued: Any) -> bool:
    """Requeue the job after a transient error or on a full disk. Return False if the job must fail instead.

    `owned` selects the job's row as long as this attempt owns it. `queued` has the fields that requeue it. The message
    of the row gives the reason. In a worker, wait until the database is available.
    """
    if not (is_transient(problem) or is_disk_full(problem)):
        return False
    return retry_until_available(lambda: _queue_again(owned, problem, queued))


def _queue_again(owned: QuerySet[Any], problem: BaseException, queued: dict[str, Any]) -> bool:
    now = timezone.now()
    if note_error(problem):
        owned.update(failing_since=None, retry_at=now + SPACE_WAIT, message=_explain_full_disk(problem), **queued)
        return True
    since: datetime = owned.values_list("failing_since", flat=True).first() or now
    if now - since > GIVE_UP_AFTER:
        return False
    retry_at = now + min(max(now - since, FIRST_WAIT), LONGEST_WAIT)
    message = cut_clean(f"Database error: {problem}. Next attempt at {retry_at:%H:%M:%S} UTC.", 500)
    if owned.update(failing_since=since, retry_at=retry_at, message=message, **queued):
        logger.warning("%s is retried at %s: %r", owned.model._meta.verbose_name, retry_at, problem)
    return True


def _explain_full_disk(problem: BaseException) -> str:
    shortage = problem.shortage if isinstance(problem, DiskFull) else find_shortage()
    return cut_clean(f"Waiting for disk space: {shortage or problem}", 500)


def retry_until_available(work: Callable[[], Result]) -> Result:
    """Run a short write. In a worker, retry while the database is unavailable; elsewhere, raise immediately."""
    while True:
        try:
            drop_broken_connection()
            return work()
        except Exception as problem:
            if not (is_transient(problem) and process_exit.is_obeyed()):
                raise
        process_exit.check()
        time.sleep(DATABASE_WAIT_SECONDS)


def wait_for_retry(job: RetriedJob) -> bool:
    """Sleep until a requeued job may be tried again. Return False if it was not requeued."""
    if job.retry_at is None:
        return False
    time.sleep(max(0.0, (job.retry_at - timezone.now()).total_seconds()))
    return True
