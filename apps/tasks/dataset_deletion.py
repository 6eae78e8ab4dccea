"""Delete datasets and versions in a worker, in short transactions, with progress."""

from django.db import IntegrityError, transaction
from django.db.models import F, Model, QuerySet
from django.db.models.functions import Greatest

from apps.accounts.audit_log import record
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import progress_fields
from apps.accounts.models import User
from apps.gym import process_exit
from apps.tasks.deletion_jobs import (
    UNFINISHED_DELETIONS,
    AlreadyBeingDeleted,
    find_references,
    refuse_losses,
    run_next_deletion,
)
from apps.tasks.models import Dataset, DatasetVersion, Deletion, Task, Upload
from apps.tasks.received_files import discard_files
from apps.tasks.stored_images import delete_unused_images

CHUNK_ROWS = 2000


def queue_deletion(*, dataset: Dataset, version: DatasetVersion | None = None, user: User | None = None) -> Deletion:
    """Queue a deletion. The object is hidden immediately. Raise StillInUse and AlreadyBeingDeleted."""
    what: Model = version or dataset
    refuse_losses(find_references(what), what)
    if version is None and dataset.uploads.filter(state__in=[Upload.State.QUEUED, Upload.State.LOADING]).exists():
        raise AlreadyBeingDeleted(f"An upload to {dataset.slug} is in progress. Wait until it is finished.")
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
            # Numbers of deleted versions are never reused.
            last = Greatest(F("last_number"), max(numbers, default=0))
            Dataset.objects.filter(pk=dataset.pk).update(last_number=last)
            record(user=user, action="dataset.delete" if version is None else "dataset_version.delete", target=what)
    except IntegrityError:
        raise AlreadyBeingDeleted(f"{dataset.slug} or one of its versions is already being deleted.") from None
    return deletion


@background_job(
    thread="datasets", waiting=lambda: Deletion.objects.filter(state__in=UNFINISHED_DELETIONS), on_full_disk=True
)
def delete_next() -> bool:
    """Background job: run one deletion. Return True if there was one."""
    return run_next_deletion(Deletion.objects.select_related("dataset", "version"), _delete, _restore, lost="tasks")


def _versions(deletion: Deletion) -> "QuerySet[DatasetVersion]":
    if deletion.whole:
        return DatasetVersion.objects.filter(dataset=deletion.dataset_id)
    return DatasetVersion.objects.filter(pk=deletion.version_id or 0)


def _delete(deletion: Deletion) -> None:
    what = deletion.dataset if deletion.whole else deletion.version
    if what is None:
        return  # An earlier attempt has finished it.
    refuse_losses(find_references(what), what)
    for version in _versions(deletion):
        _delete_tasks(deletion, version)
        version.delete()
    if deletion.whole and deletion.dataset:
        for upload in deletion.dataset.uploads.all():
            discard_files(upload)
        deletion.dataset.delete()
    delete_unused_images()


def _delete_tasks(deletion: Deletion, version: DatasetVersion) -> None:
    tasks = Task.objects.filter(version=version).order_by()
    while batch := list(tasks.values_list("pk", flat=True)[:CHUNK_ROWS]):
        with transaction.atomic():
            gone = Task.objects.filter(pk__in=batch)._raw_delete(using=tasks.db)
        Deletion.objects.filter(pk=deletion.pk).update(deleted=F("deleted") + gone, **progress_fields())
        process_exit.check()


def _restore(deletion: Deletion) -> None:
    for version in _versions(deletion).filter(state=DatasetVersion.State.DELETING):
        if version.tasks.count() == version.task_count:
            DatasetVersion.objects.filter(pk=version.pk).update(state=DatasetVersion.State.READY)
