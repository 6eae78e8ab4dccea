"""Upload a task file: a worker reads what was received into a new version of its dataset, which appears complete or not
at all."""

import logging
from contextlib import nullcontext, suppress
from typing import Any

from django.core.exceptions import ValidationError
from django.db import Error, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from apps.accounts.audit_log import describe, record
from apps.accounts.disk_space import database_room, is_disk_full, note_error
from apps.accounts.job_retries import claimed, is_due, put_back, when_database_answers
from apps.accounts.models import User
from apps.accounts.outages import is_transient
from apps.accounts.space_waits import SpaceWaits, explain_waiting
from apps.environments.models import Environment
from apps.gym import process_exit
from apps.gym.redaction.shortening import cut_clean
from apps.gym.request_refusals import Refusal
from apps.gym.slugs import find_slug_problem
from apps.gym.tasks.files.file_limits import FILE_CODES, FileRefused, Readable
from apps.tasks.models import Dataset, DatasetVersion, Upload
from apps.tasks.received_files import create_upload, discard_files, parts_file
from apps.tasks.rejected_rows import Rejects, rejects_file
from apps.tasks.row_matching import Seen
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_turns import ANSWER_SECONDS, TURN_SECONDS, DatasetIsBusy, check_base, take_turn, wait_for_marks
from apps.tasks.version_loading import Loader, UploadTakenAway, delete_version, owned
from apps.tasks.version_metrics import measure_version

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
_waits = SpaceWaits(database_room)
_BROKE_OFF = "Loading broke off; the log says why. Upload the file again."


class NotWaiting(Refusal, status=409, code="not-waiting"):
    """The upload is in no state in which this can be asked of it."""


def create_dataset(
    *, slug: str, name: str, environment: Environment, description: str = "", user: User | None = None
) -> Dataset:
    """A dataset without a version; raises IntegrityError where the slug is taken, and ValidationError where no dataset
    may have it."""
    if problem := find_slug_problem(slug):
        raise ValidationError({"slug": problem})
    with transaction.atomic():
        dataset = Dataset.objects.create(
            slug=slug, name=name, environment=environment, description=description, created_by=user
        )
        record(user=user, action="dataset.create", target=dataset.slug, environment=environment.slug, name=name)
    return dataset


def rename_dataset(
    *, dataset: Dataset, name: str | None = None, description: str | None = None, user: User | None = None
) -> Dataset:
    """What is None stays."""
    before = describe(dataset)
    dataset.name = dataset.name if name is None else name
    dataset.description = dataset.description if description is None else description
    with transaction.atomic():
        dataset.save(update_fields=["name", "description"])
        record(user=user, action="dataset.change", target=dataset.slug, before=before, after=describe(dataset))
    return dataset


def upload_file(
    *,
    dataset: Dataset,
    stream: Readable,
    filename: str,
    choices: Choices | None = None,
    user: User | None = None,
    patience: float = TURN_SECONDS,
) -> Upload:
    """Read the stream to its end and load it, here and now. Bad content does not raise: see the upload's state and
    errors. Raises DatasetIsBusy where other files are being loaded into the dataset for longer than `patience`."""
    upload = create_upload(
        dataset=dataset, filename=filename, choices=choices or Choices(), user=user, state=Upload.State.LOADING
    )
    return _load(upload, stream, patience=patience)


def queue_upload(*, upload: Upload, choices: Choices) -> Upload:
    """Let a worker load a file that is waiting, by these choices; with `check_only` it only counts and checks.

    From a draft, from an earlier check, or after its bad rows had it rejected, as long as its file is kept. Raises
    NotWaiting and ChoiceRefused.
    """
    if not parts_file(upload).exists():
        raise NotWaiting("the file of this upload was not kept: upload it again")
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
        raise NotWaiting(f"this upload is {upload.get_state_display()}")
    return upload


def may_go_on(upload: Upload) -> bool:
    """Whether its file can still be loaded: nobody has, and it has good rows."""
    if upload.state == Upload.State.REJECTED:
        is_of_rows = not upload.over_limit and upload.errors[0]["code"] not in FILE_CODES
        return is_of_rows and 0 < upload.rejected < upload.lines
    return upload.state in {Upload.State.DRAFT, Upload.State.CHECKED}


def explain_wait(upload: Upload) -> str:
    """Return the message of the upload, or why it waits in the queue if a disk is full."""
    return upload.message or (explain_waiting() if upload.state == Upload.State.QUEUED else "")


def discard_upload(*, upload: Upload, user: User | None = None) -> None:
    """Discard an upload that is not loaded yet, with its partial file. Raises NotWaiting."""
    kept = [Upload.State.LOADING, Upload.State.READY]
    with transaction.atomic():
        gone, _ = Upload.objects.filter(pk=upload.pk).exclude(state__in=kept).delete()
        if gone:
            record(user=user, action="upload.discard", target=upload)
    if not gone:
        upload.refresh_from_db()
        raise NotWaiting(f"this upload is {upload.get_state_display()}")
    _waits.forget(upload.pk)
    discard_files(upload)


def load_now(*, upload: Upload) -> Upload:
    """Load a waiting file here, whether or not a worker would; the upload as it is then. It waits for a worker where
    others hold its dataset for long, and after a transient database error."""
    if (claimed := _claim(upload.pk)) is not None:
        try:
            return _load_received(claimed, patience=ANSWER_SECONDS)
        except DatasetIsBusy:
            logger.info("upload %s is left to a worker", upload.pk)
        except Exception as problem:
            if not (is_transient(problem) or is_disk_full(problem)):
                raise
            logger.warning("upload %s is left to a worker: %s", upload.pk, problem)
    upload.refresh_from_db()
    return upload


def load_queued_upload() -> bool:
    """Background job: load one waiting file; says whether there was one."""
    queued = Upload.objects.filter(is_due(), state=Upload.State.QUEUED).exclude(pk__in=_waits.waiting())
    # What cannot be loaded yet must not hold up the files of other datasets. A check needs no turn.
    busy = DatasetVersion.objects.filter(dataset=OuterRef("dataset"), state=DatasetVersion.State.LOADING)
    queued = queued.filter(Q(check_only=True) | ~Exists(busy))
    waiting = queued.order_by("id").values_list("pk", flat=True).first()
    if waiting is None:
        return False
    upload = _claim(waiting)
    if upload is not None:
        try:
            _load_received(upload, patience=0)
        except DatasetIsBusy as busy_now:
            logger.info("upload %s waits: %s", upload.pk, busy_now)
        except process_exit.Leaving:
            logger.info("upload %s is left to another worker", upload.pk)
        except UploadTakenAway:
            logger.warning("upload %s was taken over while attempt %s loaded it", upload.pk, upload.attempt)
        except Exception as problem:
            if is_disk_full(problem):
                logger.warning("upload %s waits for disk space: %s", upload.pk, problem)
            elif not is_transient(problem):
                # The row says that it failed; the log keeps the traceback.
                logger.exception("upload %s failed", upload.pk)
    return True


def _claim(upload_id: int) -> Upload | None:
    with transaction.atomic():
        claim = {"state": Upload.State.LOADING, "attempt": F("attempt") + 1, **claimed()}
        if not Upload.objects.filter(pk=upload_id, state=Upload.State.QUEUED).update(**claim):
            return None
        return Upload.objects.select_related("dataset__environment").get(pk=upload_id)


def _load_received(upload: Upload, *, patience: float) -> Upload:
    path = parts_file(upload)
    try:
        with path.open("rb") as file:
            loaded = _load(upload, file, patience=patience)
    except FileNotFoundError:
        message = "The received file is gone: web process and worker must share GYMWEB_VAR."
        owned(upload).update(state=Upload.State.FAILED, message=message)
        upload.refresh_from_db()
        return upload
    if not may_go_on(loaded):
        path.unlink(missing_ok=True)
    return loaded


def _load(upload: Upload, stream: Readable, *, patience: float) -> Upload:
    version: DatasetVersion | None = None
    loader: Loader | None = None
    try:
        if not upload.check_only:
            version = take_turn(upload, patience=patience)
        # Not before its turn: whose turn it was has made another.
        base = upload.dataset.latest_version()
        if base and version:
            wait_for_marks(base)
        if base and base.metrics is None:
            measure_version(version=base)
        with Rejects(rejects_file(upload)) as rejects, Seen() as seen:
            try:
                loader = Loader(upload=upload, version=version, base=base, stream=stream, rejects=rejects, seen=seen)
                loader.load()
            except FileRefused as refused:
                _refuse(upload, version, rejects, refused)
            else:
                _end(upload, version, base, loader)
    except BaseException as broken:
        # Whatever broke, a full disk or a lost database: half a version must not stay. A sweep repeats what fails here.
        with suppress(Error):
            _break_off(upload, broken, needed=loader.expected_bytes() if loader else 0)
        # What a full disk keeps here a sweep deletes: see upload_cleanup.py.
        with suppress(Error) if note_error(broken) else nullcontext():
            if version is not None:
                delete_version(version)
        raise
    _waits.forget(upload.pk)
    upload.refresh_from_db()
    return upload


def _let_wait(upload: Upload) -> None:
    message = _waits.explain(upload.pk)
    owned(upload).update(state=Upload.State.QUEUED, attempt=F("attempt") - 1, version=None, message=message)


def _break_off(upload: Upload, broken: BaseException, *, needed: int = 0) -> None:
    """End an attempt that raised.

    A full disk, a worker that leaves or a transient database error queues the file again, unless it was read from a
    stream that was not kept.
    """
    keeps_file = upload.attempt > 0
    # Not as an attempt that was lost.
    queued = {"state": Upload.State.QUEUED, "attempt": F("attempt") - 1, "version": None}
    if keeps_file and is_disk_full(broken):
        _waits.put(upload.pk, needed)
        when_database_answers(lambda: _let_wait(upload))
    elif is_disk_full(broken):
        message = f"The disk is full. Nothing was stored. Upload the file again when there is space. {broken}"
        owned(upload).update(state=Upload.State.FAILED, message=cut_clean(message, 500))
    elif isinstance(broken, process_exit.Leaving) or (isinstance(broken, DatasetIsBusy) and keeps_file):
        owned(upload).update(**queued)
    elif isinstance(broken, DatasetIsBusy):
        owned(upload).update(state=Upload.State.FAILED, message=cut_clean(str(broken), 500))
    elif not (keeps_file and put_back(owned(upload), broken, **queued)):
        owned(upload).update(state=Upload.State.FAILED, message=_BROKE_OFF)


def _end(upload: Upload, version: DatasetVersion | None, base: DatasetVersion | None, loader: Loader) -> None:
    if version is None and loader.lines:
        loader.report()
        _finish(upload, Upload.State.CHECKED, loader, message=_remarks(upload, loader))
    elif reason := _reason(upload, loader):
        _reject(upload, version, loader.rejects, reason)
    else:
        assert version is not None
        _publish(upload, version, base, loader)


def _reason(upload: Upload, loader: Loader) -> str:
    """Why the file is refused as a whole, or nothing."""
    rejects = loader.rejects
    if not loader.lines:
        rejects.first.append({"line": 1, "pointer": "", "code": "empty_file", "message": "the file holds no rows"})
        return "The file holds no rows."
    if rejects.count and (upload.on_error == Upload.OnError.REJECT or not loader.accepted):
        first = rejects.first[0]
        were = "was" if rejects.count == 1 else "were"
        lines = f"{rejects.count:,} of {loader.lines:,} lines {were}" if loader.lines > 1 else "The only line was"
        return f"{lines} refused, so nothing was stored. Line {first['line']}: {first['message']}"
    return ""


def _refuse(upload: Upload, version: DatasetVersion | None, rejects: Rejects, refused: FileRefused) -> None:
    """The file could not be read to its end."""
    message = rejects.put_first(line=refused.line, code=refused.code, message=refused.message)
    reason = f"{message[:1].upper()}{message[1:].rstrip('.')}. Nothing was stored."
    _reject(upload, version, rejects, reason, over_limit=refused.limit)


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
def _publish(upload: Upload, version: DatasetVersion, base: DatasetVersion | None, loader: Loader) -> None:
    loader.report()
    check_base(upload.dataset, base)
    counts = {name: loader.counts[name] for name in ("new", "updated", "unchanged", "removed")}
    if upload.mode == Upload.Mode.UPSERT and base is not None:
        counts["unchanged"] = base.task_count - counts["updated"]
    DatasetVersion.objects.filter(pk=version.pk).update(
        state=DatasetVersion.State.READY,
        task_count=loader.task_count,
        content_hash=loader.content_hash,
        note=upload.note,
        base=base,
        changes=counts,
        metrics=loader.metrics.figures(),
    )
    _finish(upload, Upload.State.READY, loader, message=_remarks(upload, loader))
    detail: dict[str, Any] = {"upload": upload.pk, "mode": upload.mode, "tasks": loader.task_count}
    record(user=upload.created_by, action="dataset_version.create", target=version, **detail)


def _finish(upload: Upload, state: Upload.State, loader: Loader, *, message: str) -> None:
    fields = {
        "state": state,
        "errors": loader.rejects.first,
        "message": cut_clean(message, 500),
        "touched_at": timezone.now(),
    }
    if not upload.received_bytes:
        fields["received_bytes"] = loader.bytes_read
    if not owned(upload).update(**fields):
        raise UploadTakenAway(f"{upload} was given up at its end")


def _remarks(upload: Upload, loader: Loader) -> str:
    """What people are told of rows that are loaded all the same."""
    # The dataset may be meant for another environment, or for people to judge.
    lacking = [
        f"No {field} in {number:,} of {loader.accepted:,} tasks: {upload.dataset.environment} cannot verify those."
        for field, number in sorted(loader.lacking.items())
    ]
    return " ".join(filter(None, [*lacking, loader.left_out]))
