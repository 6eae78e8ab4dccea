"""Delete a dataset or one of its versions: visible work of a worker, in short transactions, that really ends with the
rows gone."""

import logging
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import PROTECT, F, Model, ProtectedError, QuerySet
from django.db.models.functions import Greatest
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.job_retries import claimed, is_due, progressed, put_back
from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.tasks.models import Dataset, DatasetVersion, Deletion, Task, Upload
from apps.tasks.received_files import discard_files

logger = logging.getLogger(__name__)

CHUNK_ROWS = 2000
QUIET = timedelta(minutes=5)
"""A deletion without a sign of life for so long has lost its worker."""


class StillInUse(Refusal, status=409, code="in-use"):
    """Something was made of it that would lose its tasks; the text counts what."""


class AlreadyBeingDeleted(Refusal, status=409, code="being-deleted"):
    """Another deletion of the same is under way, or files are still on their way in."""


def queue_deletion(*, dataset: Dataset, version: DatasetVersion | None = None, user: User | None = None) -> Deletion:
    """A deletion that a worker carries out; from now on nobody sees what it deletes. Raises StillInUse and
    AlreadyBeingDeleted."""
    what: Model = version or dataset
    refuse_references(what)
    if version is None and dataset.uploads.filter(state__in=[Upload.State.QUEUED, Upload.State.LOADING]).exists():
        raise AlreadyBeingDeleted(f"A file is being loaded into {dataset.slug}: wait for its end.")
    versions = dataset.versions.filter(pk=version.pk) if version else dataset.versions.all()
    try:
        with transaction.atomic():
            deletion = Deletion.objects.create(
                dataset=dataset,
                version=version,
                name=str(version or dataset.slug),
                whole=version is None,
                total=Task.objects.filter(version__in=versions).count(),
                created_by=user,
            )
            ready = versions.filter(state=DatasetVersion.State.READY)
            numbers = list(ready.values_list("number", flat=True))
            ready.update(state=DatasetVersion.State.DELETING)
            # The number of a deleted version never comes back for other tasks.
            last = Greatest(F("last_number"), max(numbers, default=0))
            Dataset.objects.filter(pk=dataset.pk).update(last_number=last)
            record(user=user, action="dataset.delete" if version is None else "dataset_version.delete", target=what)
    except IntegrityError:
        raise AlreadyBeingDeleted(f"{dataset.slug} or a version of it is being deleted already.") from None
    return deletion


def find_references(what: Model) -> dict[str, int]:
    """What protects a dataset or version from deletion: names of many and how many."""
    found = {}
    for relation in what._meta.related_objects:
        related: Any = relation
        if related.on_delete is PROTECT:
            count = related.related_model._base_manager.filter(**{related.field.name: what}).count()
            if count:
                meta = related.related_model._meta
                found[str(meta.verbose_name if count == 1 else meta.verbose_name_plural)] = count
    return found


def refuse_references(what: Model) -> None:
    """Raise StillInUse where there are any."""
    references = find_references(what)
    if references:
        counted = " and ".join(f"{count:,} {name}" for name, count in references.items())
        them = "it" if sum(references.values()) == 1 else "them"
        raise StillInUse(f"{counted} made of {what} would lose their tasks: delete {them} first.")


def delete_next() -> bool:
    """Background job: carry out one deletion; says whether there was one."""
    now = timezone.now()
    quiet = Deletion.objects.filter(state=Deletion.State.DELETING, touched_at__lt=now - QUIET)
    if quiet.exists():
        quiet.update(state=Deletion.State.QUEUED)
    queued = Deletion.objects.filter(is_due(), state=Deletion.State.QUEUED)
    deletion = queued.select_related("dataset", "version").order_by("id").first()
    if deletion is None:
        return False
    if queued.filter(pk=deletion.pk).update(state=Deletion.State.DELETING, **claimed()):
        _carry_out(deletion)
    return True


def _carry_out(deletion: Deletion) -> None:
    row = Deletion.objects.filter(pk=deletion.pk)
    try:
        _delete(deletion)
    except process_exit.Leaving:
        row.update(state=Deletion.State.QUEUED)
        raise
    except (StillInUse, ProtectedError, IntegrityError) as problem:
        # Something was made of it in the moment before: what is still whole comes back.
        message = str(problem) if isinstance(problem, StillInUse) else "Something refers to its tasks."
        _give_back(deletion)
        row.update(state=Deletion.State.FAILED, message=cut_clean(message, 500), touched_at=timezone.now())
    except Exception as problem:
        if put_back(row.filter(state=Deletion.State.DELETING), problem, state=Deletion.State.QUEUED):
            return
        logger.exception("deletion %s failed", deletion.pk)
        message = cut_clean(f"{type(problem).__name__}: {problem}", 500)
        row.update(state=Deletion.State.FAILED, message=message, touched_at=timezone.now())
    else:
        row.update(state=Deletion.State.DONE, touched_at=timezone.now())


def _versions(deletion: Deletion) -> "QuerySet[DatasetVersion]":
    if deletion.whole:
        return DatasetVersion.objects.filter(dataset=deletion.dataset_id)
    return DatasetVersion.objects.filter(pk=deletion.version_id or 0)


def _delete(deletion: Deletion) -> None:
    what = deletion.dataset if deletion.whole else deletion.version
    if what is None:
        return  # An earlier attempt came to the end.
    refuse_references(what)
    for version in _versions(deletion):
        _delete_tasks(deletion, version)
        version.delete()
    if deletion.whole and deletion.dataset:
        for upload in deletion.dataset.uploads.all():
            discard_files(upload)
        deletion.dataset.delete()


def _delete_tasks(deletion: Deletion, version: DatasetVersion) -> None:
    tasks = Task.objects.filter(version=version).order_by()
    while batch := list(tasks.values_list("pk", flat=True)[:CHUNK_ROWS]):
        with transaction.atomic():
            gone = Task.objects.filter(pk__in=batch)._raw_delete(using=tasks.db)
        Deletion.objects.filter(pk=deletion.pk).update(deleted=F("deleted") + gone, **progressed())
        process_exit.check()


def _give_back(deletion: Deletion) -> None:
    for version in _versions(deletion).filter(state=DatasetVersion.State.DELETING):
        if version.tasks.count() == version.task_count:
            DatasetVersion.objects.filter(pk=version.pk).update(state=DatasetVersion.State.READY)
