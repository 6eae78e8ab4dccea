"""Load the files of a dataset one at a time: the upload whose turn it is has the only version that is loading."""

import time

from django.db import IntegrityError, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from apps.gym import process_exit
from apps.gym.request_refusals import Refusal
from apps.tasks.models import Dataset, DatasetVersion, Task, Upload

TURN_SECONDS = 600.0
"""How long a command or an import waits for its turn."""
ANSWER_SECONDS = 30.0
"""How long a request does."""
LOOK_EVERY_SECONDS = 0.05
SIGN_OF_LIFE_SECONDS = 2.0
DELETED_ROWS = 200
"""Tasks that are deleted at once. SQLite may overwrite what it deletes, which takes as much of its log: a disk that is
nearly full has little space for that."""


class UploadTakenAway(Exception):
    """The upload is no longer loading here: it was given up as quiet while it still worked."""


class DatasetIsBusy(Refusal, status=409, code="busy"):
    """Another file is being loaded into the dataset, or what this one was compared with is gone: later it may go."""


def owned(upload: Upload) -> QuerySet[Upload]:
    """The upload's row, as long as this attempt is the one that loads it."""
    return Upload.objects.filter(pk=upload.pk, state=Upload.State.LOADING, attempt=upload.attempt)


def take_turn(upload: Upload, *, patience: float) -> DatasetVersion:
    """A loading version of the upload's dataset, with the next free number, as soon as no other is loading.

    It holds the dataset until it is published or deleted: the version before cannot change meanwhile. Raises
    DatasetIsBusy after `patience` seconds.
    """
    end = time.monotonic() + patience
    last_sign = time.monotonic()
    while True:
        if (version := _try(upload)) is not None:
            return version
        if time.monotonic() >= end:
            raise DatasetIsBusy(f"Another file is being loaded into {upload.dataset.slug}: wait for its end.")
        process_exit.check()
        if time.monotonic() - last_sign > SIGN_OF_LIFE_SECONDS:
            last_sign = time.monotonic()
            owned(upload).update(touched_at=timezone.now())
        time.sleep(LOOK_EVERY_SECONDS)


def delete_version(version: DatasetVersion) -> None:
    """Remove a version that nobody has seen, in short transactions."""
    tasks = Task.objects.filter(version=version).order_by()
    while batch := list(tasks.values_list("pk", flat=True)[:DELETED_ROWS]):
        # No rollout, pair or comment can point at a task that was never visible: no need to look for them.
        Task.objects.filter(pk__in=batch)._raw_delete(using=tasks.db)
        # What stays is an orphan, which the next sweep finds.
        process_exit.check()
    version.delete()


def check_base(dataset: Dataset, base: DatasetVersion | None) -> None:
    """Raises DatasetIsBusy where the rows were compared with a version that is no longer the latest: only a deletion
    can do that to whose turn it is."""
    if dataset.latest_version() != base:
        raise DatasetIsBusy(f"A version of {dataset.slug} was deleted while the file was loaded: load it again.")


def wait_for_marks(base: DatasetVersion) -> None:
    """Whoever marks tasks of it has ended, and from now on is refused: the next version has every mark of it."""
    with transaction.atomic():
        list(DatasetVersion.objects.select_for_update().filter(pk=base.pk).values_list("pk"))


def check_nothing_follows(version: DatasetVersion) -> None:
    """Raises DatasetIsBusy where a version that takes its marks from this one is being loaded. The caller has locked
    it."""
    later = DatasetVersion.objects.filter(dataset=version.dataset_id, number__gt=version.number)
    states = dict(later.order_by("number").values_list("number", "state"))
    loading = [number for number, state in states.items() if state == DatasetVersion.State.LOADING]
    if loading and DatasetVersion.State.READY not in states.values():
        raise DatasetIsBusy(
            f"Version {loading[0]} of {version.dataset.slug} is being loaded and takes over what the tasks of version "
            f"{version.number} are marked with: nothing was marked. Mark them there when it is loaded."
        )


def _try(upload: Upload) -> DatasetVersion | None:
    versions = DatasetVersion.objects.filter(dataset=upload.dataset_id)
    # Looked at first: a try that fails takes SQLite's only write lock for nothing.
    if versions.filter(state=DatasetVersion.State.LOADING).exists():
        return None
    last = versions.aggregate(last=Max("number"))["last"] or 0
    last = max(last, Dataset.objects.values_list("last_number", flat=True).get(pk=upload.dataset_id))
    try:
        with transaction.atomic():
            version = DatasetVersion.objects.create(dataset=upload.dataset, number=last + 1)
            # Together: a loading version that no loading upload has is what somebody left behind.
            if not owned(upload).update(version=version, touched_at=timezone.now()):
                raise UploadTakenAway(f"{upload} was given up before it began")
    except IntegrityError:
        return None  # another was first
    return version
