"""Delete objects with many rows in a worker, in short transactions, with progress."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.db import IntegrityError, models
from django.db.models import PROTECT, Model, ProtectedError, QuerySet
from django.utils import timezone

from apps.accounts.job_retries import RetriedJob, claim_fields, is_due, requeue_if_transient
from apps.accounts.models import user_column
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.tasks.fenced_jobs import QUIET

logger = logging.getLogger(__name__)


class DeletionJob(RetriedJob):
    """A deletion job. Its row is kept as a record."""

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        DELETING = "deleting", "deleting"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    deleted = models.PositiveIntegerField(default=0)
    message = models.CharField(max_length=500, blank=True)
    created_by = user_column()

    name: "models.CharField[str, str]"
    total: "models.PositiveIntegerField[int, int]"

    class Meta:
        abstract = True
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"deletion of {self.name} ({self.state})"

    @property
    def is_unfinished(self) -> bool:
        return self.state in {self.State.QUEUED, self.State.DELETING}

    @property
    def share(self) -> float:
        return min(1.0, self.deleted / self.total) if self.total else 0.0


UNFINISHED_DELETIONS = [DeletionJob.State.QUEUED, DeletionJob.State.DELETING]

Row = TypeVar("Row", bound=DeletionJob)


class StillInUse(Refusal, status=409, code="in-use"):
    """Raised if other objects use the tasks. The message counts them."""


class AlreadyBeingDeleted(Refusal, status=409, code="being-deleted"):
    """Raised if the object is being deleted, or an upload is being loaded into it."""


def find_references(what: Model) -> dict[str, int]:
    """Return the objects that prevent deleting a dataset or version: numbers by plural name."""
    found = {}
    for relation in what._meta.related_objects:
        related: Any = relation
        if related.on_delete is PROTECT:
            count = related.related_model._base_manager.filter(**{related.field.name: what}).count()
            if count:
                meta = related.related_model._meta
                found[str(meta.verbose_name if count == 1 else meta.verbose_name_plural)] = count
    return found


def refuse_losses(references: Mapping[str, int], of: object) -> None:
    """Raise StillInUse if there are references to the object. `of` names it."""
    if references:
        counted = " and ".join(f"{count:,} {name}" for name, count in references.items())
        them = "it" if sum(references.values()) == 1 else "them"
        raise StillInUse(f"{of} is used by {counted}. Delete {them} first.")


def run_next_deletion(
    deletions: QuerySet[Row], delete: Callable[[Row], None], restore: Callable[[Row], None], *, lost: str
) -> bool:
    """Run one queued deletion. Return True if there was one.

    If another object started to use the tasks in the meantime, `restore` undoes the hiding.
    """
    state = DeletionJob.State
    quiet = deletions.filter(state=state.DELETING, touched_at__lt=timezone.now() - QUIET)
    if quiet.exists():
        quiet.update(state=state.QUEUED)
    queued = deletions.filter(is_due(), state=state.QUEUED)
    deletion = queued.order_by("id").first()
    if deletion is None:
        return False
    if not queued.filter(pk=deletion.pk).update(state=state.DELETING, **claim_fields()):
        return True
    row = deletions.filter(pk=deletion.pk)
    ended: dict[str, Any] = {"state": state.DONE}
    try:
        delete(deletion)
    except process_exit.Leaving:
        row.update(state=state.QUEUED)
        raise
    except (StillInUse, ProtectedError, IntegrityError) as problem:
        message = str(problem) if isinstance(problem, StillInUse) else f"Other objects refer to its {lost}."
        restore(deletion)
        ended = {"state": state.FAILED, "message": cut_clean(message, 500)}
    except Exception as problem:
        if requeue_if_transient(row.filter(state=state.DELETING), problem, state=state.QUEUED):
            return True
        logger.exception("%s %s failed", deletion._meta.verbose_name, deletion.pk)
        ended = {"state": state.FAILED, "message": cut_clean(f"{type(problem).__name__}: {problem}", 500)}
    row.filter(state=state.DELETING).update(**ended, touched_at=timezone.now())
    return True
