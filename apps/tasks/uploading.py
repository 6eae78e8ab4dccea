"""Upload a task file: whole or in parts, into a new version of its dataset that appears complete or not at all."""

import fcntl
from datetime import timedelta
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.environments.models import Environment
from apps.gym.storable import clean_line
from apps.gym.taskfile import Readable
from apps.tasks.loading import Loader, Rejects, delete_version, rejects_file, start_version
from apps.tasks.models import Dataset, DatasetVersion, Upload

QUIET_LOADING = timedelta(minutes=10)
QUIET_RECEIVING = timedelta(hours=24)


class NotReceiving(Exception):
    """A part for an upload that takes no more parts."""


class WrongOffset(Exception):
    """A part that does not begin where the last one ended; `expected` says where that is."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"the next part of this upload begins at byte {expected:,}")
        self.expected = expected


class PartTooLarge(Exception):
    """A part, or the file that the parts make, is over its limit."""


def create_dataset(
    *, slug: str, name: str, environment: Environment, description: str = "", user: User | None = None
) -> Dataset:
    """A dataset without a version; raises IntegrityError where the slug is taken."""
    return Dataset.objects.create(
        slug=slug, name=name, environment=environment, description=description, created_by=user
    )


def upload_file(
    *, dataset: Dataset, stream: Readable, filename: str, on_error: str = "reject", user: User | None = None
) -> Upload:
    """Read the stream to its end and load it. Bad content does not raise: see the upload's state and errors."""
    upload = _create(dataset=dataset, filename=filename, on_error=on_error, user=user, state=Upload.State.LOADING)
    return _load(upload, stream)


def start_parts(*, dataset: Dataset, filename: str, on_error: str = "reject", user: User | None = None) -> Upload:
    return _create(dataset=dataset, filename=filename, on_error=on_error, user=user, state=Upload.State.RECEIVING)


def append_part(*, upload: Upload, offset: int, stream: Readable) -> Upload:
    """Append one part of ≤ settings.UPLOAD_PART_BYTES. Sending the last part once more changes nothing."""
    part = stream.read(settings.UPLOAD_PART_BYTES + 1)
    if len(part) > settings.UPLOAD_PART_BYTES:
        raise PartTooLarge(f"a part has at most {settings.UPLOAD_PART_BYTES:,} bytes")
    if offset + len(part) > settings.MAX_BODY_BYTES:
        raise PartTooLarge(f"a file has at most {settings.MAX_BODY_BYTES:,} bytes (GYMWEB_MAX_BODY_BYTES)")
    with _open_parts(upload) as file:
        # The row says how much was received: what a crash left behind that in the file is written over.
        upload.refresh_from_db()
        if upload.state != Upload.State.RECEIVING:
            raise NotReceiving(f"this upload is {upload.get_state_display()}")
        if offset != upload.received_bytes:
            file.seek(offset)
            if offset + len(part) == upload.received_bytes and file.read(len(part)) == part:
                return upload
            raise WrongOffset(upload.received_bytes)
        file.seek(offset)
        file.truncate()
        file.write(part)
        file.flush()
        upload.received_bytes = offset + len(part)
        upload.save(update_fields=["received_bytes", "touched_at"])
    return upload


def finish_parts(*, upload: Upload) -> Upload:
    """Load what the parts made; of two calls at once one loads and the other is refused."""
    claimed = Upload.objects.filter(pk=upload.pk, state=Upload.State.RECEIVING).update(
        state=Upload.State.LOADING, touched_at=timezone.now()
    )
    upload.refresh_from_db()
    if not claimed:
        raise NotReceiving(f"this upload is {upload.get_state_display()}")
    try:
        with _open_parts(upload) as file:
            file.truncate(upload.received_bytes)
            file.seek(0)
            return _load(upload, file)
    finally:
        _parts_file(upload).unlink(missing_ok=True)


def rejected_path(upload: Upload) -> Path | None:
    """The JSONL file of all refused lines, if there are any."""
    path = rejects_file(upload)
    return path if path.exists() else None


def sweep_uploads() -> bool:
    """Give up one upload that went quiet, with all it left behind. Says whether there was one."""
    now = timezone.now()
    quiet = Upload.objects.filter(state=Upload.State.LOADING, touched_at__lt=now - QUIET_LOADING)
    forgotten = Upload.objects.filter(state=Upload.State.RECEIVING, touched_at__lt=now - QUIET_RECEIVING)
    for candidates in (quiet, forgotten):
        upload = candidates.order_by("id").first()
        # The same condition again in the update: who changes the row owns the sweep, and a sign of life wins.
        if upload and candidates.filter(pk=upload.pk).update(
            state=Upload.State.FAILED, message="Given up: it stopped before its end. Upload the file again."
        ):
            _discard(upload)
            return True
    # What a sweep or a clean-up that died itself has left.
    left = DatasetVersion.objects.filter(state=DatasetVersion.State.LOADING)
    orphan = left.exclude(uploads__state=Upload.State.LOADING).filter(created_at__lt=now - QUIET_LOADING).first()
    if orphan:
        delete_version(orphan)
    return orphan is not None


def _create(*, dataset: Dataset, filename: str, on_error: str, user: User | None, state: Upload.State) -> Upload:
    name = clean_line(Path(filename.replace("\\", "/")).name[-255:], 255)
    return Upload.objects.create(
        dataset=dataset, filename=name, on_error=Upload.OnError(on_error), created_by=user, state=state
    )


def _parts_file(upload: Upload) -> Path:
    return Path(settings.UPLOADS_DIR) / f"{upload.pk}.parts"


def _open_parts(upload: Upload) -> IO[bytes]:
    """The file of the parts, locked until it is closed."""
    path = _parts_file(upload)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    file = path.open("r+b")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _discard(upload: Upload) -> None:
    _parts_file(upload).unlink(missing_ok=True)
    if upload.version:
        delete_version(upload.version)


def _load(upload: Upload, stream: Readable) -> Upload:
    version = start_version(upload.dataset)
    upload.version = version
    upload.save(update_fields=["version", "touched_at"])
    try:
        with Rejects(rejects_file(upload)) as rejects:
            loader = Loader(upload=upload, version=version, stream=stream, rejects=rejects)
            loader.load()
        reason = _reason(upload, loader, rejects)
        if reason:
            _reject(upload, version, rejects, reason)
        else:
            _publish(upload, version, loader)
    except BaseException:
        # Whatever broke, a full disk or a lost database: half a version must not stay. A sweep repeats what fails here.
        Upload.objects.filter(pk=upload.pk, state=Upload.State.LOADING).update(
            state=Upload.State.FAILED, message="Loading broke off; the log says why. Upload the file again."
        )
        delete_version(version)
        raise
    upload.refresh_from_db()
    return upload


def _reason(upload: Upload, loader: Loader, rejects: Rejects) -> str:
    """Why the file is refused as a whole, or nothing."""
    if not loader.lines:
        rejects.first.append({"line": 1, "code": "empty_file", "message": "the file holds no rows"})
        return "The file holds no rows."
    if rejects.count and (upload.on_error == Upload.OnError.REJECT or not loader.accepted):
        first = rejects.first[0]
        were = "was" if rejects.count == 1 else "were"
        lines = f"{rejects.count:,} of {loader.lines:,} lines {were}" if loader.lines > 1 else "The only line was"
        return f"{lines} refused, so nothing was stored. Line {first['line']}: {first['message']}"
    return ""


def _reject(upload: Upload, version: DatasetVersion, rejects: Rejects, reason: str) -> None:
    delete_version(version)
    Upload.objects.filter(pk=upload.pk, state=Upload.State.LOADING).update(
        state=Upload.State.REJECTED,
        version=None,
        accepted=0,
        rejected=rejects.count,
        errors=rejects.first,
        message=reason[:500],
        touched_at=timezone.now(),
    )


@transaction.atomic
def _publish(upload: Upload, version: DatasetVersion, loader: Loader) -> None:
    loader.report()
    DatasetVersion.objects.filter(pk=version.pk).update(
        state=DatasetVersion.State.READY, task_count=loader.accepted, content_hash=loader.content_hash
    )
    upload.state = Upload.State.READY
    # Loaded all the same: the dataset may be meant for another environment, or for people to judge.
    upload.message = " ".join(
        f"No {field} in {number:,} of {loader.accepted:,} tasks: {upload.dataset.environment} cannot verify those."
        for field, number in sorted(loader.lacking.items())
    )
    upload.errors = loader.rejects.first
    upload.save(update_fields=["state", "errors", "message", "touched_at"])
