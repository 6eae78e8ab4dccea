"""Receive uploaded files, whole or in parts, for a worker to load."""

import fcntl
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.disk_space import check_folder
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.gym.tasks.files.file_limits import READ_BYTES, Readable
from apps.tasks.models import Dataset, Deletion, Upload
from apps.tasks.rejected_rows import rejects_file
from apps.tasks.upload_choices import Choices, choose_filename

LOOK_AT_DISK_BYTES = 1024**2


class NotReceiving(Refusal, status=409, code="not-receiving"):
    """Raised if the upload accepts no more parts."""


class WrongOffset(Refusal, status=409, code="wrong-offset"):
    """Raised if a part does not start where the previous one ended. `expected` is the right offset."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"The next part of this upload must start at byte {expected:,}.")
        self.expected = expected

    @property
    def members(self) -> dict[str, Any]:
        return {"expected": self.expected}


class PartTooLarge(Refusal, status=413, code="too-large"):
    """Raised if a part, or all parts together, exceed the limit."""


class DatasetIsBeingDeleted(Refusal, status=409, code="being-deleted"):
    """Raised if the dataset is being deleted."""


def create_upload(
    *,
    dataset: Dataset,
    filename: str,
    choices: Choices | None = None,
    draft: bool = False,
    user: User | None = None,
    state: Upload.State = Upload.State.RECEIVING,
) -> Upload:
    """Create an upload that receives parts.

    A draft waits for its column mapping after the last part. Raise ChoiceRefused and DatasetIsBeingDeleted.
    """
    fields = (choices or Choices()).as_fields()
    if dataset.deletions.filter(state__in=[Deletion.State.QUEUED, Deletion.State.DELETING], whole=True).exists():
        raise DatasetIsBeingDeleted(f"The dataset {dataset.slug} is being deleted.")
    name = choose_filename(filename)
    with transaction.atomic():
        upload = Upload.objects.create(
            dataset=dataset, filename=name, created_by=user, state=state, by_hand=draft, **fields
        )
        record(user=user, action="upload.create", target=f"upload {upload.pk}", dataset=dataset.slug, filename=name)
    return upload


def append_part(*, upload: Upload, offset: int, stream: Readable) -> Upload:
    """Append a part of at most settings.UPLOAD_PART_BYTES. Idempotent for the last part."""
    part = stream.read(settings.UPLOAD_PART_BYTES + 1)
    if len(part) > settings.UPLOAD_PART_BYTES:
        raise PartTooLarge(f"A part has at most {settings.UPLOAD_PART_BYTES:,} bytes. Send smaller parts.")
    if offset + len(part) > settings.MAX_BODY_BYTES:
        raise PartTooLarge(f"A file has at most {settings.MAX_BODY_BYTES:,} bytes (GYMWEB_MAX_BODY_BYTES).")
    with open_parts(upload) as file:
        # The row has the received length. Later bytes are left over from a crash and are overwritten.
        upload.refresh_from_db()
        if upload.state != Upload.State.RECEIVING:
            raise NotReceiving(f"This upload is {upload.get_state_display()}. It accepts no more parts.")
        if offset != upload.received_bytes:
            file.seek(offset)
            if offset + len(part) == upload.received_bytes and file.read(len(part)) == part:
                return upload
            raise WrongOffset(upload.received_bytes)
        check_room(len(part))
        file.seek(offset)
        file.truncate()
        file.write(part)
        file.flush()
        upload.received_bytes = offset + len(part)
        upload.save(update_fields=["received_bytes", "touched_at"])
    return upload


def finish_parts(*, upload: Upload) -> Upload:
    """Finish an upload in parts. A worker loads the file, or a user maps its columns first.

    Of two concurrent calls, one is rejected.
    """
    state = Upload.State.DRAFT if upload.by_hand else Upload.State.QUEUED
    claimed = Upload.objects.filter(pk=upload.pk, state=Upload.State.RECEIVING).update(
        state=state, touched_at=timezone.now()
    )
    upload.refresh_from_db()
    if not claimed:
        raise NotReceiving(f"This upload is {upload.get_state_display()}. It accepts no more parts.")
    with open_parts(upload) as file:
        file.truncate(upload.received_bytes)
    return upload


def store_file(
    *,
    dataset: Dataset,
    stream: Readable,
    filename: str,
    choices: Choices | None = None,
    draft: bool = False,
    user: User | None = None,
) -> Upload:
    """Store the stream as a file for a worker to load, or for a user to map first. Raise PartTooLarge and DiskFull."""
    check_room(0)
    upload = create_upload(dataset=dataset, filename=filename, choices=choices, draft=draft, user=user)
    try:
        with open_parts(upload) as file:
            size = 0
            while block := stream.read(READ_BYTES):
                size += len(block)
                if size > settings.MAX_BODY_BYTES:
                    raise PartTooLarge(f"A file has at most {settings.MAX_BODY_BYTES:,} bytes (GYMWEB_MAX_BODY_BYTES).")
                if size // LOOK_AT_DISK_BYTES > (size - len(block)) // LOOK_AT_DISK_BYTES:
                    check_room(0)
                file.write(block)
    except BaseException:
        discard_files(upload)
        upload.delete()
        raise
    Upload.objects.filter(pk=upload.pk).update(received_bytes=size)
    return finish_parts(upload=upload)


def check_room(coming: int) -> None:
    """Raise DiskFull if `coming` more bytes would use the reserve of the disk."""
    folder = Path(settings.UPLOADS_DIR)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(folder, extra=coming)


def parts_file(upload: Upload) -> Path:
    return Path(settings.UPLOADS_DIR) / f"{upload.pk}.parts"


def open_parts(upload: Upload) -> IO[bytes]:
    """Open the file that collects the parts, with an exclusive lock."""
    path = parts_file(upload)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    file = path.open("r+b")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def discard_files(upload: Upload) -> None:
    """Delete the file and its rejected rows."""
    parts_file(upload).unlink(missing_ok=True)
    rejects_file(upload).unlink(missing_ok=True)
