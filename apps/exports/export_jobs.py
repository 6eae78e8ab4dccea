"""Write an export that was ordered: claim it, write its files, put them in place. Fenced, so that each ends once."""

import logging
import math
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from apps.accounts.disk_space import LOOK_SECONDS, check_folder, folder_room, note_error
from apps.accounts.job_retries import claimed, is_due, put_back, wait_for_retry
from apps.accounts.space_waits import SpaceWaits
from apps.exports.export_folders import ExportFolder, default_path, is_safe_to_replace, named_encoding, sweep_parts
from apps.exports.export_orders import ExportRefused
from apps.exports.export_rows import RowReader
from apps.exports.manifests import make_manifest
from apps.exports.models import Export
from apps.exports.row_census import Census
from apps.gym import process_exit
from apps.gym.exporters.registry import find_format
from apps.gym.redaction.shortening import cut_clean

logger = logging.getLogger(__name__)

QUIET = timedelta(minutes=5)
"""A writing export without a sign of life for so long has lost its writer."""

MAX_ATTEMPTS = 3
SIGN_OF_LIFE_SECONDS = 5.0
_waits = SpaceWaits(lambda: folder_room(settings.EXPORTS_DIR))


class _FencedOut(Exception):
    """Somebody else has taken the export over, or cancelled it."""


def write_export(*, export: Export, path: Path | None = None) -> Export:
    """Write the export now, here, taking it over from whoever may be at it; the answer is `ready`,
    `failed` or `cancelled`.

    `path` is the folder that is made (default: in the exports folder). Where its name ends as a file of rows does, it
    is the one file, with its manifest beside it; an export of several splits has no one file. Raises ExportRefused.
    """
    if path is not None:
        check_path(path, export)
    while True:
        attempt = _claim(Export.objects.exclude(state=Export.State.CANCELLED), export.pk)
        if attempt is not None:
            _write(export.pk, attempt, path)
        export.refresh_from_db()
        if export.is_settled or not wait_for_retry(export):
            return export


def check_path(path: Path, export: Export) -> None:
    """Raise ExportRefused where the export, stored or only prepared, cannot be written there."""
    encoding = named_encoding(path)
    if encoding is None:
        if not is_safe_to_replace(path):
            raise ExportRefused(f"{path} holds other files than those of an export: name a folder that is not there.")
        return
    if export.validation_share:
        raise ExportRefused(f"{path.name} is one file, and two splits are two: name a folder.", "validation_share")
    if encoding != export.encoding:
        raise ExportRefused(
            f"{path.name} is named as {encoding}, and its rows would be {export.encoding}: let the name or the "
            "encoding be the other's.",
            "encoding",
        )
    if path.is_dir():
        raise ExportRefused(f"{path} is a folder, and its name is that of one file: name another.")


def write_queued_export() -> bool:
    """Background job: write one queued export; says whether there was one."""
    _requeue_quiet()
    queued = Export.objects.filter(is_due(), state=Export.State.QUEUED).exclude(pk__in=_waits.waiting())
    export = queued.order_by("id").first()
    if export is None:
        return False
    attempt = _claim(Export.objects.filter(state=Export.State.QUEUED), export.pk)
    if attempt is not None:
        _write(export.pk, attempt, None)
    return True


def _claim(claimable: QuerySet[Export], export_id: int) -> int | None:
    """The number of the new attempt, or None where the export is not claimable (any more)."""
    with transaction.atomic():
        claim = {"state": Export.State.WRITING, "attempt": F("attempt") + 1, **claimed()}
        if not claimable.filter(pk=export_id).update(**claim):
            return None
        return Export.objects.values_list("attempt", flat=True).get(pk=export_id)


def _requeue_quiet() -> None:
    quiet = Export.objects.filter(state=Export.State.WRITING, touched_at__lt=timezone.now() - QUIET)
    # Asked first: this comes every second, and an UPDATE that finds nothing still takes SQLite's write lock.
    if not quiet.exists():
        return
    quiet.filter(attempt__lt=MAX_ATTEMPTS).update(state=Export.State.QUEUED)
    for lost in quiet.filter(attempt__gte=MAX_ATTEMPTS):
        said = f"Its writer was lost {MAX_ATTEMPTS} times."
        if quiet.filter(pk=lost.pk).update(state=Export.State.FAILED, message=said):
            sweep_parts(default_path(lost), lost.pk)


def _owned(export_id: int, attempt: int) -> QuerySet[Export]:
    """The row, as long as this attempt is the one that writes it."""
    return Export.objects.filter(pk=export_id, attempt=attempt, state=Export.State.WRITING)


def _write(export_id: int, attempt: int, path: Path | None) -> None:
    related = ("collection__dataset", "collection__version", "collection__environment", "collection__policy_model")
    needed = 0
    try:
        export = Export.objects.select_related("pair_set", "collection__agent", *related).get(pk=export_id)
        folder = ExportFolder((path or default_path(export)).absolute(), export, attempt=attempt)
        try:
            _write_rows(export, attempt, folder)
            _waits.forget(export_id)
        finally:
            needed = folder.bytes_written * _total(export) // max(1, export.considered)
            folder.discard()
    except process_exit.Leaving:
        # At once, and not as an attempt that was lost: the next worker need not wait until the row has gone quiet.
        _owned(export_id, attempt).update(state=Export.State.QUEUED, attempt=F("attempt") - 1)
        logger.info("export %s is left to another worker", export_id)
    except _FencedOut:
        logger.warning("export %s was cancelled, or taken over, while attempt %s wrote it", export_id, attempt)
    except Exception as problem:
        if note_error(problem):
            if path is None:
                _let_wait(export_id, attempt, needed)
                return
        elif put_back(_owned(export_id, attempt), problem, state=Export.State.QUEUED, attempt=F("attempt") - 1):
            return
        # The row is where people look for what went wrong; the log keeps the traceback.
        logger.exception("export %s failed", export_id)
        message = cut_clean(f"{type(problem).__name__}: {problem}", 500)
        _owned(export_id, attempt).update(state=Export.State.FAILED, message=message, touched_at=timezone.now())


def _let_wait(export_id: int, attempt: int, needed: int) -> None:
    """A worker writes it again when there is space. Where not even this can be stored, its row goes quiet first."""
    _waits.put(export_id, needed)
    message = _waits.explain(export_id)
    logger.warning("export %s: %s", export_id, message)
    with suppress(DatabaseError):
        _owned(export_id, attempt).update(state=Export.State.QUEUED, attempt=F("attempt") - 1, message=message)


def _write_rows(export: Export, attempt: int, folder: ExportFolder) -> None:
    sign = _SignOfLife(export, attempt, folder.path.parent)
    reader = RowReader(export, on_step=lambda: sign(reader.considered, folder.rows))
    census = Census(export.format)
    for made in reader.rows():
        folder.write(made)
        census.count(made.rows, dataset_split=made.dataset_split)
    manifest = make_manifest(export, folder.finish(), reader=reader, census=census.figures())
    # Renamed inside the transaction that the fence decides, so that a writer given up for lost replaces no file.
    with transaction.atomic():
        ready = _owned(export.pk, attempt).update(
            state=Export.State.READY,
            path=str(folder.path),
            rows=manifest["rows"],
            bytes=manifest["bytes"],
            sha256=manifest["sha256"],
            considered=reader.considered,
            manifest=manifest,
            touched_at=timezone.now(),
        )
        if not ready:
            raise _FencedOut
        folder.publish(manifest)


class _SignOfLife:
    """Called for every attempt: ends the writing where its process leaves; every few seconds says that the writer lives
    and how far it is, and learns whether it owns the row."""

    def __init__(self, export: Export, attempt: int, folder: Path) -> None:
        self._owned = _owned(export.pk, attempt)
        self._folder, self._export = folder, export
        self._last, self._measured = time.monotonic(), -math.inf
        self._owned.update(total=_total(export), considered=0, rows=0)

    def __call__(self, considered: int, rows: int) -> None:
        process_exit.check()
        self._export.considered = considered
        if time.monotonic() - self._measured >= LOOK_SECONDS:
            self._measured = time.monotonic()
            check_folder(self._folder)
        if time.monotonic() - self._last < SIGN_OF_LIFE_SECONDS:
            return
        self._last = time.monotonic()
        if not self._owned.update(touched_at=timezone.now(), considered=considered, rows=rows):
            raise _FencedOut


def _total(export: Export) -> int:
    if export.pair_set is not None:
        return export.pair_set.pair_count
    collection = export.collection
    return collection.total if find_format(export.format).makes != "tasks" else collection.total // collection.repeats
