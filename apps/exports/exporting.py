"""Export a collection: queue it, claim it, write the file with its manifest. Fenced, so that each ends once."""

import logging
import math
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.exports.census import Census
from apps.exports.files import JsonLinesFile
from apps.exports.manifests import make_manifest
from apps.exports.models import Export, ExportFormat, PairSet, PreferencePair
from apps.exports.rows import RowReader
from apps.gym import leaving
from apps.rollouts.models import Collection, Rollout

logger = logging.getLogger(__name__)

DEFAULT_FILTERS: dict[str, dict[str, Any]] = {
    # A demonstration is a rollout worth imitating; NeMo Gym's own tutorial filters at 0.7 to 0.8.
    ExportFormat.TRL_SFT: {"min_reward": 0.7},
    ExportFormat.TRL_DPO: {},
    ExportFormat.NEMO_GYM_ROLLOUTS: {},
}

QUIET = timedelta(minutes=5)
"""A writing export without a sign of life for so long has lost its writer."""

MAX_ATTEMPTS = 3
SIGN_OF_LIFE_SECONDS = 5.0


class ExportRefused(Exception):
    """This combination of format, collection, pairs and filters makes no file; `argument` is the one to change."""

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class _FencedOut(Exception):
    """Somebody else has taken the export over."""


def queue_export(
    *,
    format: str,
    collection: Collection,
    pair_set: PairSet | None = None,
    filters: dict[str, Any] | None = None,
    user: User | None = None,
) -> Export:
    """An export that a worker will write. Raises ExportRefused.

    The filters are `min_reward`, a number, or None for any (of a pair it means the chosen one), and `include_flagged`:
    rollouts that had credentials, and that nobody has looked at since, refuse the export unless it is true. Left out,
    DEFAULT_FILTERS of the format says what holds; the export keeps the filters that were applied.
    """
    if format not in ExportFormat.values:
        raise ExportRefused(f"There is no format {format}: {', '.join(ExportFormat.values)}.")
    _check_pair_set(format, collection, pair_set)
    applied = _checked_filters(format, filters or {})
    if not applied.get("include_flagged"):
        _check_flags(collection, pair_set)
    with transaction.atomic():
        export = Export.objects.create(
            format=format,
            collection=collection,
            pair_set=pair_set,
            filters=applied,
            created_by=user,
        )
        record(user=user, action="export.create", target=export, format=format)
    return export


def write_export(*, export: Export, path: Path | None = None) -> Export:
    """Write the export now, here, taking it over from whoever may be at it; the answer is `ready` or `failed`.

    `path` is where the file goes (default: the exports folder); its manifest goes beside it.
    """
    attempt = _claim(Export.objects.all(), export.pk)
    if attempt is not None:
        _write(export.pk, attempt, path)
    export.refresh_from_db()
    return export


def write_queued_export() -> bool:
    """Worker chore: write one queued export; says whether there was one."""
    _requeue_quiet()
    export = Export.objects.filter(state=Export.State.QUEUED).order_by("id").first()
    if export is None:
        return False
    attempt = _claim(Export.objects.filter(state=Export.State.QUEUED), export.pk)
    if attempt is not None:
        _write(export.pk, attempt, None)
    return True


def default_path(export: Export) -> Path:
    return Path(settings.EXPORTS_DIR) / f"export-{export.pk}.{export.format}.jsonl"


def _check_pair_set(format: str, collection: Collection, pair_set: PairSet | None) -> None:
    problem = ""
    if format == ExportFormat.TRL_DPO and pair_set is None:
        problem = "A DPO export needs a pair set."
    elif format != ExportFormat.TRL_DPO and pair_set is not None:
        problem = "Only a DPO export takes a pair set."
    elif pair_set is not None and pair_set.collection_id != collection.pk:
        problem = f"This is {pair_set}: it does not belong to {collection.label}."
    elif pair_set is not None and not pair_set.pair_count:
        problem = f"This is {pair_set}: it holds no pairs, so the file would hold no rows."
    if problem:
        raise ExportRefused(problem, "pair_set")


def _check_flags(collection: Collection, pair_set: PairSet | None) -> None:
    flagged = Rollout.objects.filter(collection=collection, flagged=True)
    if pair_set is not None:
        pairs = PreferencePair.objects.filter(pair_set=pair_set)
        flagged = flagged.filter(
            Exists(pairs.filter(chosen=OuterRef("pk"))) | Exists(pairs.filter(rejected=OuterRef("pk")))
        )
    if number := flagged.count():
        had = "rollout had" if number == 1 else "rollouts had"
        raise ExportRefused(
            f"{number:,} {had} credentials in the trace, and nobody has looked since. Look, and resolve the flags, or "
            "include them with include_flagged: what was redacted stays so.",
            "filters",
        )


def _checked_filters(format: str, filters: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(filters) - {"min_reward", "include_flagged"})
    if unknown:
        raise ExportRefused(f"There is no filter {', '.join(unknown)}: only min_reward and include_flagged.", "filters")
    if not isinstance(filters.get("include_flagged", False), bool):
        raise ExportRefused("include_flagged is true or false.", "filters")
    least = filters.get("min_reward")
    is_number = isinstance(least, int | float) and not isinstance(least, bool) and math.isfinite(least)
    if least is not None and not is_number:
        raise ExportRefused("min_reward is a finite number, or null for any reward.", "filters")
    return {**DEFAULT_FILTERS[format], **filters}


def _claim(claimable: QuerySet[Export], export_id: int) -> int | None:
    """The number of the new attempt, or None where the export is not claimable (any more)."""
    with transaction.atomic():
        claim = {"state": Export.State.WRITING, "attempt": F("attempt") + 1, "touched_at": timezone.now()}
        if not claimable.filter(pk=export_id).update(message="", rows=0, bytes=0, **claim):
            return None
        return Export.objects.values_list("attempt", flat=True).get(pk=export_id)


def _requeue_quiet() -> None:
    quiet = Export.objects.filter(state=Export.State.WRITING, touched_at__lt=timezone.now() - QUIET)
    # Asked first: this comes every second, and an UPDATE that finds nothing still takes SQLite's write lock.
    if not quiet.exists():
        return
    quiet.filter(attempt__lt=MAX_ATTEMPTS).update(state=Export.State.QUEUED)
    quiet.filter(attempt__gte=MAX_ATTEMPTS).update(
        state=Export.State.FAILED, message=f"Its writer was lost {MAX_ATTEMPTS} times."
    )


def _owned(export_id: int, attempt: int) -> QuerySet[Export]:
    """The row, as long as this attempt is the one that writes it."""
    return Export.objects.filter(pk=export_id, attempt=attempt, state=Export.State.WRITING)


def _write(export_id: int, attempt: int, path: Path | None) -> None:
    related = ("collection__dataset", "collection__version", "collection__environment", "collection__policy_model")
    export = Export.objects.select_related("pair_set", "collection__agent", *related).get(pk=export_id)
    target = (path or default_path(export)).absolute()
    try:
        file = JsonLinesFile(target, writer=f"{export_id}-{attempt}")
        try:
            _write_rows(export, attempt, file)
        finally:
            file.discard()
    except leaving.Leaving:
        # At once, and not as an attempt that was lost: the next worker need not wait until the row has gone quiet.
        _owned(export_id, attempt).update(state=Export.State.QUEUED, attempt=F("attempt") - 1)
        logger.info("export %s is left to another worker", export_id)
    except _FencedOut:
        logger.warning("export %s was taken over while attempt %s wrote it", export_id, attempt)
    except Exception as problem:
        # The row is where people look for what went wrong; the log keeps the traceback.
        logger.exception("export %s failed", export_id)
        message = f"{type(problem).__name__}: {problem}"[:500]
        _owned(export_id, attempt).update(state=Export.State.FAILED, message=message, touched_at=timezone.now())


def _write_rows(export: Export, attempt: int, file: JsonLinesFile) -> None:
    reader = RowReader(export, on_chunk=_SignOfLife(export.pk, attempt, file))
    census = Census()
    for row in reader.rows():
        try:
            line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:
            # Half a surrogate pair, or an integer past 64 bits, that a model wrote: no trainer could read it.
            reader.dropped["not_encodable"] += 1
        else:
            file.write_line(line)
            census.count(row)
    file.finish()
    manifest = make_manifest(
        export, file, considered=reader.considered, dropped=reader.dropped, census=census.figures()
    )
    # Renamed inside the transaction that the fence decides, so that a writer given up for lost replaces no file.
    with transaction.atomic():
        ready = _owned(export.pk, attempt).update(
            state=Export.State.READY,
            path=str(file.path),
            rows=file.rows,
            bytes=file.bytes,
            sha256=file.sha256,
            manifest=manifest,
            touched_at=timezone.now(),
        )
        if not ready:
            raise _FencedOut
        file.publish(manifest)


class _SignOfLife:
    """Called for every chunk: ends the writing where its process leaves; every few seconds says that the writer lives
    and how much it has written, and learns whether it owns the row."""

    def __init__(self, export_id: int, attempt: int, file: JsonLinesFile) -> None:
        self._owned = _owned(export_id, attempt)
        self._file = file
        self._last = time.monotonic()

    def __call__(self) -> None:
        leaving.check()
        if time.monotonic() - self._last < SIGN_OF_LIFE_SECONDS:
            return
        self._last = time.monotonic()
        if not self._owned.update(rows=self._file.rows, bytes=self._file.bytes, touched_at=timezone.now()):
            raise _FencedOut
