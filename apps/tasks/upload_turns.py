"""Load the files of a dataset one at a time: only the upload whose turn it is has a loading version."""

import time

from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from apps.accounts.outages import release_connection
from apps.gym import process_exit
from apps.gym.request_refusals import Refusal
from apps.tasks.models import Dataset, DatasetVersion, Task, Upload
from apps.tasks.stored_images import delete_unused_images

TURN_SECONDS = 600.0
"""How long a command or an import waits for its turn."""
ANSWER_SECONDS = 30.0
"""How long a request waits for its turn."""
POLL_SECONDS = 0.05
HEARTBEAT_SECONDS = 2.0
DELETED_ROWS = 200
"""Tasks deleted per transaction.

SQLite may overwrite deleted rows, which takes the same space in its log. A nearly full disk has little.
"""


class UploadTakenAway(Exception):
    """Raised if another worker took over the upload."""


class DatasetIsBusy(Refusal, status=409, code="busy"):
    """Raised if another upload to the dataset is in progress, or its base version was deleted. Retry later."""


def owned(upload: Upload) -> QuerySet[Upload]:
    """Return a queryset of the upload, empty if another attempt owns it."""
    return Upload.objects.filter(pk=upload.pk, state=Upload.State.LOADING, attempt=upload.attempt)


def take_turn(upload: Upload, *, patience: float) -> DatasetVersion:
    """Wait for the turn, and return a loading version with the next number.

    It blocks the dataset until it is published or deleted, so the previous version cannot change. Raise DatasetIsBusy
    after `patience` seconds.
    """
    end = time.monotonic() + patience
    last_heartbeat = time.monotonic()
    while True:
        if (version := _try(upload)) is not None:
            return version
        if time.monotonic() >= end:
            raise DatasetIsBusy(f"Another upload to {upload.dataset.slug} is in progress. Wait until it is finished.")
        process_exit.check()
        if time.monotonic() - last_heartbeat > HEARTBEAT_SECONDS:
            last_heartbeat = time.monotonic()
            owned(upload).update(touched_at=timezone.now())
        release_connection()
        time.sleep(POLL_SECONDS)


def delete_version(version: DatasetVersion) -> None:
    """Delete an invisible version, in short transactions."""
    tasks = Task.objects.filter(version=version).order_by()
    while batch := list(tasks.values_list("pk", flat=True)[:DELETED_ROWS]):
        # Tasks that were never visible have no rollouts, pairs or comments, so these are not checked.
        Task.objects.filter(pk__in=batch)._raw_delete(using=tasks.db)
        # The next sweep deletes the rest.
        process_exit.check()
    version.delete()
    delete_unused_images()


def check_base(dataset: Dataset, base: DatasetVersion | None) -> None:
    """Raise DatasetIsBusy if `base` is no longer the latest version, which means that it was deleted."""
    if dataset.latest_version() != base:
        raise DatasetIsBusy(f"A version of {dataset.slug} was deleted while the file was loaded: load it again.")


def wait_for_marks(base: DatasetVersion) -> None:
    """Wait for concurrent mark changes. Later ones are rejected, so the next version copies all marks."""
    with transaction.atomic():
        list(DatasetVersion.objects.select_for_update().filter(pk=base.pk).values_list("pk"))


def check_nothing_follows(version: DatasetVersion) -> None:
    """Raise DatasetIsBusy if a version that copies marks of this one is being loaded. The caller must hold the lock."""
    later = DatasetVersion.objects.filter(dataset=version.dataset_id, number__gt=version.number)
    states = dict(later.order_by("number").values_list("number", "state"))
    loading = [number for number, state in states.items() if state == DatasetVersion.State.LOADING]
    if loading and DatasetVersion.State.READY not in states.values():
        raise DatasetIsBusy(
            f"Version {loading[0]} of {version.dataset.slug} is being loaded from version {version.number}. "
            "Nothing was changed. Change the tasks when it is loaded."
        )


def _try(upload: Upload) -> DatasetVersion | None:
    versions = DatasetVersion.objects.filter(dataset=upload.dataset_id)
    # Queried first: even a failing INSERT takes SQLite's write lock.
    if versions.filter(state=DatasetVersion.State.LOADING).exists():
        return None
    last = versions.aggregate(last=Max("number"))["last"] or 0
    last = max(last, Dataset.objects.values_list("last_number", flat=True).get(pk=upload.dataset_id))
    try:
        with transaction.atomic():
            version = DatasetVersion.objects.create(dataset=upload.dataset, number=last + 1)
            # In one transaction: a loading version without a loading upload would be swept.
            if not owned(upload).update(version=version, touched_at=timezone.now()):
                raise UploadTakenAway(f"{upload} was cancelled before it started")
    except IntegrityError:
        return None  # another upload was faster
    return version
