"""Find the files that rows of the database refer to: unfinished uploads, rejected rows, finished exports."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from apps.exports.export_folders import is_one_file, manifest_path
from apps.tasks.models import Upload
from gymweb.backups.database_copies import Query

UPLOADS, EXPORTS = "uploads", "exports"
_WAITING = (Upload.State.RECEIVING, Upload.State.DRAFT, Upload.State.QUEUED, Upload.State.LOADING, Upload.State.CHECKED)


class FileReference(NamedTuple):
    """A file that a row refers to. `name` is its path in the backup.

    A file with fewer bytes than `least` is incomplete. `least` is None for files that may be absent.
    """

    name: str
    source: Path
    least: int | None


def find_references(query: Query) -> list[FileReference]:
    """Return all files that rows of uploads and exports refer to.

    Exports that a command wrote to other folders are not included.
    """
    return [*_find_uploads(query), *_find_exports(query)]


def _find_uploads(query: Query) -> Iterator[FileReference]:
    folder = Path(settings.UPLOADS_DIR)
    for pk, state, received in query("SELECT id, state, received_bytes FROM tasks_upload ORDER BY id"):
        is_needed = state in _WAITING and received > 0
        yield _reference(UPLOADS, folder, folder / f"{pk}.parts", received if is_needed else None)
        if state != Upload.State.LOADING:  # Loading starts the file of rejected rows anew.
            yield _reference(UPLOADS, folder, folder / f"{pk}.rejected.jsonl", None)


def _find_exports(query: Query) -> Iterator[FileReference]:
    folder = Path(settings.EXPORTS_DIR).absolute()
    for text, written in query(
        "SELECT path, CAST(manifest AS text) FROM exports_export WHERE state = 'ready' ORDER BY id"
    ):
        path = Path(text)
        if path.parent != folder:
            continue
        rows = {one["name"]: int(one["bytes"]) for one in json.loads(written).get("files", [])}
        needed = {path if is_one_file(path) else path / name: size for name, size in rows.items()}
        needed[manifest_path(path)] = 1
        yield from (_reference(EXPORTS, folder, file, least) for file, least in needed.items())
        others = (file for file in path.glob("*") if file not in needed) if path.is_dir() else ()
        yield from (_reference(EXPORTS, folder, file, None) for file in others)


def _reference(place: str, folder: Path, path: Path, least: int | None) -> FileReference:
    return FileReference(f"{place}/{path.relative_to(folder)}", path, least)
