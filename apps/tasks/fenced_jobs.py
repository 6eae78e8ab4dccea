"""Jobs with one worker at a time: rows fenced by attempt number, and requeued if their worker is lost."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.apps import apps
from django.db import models, transaction
from django.db.models import F, Model, QuerySet
from django.utils import timezone

from apps.accounts.job_retries import RetriedJob, claim_fields, requeue_if_transient
from apps.accounts.telemetry.spans import annotate, mark_failed
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean

logger = logging.getLogger(__name__)

Row = TypeVar("Row", bound=RetriedJob)

QUIET = timedelta(minutes=5)
"""A job without a heartbeat for this long has lost its worker."""
MAX_ATTEMPTS = 3
IN_PROGRESS = frozenset(
    {"applying", "computing", "deleting", "loading", "making", "running", "sending", "verifying", "writing"}
)
"""The states in which a RetriedJob has a worker."""


class FencedJob(RetriedJob):
    """Columns of a job that one worker at a time works on. The job also has `state` and `touched_at`."""

    attempt = models.PositiveSmallIntegerField(default=0, help_text="Number of claims, used as a fencing token")
    message = models.CharField(max_length=500, blank=True)

    state: "models.CharField[str, str]"

    class Meta:
        abstract = True

    @property
    def is_settled(self) -> bool:
        """Return True unless the job waits for a worker or has one."""
        return self.state not in {"queued", *IN_PROGRESS}


class FencedOut(Exception):
    """Raised if another worker took over the job, or a user cancelled it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a job. The row is in state `doing` meanwhile, and returns to `queued` if interrupted."""

    job: type[Model]
    pk: int
    number: int
    doing: str
    queued: str

    def __str__(self) -> str:
        return f"{self.job._meta.verbose_name} {self.pk}"

    @property
    def owned(self) -> QuerySet[Any]:
        """Return a queryset of the row, empty if another attempt owns it."""
        return self.job._default_manager.filter(pk=self.pk, attempt=self.number, state=self.doing)

    def write(self, **fields: Any) -> None:
        """Update the row and its heartbeat. Raise FencedOut if another attempt owns it."""
        if not self.owned.update(**{"touched_at": timezone.now(), **fields}):
            raise FencedOut

    def requeue(self, **fields: Any) -> None:
        """Requeue the job immediately, without counting the attempt."""
        self.owned.update(state=self.queued, attempt=F("attempt") - 1, **fields)

    def fail(self, problem: Exception) -> None:
        _fail(self.owned, cut_clean(f"{type(problem).__name__}: {problem}", 500))

    @contextmanager
    def store_errors(self) -> Iterator[None]:
        """Store errors of the block in the row. Requeue the job after transient errors and at shutdown."""
        try:
            yield
        except process_exit.Leaving:
            self.requeue()
            logger.info("%s is left to another worker", self)
        except FencedOut:
            logger.info("%s was taken over or cancelled", self)
        except Exception as problem:
            if not requeue_if_transient(self.owned, problem, state=self.queued, attempt=F("attempt") - 1):
                # Users see the message in the row; the log has the traceback.
                logger.exception("%s failed", self)
                mark_failed(problem)
                self.fail(problem)


def claim(claimable: QuerySet[Any], pk: int, *, doing: str, queued: str) -> Attempt | None:
    """Claim a job and return the attempt, or None if it cannot be claimed."""
    rows = claimable.model._default_manager.filter(pk=pk)
    with transaction.atomic():
        if not claimable.filter(pk=pk).update(state=doing, attempt=F("attempt") + 1, **claim_fields()):
            return None
        number = rows.values_list("attempt", flat=True).get()
    annotate(**{"job.kind": str(claimable.model._meta.verbose_name), "job.id": pk, "job.attempt": number})
    return Attempt(claimable.model, pk, number, doing, queued)


def requeue_unresponsive(doing: QuerySet[Row], *, queued: str, lost: str = "worker") -> list[Row]:
    """Requeue jobs without a heartbeat. Return those that failed because they lost too many workers."""
    quiet = doing.filter(touched_at__lt=timezone.now() - QUIET)
    failed = []
    # Queried first: this runs every second, and even an UPDATE without matches takes SQLite's write lock.
    for job in quiet:
        row = quiet.filter(pk=job.pk)
        if row.filter(attempt__lt=MAX_ATTEMPTS).update(state=queued):
            continue
        if _fail(row.filter(attempt__gte=MAX_ATTEMPTS), f"Its {lost} was lost {MAX_ATTEMPTS} times."):
            failed.append(job)
    return failed


def let_go_of_all() -> None:
    """Let the next worker take over every job in progress at once. Call this only while no process runs."""
    for model in apps.get_models():
        if issubclass(model, RetriedJob):
            rows: QuerySet[Any] = model._default_manager.all()
            rows.filter(state__in=IN_PROGRESS).update(touched_at=F("touched_at") - QUIET)


def _fail(rows: QuerySet[Any], message: str) -> int:
    ended = {"finished_at": timezone.now()} if hasattr(rows.model, "finished_at") else {}
    return rows.update(state="failed", message=message, touched_at=timezone.now(), **ended)
