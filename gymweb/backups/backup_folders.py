"""The backups in a folder: which this installation wrote, which one is the newest, and which ones are deleted."""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from gymweb.backups.backup_manifests import MANIFEST, BackupError, Manifest, digest_secret_key, read_manifest
from gymweb.folders import read_installation_id

TIME_FORMAT = "%Y-%m-%dT%H-%M-%S.%fZ"
_TIME = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}Z"
_NAME = re.compile(_TIME)
_PART = re.compile(rf"\.{_TIME}(\.(?P<installation>[0-9a-f]+))?\.part")


class FolderContent(NamedTuple):
    """The backups of this installation, oldest first, and the names of other folders by the reason."""

    own: list[Path]
    others: dict[str, list[str]]


class Deletion(NamedTuple):
    """The names of deleted backups, and the names of folders that were not deleted, by the reason."""

    deleted: list[str]
    others: dict[str, list[str]]


def read_folder(folder: Path) -> FolderContent:
    """Sort the folders in a folder of backups. Hidden ones are left out, except incomplete backups. Raise OSError."""
    content = FolderContent([], {})
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        is_part = _PART.fullmatch(path.name) is not None
        if path.name.startswith(".") and not is_part:
            continue
        if reason := "unfinished backup" if is_part else _explain_foreign(path):
            content.others.setdefault(reason, []).append(path.name)
        else:
            content.own.append(path)
    return content


def find_backup(folder: Path) -> Path:
    """Return the folder itself if it is a backup, else the newest backup in it. Raise BackupError.

    Backups of this installation precede others. A damaged backup counts, so that its damage is reported.
    """
    if (folder / MANIFEST).exists():
        return folder
    found = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if _NAME.fullmatch(path.parent.name))
    manifests = {path: _try_manifest(path) for path in found}
    damaged = [path for path, manifest in manifests.items() if manifest is None]
    if own := [path for path, manifest in manifests.items() if manifest and _is_own(manifest)]:
        return max([*own, *damaged])
    newest = {manifest.installation_id: path for path, manifest in manifests.items() if manifest}
    newest.pop("", None)
    if len(newest) > 1:
        raise BackupError(
            f"{folder} has backups of {len(newest)} other installations. Give one of these backups: "
            + ", ".join(map(str, newest.values()))
        )
    if found:
        return found[-1]
    raise BackupError(f"There is no complete backup in {folder}. Give the folder that you gave to `manage.py backup`.")


def delete_old_backups(folder: Path, *, newest: Path, keep: int) -> Deletion:
    """Delete backups of this installation, except the newest `keep`. `newest` is the one just written."""
    older = [path for path in read_folder(folder).own if path != newest]
    # Even if the clock was set back, the backup just written is kept.
    old = older[: max(0, len(older) - keep + 1)]
    for path in old:
        # With the hidden name, the next backup deletes the rest if this process is killed.
        with suppress(OSError):
            path.replace(folder / name_part(path.name))
    remove_unfinished(folder)
    own, others = read_folder(folder)
    if left := [path.name for path in old if path in own]:
        others["cannot be renamed"] = left
    return Deletion([path.name for path in old if path not in own], others)


def name_part(created_at: str) -> str:
    """Return the hidden name of an incomplete backup of this installation."""
    return f".{created_at}.{read_installation_id(settings.VAR_DIR)}.part"


def remove_unfinished(folder: Path) -> None:
    """Delete incomplete backups of this installation, as far as possible. Raise OSError."""
    for path in folder.iterdir():
        part = _PART.fullmatch(path.name)
        if part and part["installation"] == read_installation_id(settings.VAR_DIR):
            shutil.rmtree(path, ignore_errors=True)


def _explain_foreign(path: Path) -> str:
    """Return why the folder is not certainly a backup of this installation, or an empty string."""
    if path.is_symlink():
        return "symbolic link"
    if not _NAME.fullmatch(path.name):
        return "not named like a backup"
    manifest = _try_manifest(path)
    if manifest is None:
        return "no readable manifest"
    if manifest.created_at != path.name:
        return "renamed backup"
    if _is_own(manifest):
        return ""
    old = "backup of GymWeb 0.2.0 with another secret key, exports folder or database"
    return "backup of another installation" if manifest.installation_id else old


def _try_manifest(backup: Path) -> Manifest | None:
    try:
        return read_manifest(backup)
    except (BackupError, OSError):
        return None


def _is_own(manifest: Manifest) -> bool:
    if manifest.installation_id:
        return manifest.installation_id == read_installation_id(settings.VAR_DIR)
    # GymWeb 0.2.0 stored no ID.
    return (manifest.key_digest, manifest.exports_folder, manifest.vendor) == (
        digest_secret_key(manifest.created_at),
        str(Path(settings.EXPORTS_DIR).absolute()),
        connection.vendor,
    )
