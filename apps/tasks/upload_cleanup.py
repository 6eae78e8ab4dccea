"""What uploads leave behind: workers that were lost, people who went away, files that have had their time."""

import time
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from apps.tasks.models import DatasetVersion, Upload
from apps.tasks.received_files import parts_file
from apps.tasks.upload_jobs import MAX_ATTEMPTS
from apps.tasks.upload_turns import delete_version

QUIET_LOADING = timedelta(minutes=2)
"""Sixty signs of life that were missed. A worker that only slept finds its upload taken away, and stores nothing."""
QUIET_WAITING = timedelta(hours=24)
"""How long parts, a mapping or a commit may keep an upload waiting."""
FILES_EVERY_SECONDS = 600.0

_last_look: list[float] = []


def sweep_uploads() -> bool:
    """Background job: take one upload away from a lost worker, or give one up that went quiet, with all it left behind.
    Says whether there was one."""
    now = timezone.now()
    quiet = Upload.objects.filter(state=Upload.State.LOADING, touched_at__lt=now - QUIET_LOADING)
    waiting = [Upload.State.RECEIVING, Upload.State.DRAFT, Upload.State.CHECKED]
    forgotten = Upload.objects.filter(state__in=waiting, touched_at__lt=now - QUIET_WAITING)
    if _requeue(quiet) or _give_up(quiet) or _give_up(forgotten):
        return True
    _sweep_files()
    return _sweep_versions()


def _requeue(quiet: QuerySet[Upload]) -> bool:
    upload = quiet.filter(attempt__gte=1, attempt__lt=MAX_ATTEMPTS).order_by("id").first()
    if upload is None or not parts_file(upload).exists():
        return False
    # The same condition again in the update: who changes the row owns the sweep, and a sign of life wins.
    if not quiet.filter(pk=upload.pk, attempt=upload.attempt).update(state=Upload.State.QUEUED, version=None):
        return False
    if upload.version:
        delete_version(upload.version)
    return True


def _give_up(candidates: QuerySet[Upload]) -> bool:
    upload = candidates.order_by("id").first()
    if upload is None or not candidates.filter(pk=upload.pk).update(
        state=Upload.State.FAILED, message="Given up: it stopped before its end. Upload the file again."
    ):
        return False
    parts_file(upload).unlink(missing_ok=True)
    if upload.version:
        delete_version(upload.version)
    return True


def _sweep_versions() -> bool:
    """What a sweep or a clean-up that died itself, or a worker that left, has left: the next file waits for its end.

    No age is asked: an upload has its version from the moment that there is one.
    """
    left = DatasetVersion.objects.filter(state=DatasetVersion.State.LOADING)
    orphan = left.exclude(uploads__state=Upload.State.LOADING).first()
    if orphan:
        delete_version(orphan)
    return orphan is not None


def _sweep_files() -> None:
    """Files that no row needs any more: received ones of uploads that have ended, refused rows after their time."""
    if _last_look and time.monotonic() - _last_look[0] < FILES_EVERY_SECONDS:
        return
    _last_look[:] = [time.monotonic()]
    sweep_files()


def sweep_files() -> int:
    """How many were removed."""
    folder = Path(settings.UPLOADS_DIR)
    now, removed = time.time(), 0
    going_on = {Upload.State.RECEIVING, Upload.State.DRAFT, Upload.State.QUEUED, Upload.State.LOADING, "checked"}
    for path in folder.glob("*.parts") if folder.is_dir() else ():
        age = now - path.stat().st_mtime
        if age > QUIET_WAITING.total_seconds() and _state_of(path) not in going_on:
            path.unlink(missing_ok=True)
            removed += 1
    for path in folder.glob("*.rejected.jsonl") if folder.is_dir() else ():
        age = now - path.stat().st_mtime
        if age > settings.KEEP_REJECTED_DAYS * 86_400 or _state_of(path) is None:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _state_of(path: Path) -> str | None:
    number = path.name.split(".", 1)[0]
    if not number.isascii() or not number.isdigit():
        return None
    return Upload.objects.filter(pk=int(number)).values_list("state", flat=True).first()
