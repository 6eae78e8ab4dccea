"""Write queued exports: claim one, write its files, publish them. Fencing ensures that it is published only once."""

import logging
import math
import time
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from apps.accounts.disk_space import MEASURE_SECONDS, check_folder, free_folder_bytes, note_error
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import is_due, wait_for_retry
from apps.accounts.space_waits import SpaceWaits
from apps.alerts.event_outbox import record_event
from apps.alerts.models import EventKind
from apps.exports.export_folders import ExportFolder, default_path, is_safe_to_replace, named_encoding, sweep_parts
from apps.exports.export_orders import ExportRefused
from apps.exports.export_rows import RowReader
from apps.exports.manifests import Census, make_manifest
from apps.exports.models import Export
from apps.gym import process_exit
from apps.gym.exporters.registry import find_format
from apps.tasks.fenced_jobs import Attempt, claim, requeue_unresponsive

logger = logging.getLogger(__name__)

State = Export.State
HEARTBEAT_SECONDS = 5.0
_waits = SpaceWaits(lambda: free_folder_bytes(settings.EXPORTS_DIR))


def write_export(*, export: Export, path: Path | None = None) -> Export:
    """Write the export in this process, taking it over if needed. Its final state is ready, failed or cancelled.

    `path` is the folder to create, by default in the exports folder. If it has the ending of a row file, only that file
    is written, with its manifest next to it; this does not work for several splits. Raise ExportRefused.
    """
    if path is not None:
        check_path(path, export)
    while True:
        _write_claimed(Export.objects.exclude(state=State.CANCELLED), export, path)
        export.refresh_from_db()
        if export.is_settled or not wait_for_retry(export):
            return export


def check_path(path: Path, export: Export) -> None:
    """Raise ExportRefused if the (stored or prepared) export cannot be written to this path."""
    encoding = named_encoding(path)
    if encoding is None:
        if not is_safe_to_replace(path):
            raise ExportRefused(f"{path} contains other files. Give a new folder.")
        return
    if export.validation_share:
        raise ExportRefused(
            f"A validation share needs two files. Give a folder instead of {path.name}.", "validation_share"
        )
    if encoding != export.encoding:
        raise ExportRefused(
            f"{path.name} has the ending of {encoding}, but the encoding is {export.encoding}. Change one of them.",
            "encoding",
        )
    if path.is_dir():
        raise ExportRefused(f"{path} is a folder, but its name looks like a file. Give another path.")


@background_job(waiting=lambda: Export.objects.filter(state__in=[State.QUEUED, State.WRITING]))
def write_queued_export() -> bool:
    """Background job: write one queued export. Return True if there was one."""
    for lost in requeue_unresponsive(Export.objects.filter(state=State.WRITING), queued=State.QUEUED, lost="writer"):
        sweep_parts(default_path(lost), lost.pk)
    queued = Export.objects.filter(state=State.QUEUED)
    export = queued.filter(is_due()).exclude(pk__in=_waits.waiting()).order_by("id").first()
    if export is None:
        return False
    _write_claimed(queued, export, None)
    return True


def _write_claimed(claimable: QuerySet[Export], export: Export, path: Path | None) -> None:
    if attempt := claim(claimable, export.pk, doing=State.WRITING, queued=State.QUEUED):
        _write(attempt, path)


def _write(attempt: Attempt, path: Path | None) -> None:
    related = ("collection__dataset", "collection__version", "collection__environment", "collection__policy_model")
    needed = 0
    with attempt.store_errors():
        try:
            export = Export.objects.select_related("pair_set", "collection__agent", *related).get(pk=attempt.pk)
            folder = ExportFolder((path or default_path(export)).absolute(), export, attempt=attempt.number)
            try:
                _write_rows(export, attempt, folder)
                _waits.forget(attempt.pk)
            finally:
                needed = folder.bytes_written * _total(export) // max(1, export.considered)
                folder.discard()
        except Exception as problem:
            if not note_error(problem):
                raise
            if path is None:
                _wait_for_space(attempt, needed)
            else:
                logger.exception("%s failed", attempt)
                attempt.fail(problem)


def _wait_for_space(attempt: Attempt, needed: int) -> None:
    """Requeue the export until disk space is free.

    If that fails too, the export is requeued when its heartbeat expires.
    """
    _waits.put(attempt.pk, needed)
    message = _waits.explain(attempt.pk)
    logger.warning("%s: %s", attempt, message)
    with suppress(DatabaseError):
        attempt.requeue(message=message)


def _write_rows(export: Export, attempt: Attempt, folder: ExportFolder) -> None:
    heartbeat = _Heartbeat(export, attempt, folder.path.parent)
    reader = RowReader(export, on_step=lambda: heartbeat(reader.ledger.considered, folder.rows))
    census = Census(export.format)
    for made in reader.rows():
        folder.write(made)
        census.count(made.rows, dataset_split=made.dataset_split)
    manifest = make_manifest(export, folder.finish(), reader=reader, census=census.figures())
    # Files are renamed inside the fenced transaction, so that a writer that lost its claim replaces nothing.
    with transaction.atomic():
        attempt.write(
            state=State.READY,
            path=str(folder.path),
            rows=manifest["rows"],
            bytes=manifest["bytes"],
            sha256=manifest["sha256"],
            considered=reader.ledger.considered,
            manifest=manifest,
        )
        record_event(
            EventKind.EXPORT_READY,
            key=str(export.pk),
            text=f"Export #{export.pk} of {export.collection} is ready: {manifest['rows']:,} rows",
            page=("export_detail", export.pk),
            export=export.pk,
            collection=export.collection_id,
            format=export.format,
            rows=manifest["rows"],
            bytes=manifest["bytes"],
        )
        folder.publish(manifest)


class _Heartbeat:
    """Callback for every attempt that is read.

    Every few seconds, it renews the heartbeat, stores the progress and checks that this writer still owns the export.
    It raises to stop if the process shuts down.
    """

    def __init__(self, export: Export, attempt: Attempt, folder: Path) -> None:
        self._attempt, self._folder, self._export = attempt, folder, export
        self._last, self._measured = time.monotonic(), -math.inf
        attempt.owned.update(total=_total(export), considered=0, rows=0)

    def __call__(self, considered: int, rows: int) -> None:
        process_exit.check()
        self._export.considered = considered
        if time.monotonic() - self._measured >= MEASURE_SECONDS:
            self._measured = time.monotonic()
            check_folder(self._folder)
        if time.monotonic() - self._last < HEARTBEAT_SECONDS:
            return
        self._last = time.monotonic()
        self._attempt.write(considered=considered, rows=rows)


def _total(export: Export) -> int:
    if export.pair_set is not None:
        return export.pair_set.pair_count
    collection = export.collection
    is_of_tasks = find_format(export.format).row_kind == "tasks"
    return collection.total // collection.repeats if is_of_tasks else collection.total
