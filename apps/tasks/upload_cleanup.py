"""Clean up after lost workers and abandoned uploads, and delete old files."""

import re
import time
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.tasks.models import DatasetVersion, Upload
from apps.tasks.received_files import parts_file
from apps.tasks.upload_jobs import MAX_ATTEMPTS
from apps.tasks.upload_turns import delete_version

QUIET_LOADING = timedelta(minutes=2)
"""Sixty missed heartbeats. A worker that was only suspended then finds its upload taken over, and stores nothing."""
QUIET_WAITING = timedelta(hours=24)
"""How long an upload may wait for parts, a mapping or a commit."""
FILES_EVERY_SECONDS = 600.0

_last_sweep: list[float] = []


@background_job(every=15.0, on_full_disk=True)
def sweep_uploads() -> bool:
    """Background job: requeue or fail one upload of a lost worker, or discard an abandoned one.

    Return True if there was one.
    """
    now = timezone.now()
    quiet = Upload.objects.filter(state=Upload.State.LOADING, touched_at__lt=now - QUIET_LOADING)
    waiting = [Upload.State.RECEIVING, Upload.State.DRAFT, Upload.State.CHECKED]
    forgotten = Upload.objects.filter(state__in=waiting, touched_at__lt=now - QUIET_WAITING)
    if _requeue(quiet) or _discard_abandoned(quiet) or _discard_abandoned(forgotten):
        return True
    _sweep_files()
    return _sweep_versions()


def _requeue(quiet: QuerySet[Upload]) -> bool:
    upload = quiet.filter(attempt__gte=1, attempt__lt=MAX_ATTEMPTS).order_by("id").first()
    if upload is None or not parts_file(upload).exists():
        return False
    # The condition is repeated in the UPDATE, so that only one process requeues the row, and a heartbeat wins.
    if not quiet.filter(pk=upload.pk, attempt=upload.attempt).update(state=Upload.State.QUEUED, version=None):
        return False
    if upload.version:
        delete_version(upload.version)
    return True


def _discard_abandoned(candidates: QuerySet[Upload]) -> bool:
    upload = candidates.order_by("id").first()
    if upload is None or not candidates.filter(pk=upload.pk).update(
        state=Upload.State.FAILED, message="The upload stopped before its end. Upload the file again."
    ):
        return False
    parts_file(upload).unlink(missing_ok=True)
    if upload.version:
        delete_version(upload.version)
    return True


def _sweep_versions() -> bool:
    """Delete loading versions without a loading upload.

    Interrupted workers and sweeps leave them, and they block the dataset. Their age does not matter, because a version
    is linked to its upload when it is created.
    """
    left = DatasetVersion.objects.filter(state=DatasetVersion.State.LOADING)
    orphan = left.exclude(uploads__state=Upload.State.LOADING).first()
    if orphan:
        delete_version(orphan)
    return orphan is not None


def _sweep_files() -> None:
    """Delete files that are not needed any more: received files of finished uploads, and expired rejected rows."""
    if _last_sweep and time.monotonic() - _last_sweep[0] < FILES_EVERY_SECONDS:
        return
    _last_sweep[:] = [time.monotonic()]
    sweep_files()


def sweep_files() -> int:
    """Delete expired files. Return their number."""
    folder = Path(settings.UPLOADS_DIR)
    now = time.time()
    going_on = {Upload.State.RECEIVING, Upload.State.DRAFT, Upload.State.QUEUED, Upload.State.LOADING, "checked"}
    unneeded = [
        path
        for path in _find_numbered(folder, ".parts")
        if now - path.stat().st_mtime > QUIET_WAITING.total_seconds() and _state_of(path) not in going_on
    ]
    unneeded += [
        path
        for path in _find_numbered(folder, ".rejected.jsonl")
        if now - path.stat().st_mtime > settings.KEEP_REJECTED_DAYS * 86_400 or _state_of(path) is None
    ]
    for path in unneeded:
        path.unlink(missing_ok=True)
    return len(unneeded)


def _find_numbered(folder: Path, ending: str) -> list[Path]:
    """Return the files that are named like those of an upload. Other files in the folder are not GymWeb's.

    Before the first upload, the folder may be missing.
    """
    numbered = re.compile(rf"[0-9]+{re.escape(ending)}")
    return [path for path in folder.glob("*") if numbered.fullmatch(path.name)]


def _state_of(path: Path) -> str | None:
    number = int(path.name.split(".", 1)[0])
    return Upload.objects.filter(pk=number).values_list("state", flat=True).first()
