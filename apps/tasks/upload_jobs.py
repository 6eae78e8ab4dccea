"""Load a file of tasks as a new dataset version, completely or not at all.

An upload passes through these modules:

received_files.py   stores the file, whole or in parts
upload_jobs.py      claims the upload, in a worker or a request
upload_turns.py     waits until no other file is loaded into the dataset, then creates the version
file_tasks.py       reads the tasks of the file
version_loading.py  stores them in the version
upload_jobs.py      publishes the version, rejects the file, or requeues the upload
"""

import logging
from contextlib import nullcontext, suppress
from typing import Any

from django.db import Error, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.disk_space import free_database_bytes, is_disk_full, note_error
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import claim_fields, is_due, requeue_if_transient, retry_until_available
from apps.accounts.models import User
from apps.accounts.outages import is_transient
from apps.accounts.space_waits import SpaceWaits, explain_waiting
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.gym.storable import clean_line
from apps.gym.tasks.files.file_limits import FILE_CODES, FileRefused, Readable
from apps.tasks.gold_checks import can_check, check_sample
from apps.tasks.models import Dataset, DatasetVersion, Upload
from apps.tasks.received_files import create_upload, discard_files, parts_file
from apps.tasks.rejected_rows import Rejects, rejects_file
from apps.tasks.row_matching import SeenKeys
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_turns import (
    ANSWER_SECONDS,
    TURN_SECONDS,
    DatasetIsBusy,
    UploadTakenAway,
    check_base,
    delete_version,
    owned,
    take_turn,
    wait_for_marks,
)
from apps.tasks.version_loading import Loader

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
_waits = SpaceWaits(free_database_bytes)


class NotWaiting(Refusal, status=409, code="not-waiting"):
    """Raised if the upload is in the wrong state for the operation."""


def upload_file(
    *,
    dataset: Dataset,
    stream: Readable,
    filename: str,
    choices: Choices | None = None,
    user: User | None = None,
    patience: float = TURN_SECONDS,
    samples_gold: bool = True,
) -> Upload:
    """Read the stream to its end and load it in this process.

    Invalid content does not raise: check state and errors of the returned upload. Raises DatasetIsBusy if other uploads
    block the dataset for longer than `patience` seconds. With `samples_gold`, score the gold answers of the first
    tasks before returning, for at most a few seconds.
    """
    upload = create_upload(dataset=dataset, filename=filename, choices=choices, user=user, state=Upload.State.LOADING)
    _load(upload, stream, patience=patience)
    if samples_gold and upload.version is not None:
        check_sample(upload.version)
    return upload


def queue_upload(*, upload: Upload, choices: Choices) -> Upload:
    """Queue an uploaded file with these options. With `check_only`, it is only validated.

    Accepts drafts, validated uploads, and rejected ones whose file still exists. Raise NotWaiting and ChoiceRefused.
    """
    if not parts_file(upload).exists():
        raise NotWaiting("The file was deleted. Upload it again.")
    states = [Upload.State.DRAFT, Upload.State.CHECKED, Upload.State.REJECTED]
    changed = Upload.objects.filter(pk=upload.pk, state__in=states).update(
        state=Upload.State.QUEUED,
        attempt=0,
        errors=[],
        message="",
        counts={},
        lines=0,
        accepted=0,
        rejected=0,
        read_bytes=0,
        touched_at=timezone.now(),
        **choices.as_fields(),
    )
    upload.refresh_from_db()
    if not changed:
        raise NotWaiting(f"This upload is {upload.get_state_display()}.")
    return upload


def can_be_loaded(upload: Upload) -> bool:
    """Return True if the upload can still be loaded: it is not loaded yet, and not every row is invalid."""
    if upload.state == Upload.State.REJECTED:
        has_invalid_rows = not upload.over_limit and upload.errors[0]["code"] not in FILE_CODES
        return has_invalid_rows and 0 < upload.rejected < upload.lines
    return upload.state in {Upload.State.DRAFT, Upload.State.CHECKED}


def explain_wait(upload: Upload) -> str:
    """Return the message of the upload, or why it is waiting if a disk is full."""
    return upload.message or (explain_waiting() if upload.state == Upload.State.QUEUED else "")


def discard_upload(*, upload: Upload, user: User | None = None) -> None:
    """Discard an upload that is not loaded yet, and its file. Raise NotWaiting."""
    kept = [Upload.State.LOADING, Upload.State.READY]
    with transaction.atomic():
        gone, _ = Upload.objects.filter(pk=upload.pk).exclude(state__in=kept).delete()
        if gone:
            record(user=user, action="upload.discard", target=upload)
    if not gone:
        upload.refresh_from_db()
        raise NotWaiting(f"This upload is {upload.get_state_display()}.")
    _waits.forget(upload.pk)
    discard_files(upload)


def load_now(*, upload: Upload) -> Upload:
    """Load a queued file in this process and return the upload.

    The upload stays queued for a worker if another upload blocks the dataset, or after a transient database error.
    """
    if (upload_now := _claim(upload.pk)) is not None:
        try:
            _load_received(upload_now, patience=ANSWER_SECONDS)
        except Exception as problem:
            if not (isinstance(problem, DatasetIsBusy) or is_transient(problem) or is_disk_full(problem)):
                raise
            logger.warning("upload %s is left to a worker: %s", upload.pk, problem)
    upload.refresh_from_db()
    return upload


@background_job(thread="datasets", waiting=lambda: Upload.objects.filter(state=Upload.State.QUEUED))
def load_queued_upload() -> bool:
    """Background job: load one queued file. Return True if there was one."""
    queued = Upload.objects.filter(is_due(), state=Upload.State.QUEUED).exclude(pk__in=_waits.waiting())
    # A busy dataset must not delay files of other datasets. Validation does not block a dataset.
    busy = DatasetVersion.objects.filter(dataset=OuterRef("dataset"), state=DatasetVersion.State.LOADING)
    queued = queued.filter(Q(check_only=True) | ~Exists(busy))
    waiting = queued.order_by("id").values_list("pk", flat=True).first()
    if waiting is None:
        return False
    if (upload := _claim(waiting)) is not None:
        try:
            _load_received(upload, patience=0)
        except (DatasetIsBusy, process_exit.Leaving) as reason:
            logger.info("upload %s is left to another attempt: %r", upload.pk, reason)
        except Exception as problem:
            if isinstance(problem, UploadTakenAway):
                logger.warning("upload %s was taken over while attempt %s loaded it", upload.pk, upload.attempt)
            elif is_disk_full(problem):
                logger.warning("upload %s waits for disk space: %s", upload.pk, problem)
            elif not is_transient(problem):
                # Users see the message in the row; the log has the traceback.
                logger.exception("upload %s failed", upload.pk)
    return True


def _claim(upload_id: int) -> Upload | None:
    with transaction.atomic():
        claim = {"state": Upload.State.LOADING, "attempt": F("attempt") + 1, **claim_fields()}
        if not Upload.objects.filter(pk=upload_id, state=Upload.State.QUEUED).update(**claim):
            return None
        return Upload.objects.select_related("dataset__environment").get(pk=upload_id)


def _load_received(upload: Upload, *, patience: float) -> None:
    path = parts_file(upload)
    try:
        with path.open("rb") as file:
            _load(upload, file, patience=patience)
    except FileNotFoundError:
        message = "The uploaded file is missing. Give web process and worker the same GYMWEB_VAR, then upload it again."
        owned(upload).update(state=Upload.State.FAILED, message=message)
    else:
        if not can_be_loaded(upload):
            path.unlink(missing_ok=True)
        if upload.version is not None:
            check_sample(upload.version)


def _load(upload: Upload, stream: Readable, *, patience: float) -> None:
    """Wait for other uploads of the dataset, store the tasks, then publish the version or reject the file."""
    version: DatasetVersion | None = None
    loader: Loader | None = None
    try:
        if not upload.check_only:
            version = take_turn(upload, patience=patience)
        # Read only now: the upload before this one may have created a version.
        base = upload.dataset.latest_version()
        if base and version:
            wait_for_marks(base)
        with Rejects(rejects_file(upload)) as rejects, SeenKeys() as seen:
            try:
                loader = Loader(upload=upload, version=version, base=base, stream=stream, rejects=rejects, seen=seen)
                loader.load()
            except FileRefused as refused:
                _reject(upload, version, rejects, rejects.prepend(refused), over_limit=refused.limit)
            else:
                if reason := loader.find_refusal():
                    _reject(upload, version, rejects, reason)
                else:
                    _publish(upload, version, base, loader)
    except BaseException as broken:
        # After any error, no partial version may remain. If deleting fails, a sweep retries.
        with suppress(Error):
            _end_failed(upload, broken, needed=loader.expected_bytes() if loader else 0)
        # On a full disk, a sweep deletes it later (upload_cleanup.py).
        with suppress(Error) if note_error(broken) else nullcontext():
            if version is not None:
                delete_version(version)
        raise
    _waits.forget(upload.pk)
    upload.refresh_from_db()


def _reject(
    upload: Upload, version: DatasetVersion | None, rejects: Rejects, reason: str, *, over_limit: str = ""
) -> None:
    if version is not None:
        delete_version(version)
    owned(upload).update(
        state=Upload.State.REJECTED,
        version=None,
        accepted=0,
        rejected=rejects.count,
        errors=rejects.first,
        over_limit=over_limit[:64],
        message=cut_clean(reason, 500),
        touched_at=timezone.now(),
    )


@transaction.atomic
def _publish(upload: Upload, version: DatasetVersion | None, base: DatasetVersion | None, loader: Loader) -> None:
    """Finish the upload, and publish its version unless it was only validated."""
    loader.report(
        state=Upload.State.READY if version else Upload.State.CHECKED,
        errors=loader.rejects.first,
        # Names of columns may hold characters that cannot be stored.
        message=clean_line(cut_clean(loader.remarks, 500), 500),
        received_bytes=upload.received_bytes or loader.tasks.bytes_read,
    )
    if version is None:
        return
    check_base(upload.dataset, base)
    counts = {name: loader.counts[name] for name in ("new", "updated", "unchanged", "removed")}
    if upload.mode == Upload.Mode.UPSERT and base is not None:
        counts["unchanged"] = base.task_count - counts["updated"]
    DatasetVersion.objects.filter(pk=version.pk).update(
        state=DatasetVersion.State.READY,
        task_count=loader.task_count,
        content_hash=loader.content_hash,
        final_newline=loader.final_newline,
        note=upload.note,
        base=base,
        changes=counts,
        metrics=loader.metrics.figures(),
        gold_next=0 if can_check(upload.dataset.environment) else None,
    )
    detail: dict[str, Any] = {"upload": upload.pk, "mode": upload.mode, "tasks": loader.task_count}
    record(user=upload.created_by, action="dataset_version.create", target=version, **detail)


def _end_failed(upload: Upload, broken: BaseException, *, needed: int) -> None:
    """Requeue or fail an upload whose attempt raised.

    It is requeued if its file is stored and the cause is temporary: a full disk, a database outage, a busy dataset or a
    shutdown. Otherwise it fails.
    """
    # The attempt does not count.
    queued = {"state": Upload.State.QUEUED, "attempt": F("attempt") - 1, "version": None}
    keeps_file = upload.attempt > 0
    if keeps_file and is_disk_full(broken):
        _waits.put(upload.pk, needed)
        queued["message"] = _waits.explain(upload.pk)
        retry_until_available(lambda: owned(upload).update(**queued))
    elif keeps_file and isinstance(broken, process_exit.Leaving | DatasetIsBusy):
        owned(upload).update(**queued)
    elif not (keeps_file and requeue_if_transient(owned(upload), broken, **queued)):
        message = "Loading failed; see the server log. Upload the file again."
        if is_disk_full(broken):
            message = f"The disk is full. Nothing was stored. Upload the file again when there is space. {broken}"
        elif isinstance(broken, DatasetIsBusy):
            message = str(broken)
        owned(upload).update(state=Upload.State.FAILED, message=cut_clean(message, 500))
