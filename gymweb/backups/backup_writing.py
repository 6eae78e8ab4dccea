"""Write a backup while GymWeb runs.

Files are written before the rows that refer to them, and deleted after these rows. So files are copied before the
database, in case they are deleted meanwhile, and again after it, in case they are new.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from apps.accounts.disk_space import check_folder
from apps.exports.row_files import sync_folder
from gymweb.backups.backup_folders import (
    TIME_FORMAT,
    Deletion,
    delete_old_backups,
    name_part,
    read_folder,
    remove_unfinished,
)
from gymweb.backups.backup_manifests import (
    DATABASE_FILES,
    SECRET_KEY_FILE,
    BackupError,
    Manifest,
    StoredFile,
    copy_hashed,
    digest_secret_key,
    hash_file,
    read_manifest,
    sync_folders,
    write_manifest,
    write_synced,
)
from gymweb.backups.database_copies import copy_database, database_bytes, run_query
from gymweb.backups.referenced_files import FileReference, find_references
from gymweb.folders import read_installation_id

_MAX_COPIES = 5
"""Maximum number of copies of the database. Another one is made if a file that it refers to was deleted meanwhile."""


class WrittenBackup(NamedTuple):
    """`deletion` has the older backups that `keep` deleted."""

    path: Path
    manifest: Manifest
    deletion: Deletion


def write_backup(
    folder: Path, *, with_secret_key: bool = False, full: bool = False, keep: int | None = None
) -> WrittenBackup:
    """Write a new backup into the folder.

    Unchanged files are hard links to the newest backup of this installation, unless `full`. With `keep`, older backups
    of this installation are deleted afterwards. A killed backup keeps a hidden name; the next backup of this
    installation deletes it. Raise BackupError, DiskFull and OSError.
    """
    for managed in (settings.UPLOADS_DIR, settings.EXPORTS_DIR, settings.TRACKING_DIR):
        if folder.resolve().is_relative_to(Path(managed).resolve()):
            raise BackupError(f"GymWeb deletes unknown files in {managed}. Choose a folder elsewhere.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(folder):
        remove_unfinished(folder)
        own = [] if full else read_folder(folder).own
        created_at = timezone.now().strftime(TIME_FORMAT)
        part = folder / name_part(created_at)
        part.mkdir(mode=0o700)
        try:
            manifest = _write(part, created_at, own[-1] if own else None, with_secret_key)
            target = folder / created_at
            sync_folders(part)
            part.replace(target)
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        deletion = delete_old_backups(folder, newest=target, keep=keep) if keep is not None else Deletion([], {})
    return WrittenBackup(target, manifest, deletion)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"Another backup into {folder} is running. Wait until it ends.") from None
        yield


def _write(part: Path, created_at: str, previous: Path | None, with_secret_key: bool) -> Manifest:
    copier = _FileCopier(part, previous)
    needed = database_bytes() + sum(map(copier.needed_bytes, find_references(run_query)))
    check_folder(part, extra=needed)
    vendor = connection.vendor
    migrations = sorted(MigrationRecorder(connection).applied_migrations())
    missing: set[str] = set()
    for _ in range(_MAX_COPIES):
        copier.copy_all(find_references(run_query))
        referenced = copy_database(part / DATABASE_FILES[vendor], find_references)
        copier.copy_all(referenced)
        before, missing = missing, copier.find_missing(referenced)
        # Files that were already missing in the previous round are really missing.
        if missing <= before:
            break
    else:
        raise BackupError("Files were deleted during each attempt of the backup. Start it again.")
    copier.discard_others(referenced)
    files = copier.files
    files[DATABASE_FILES[vendor]] = _describe(part / DATABASE_FILES[vendor])
    if with_secret_key:
        write_synced(part / SECRET_KEY_FILE, settings.SECRET_KEY.encode())
        files[SECRET_KEY_FILE] = _describe(part / SECRET_KEY_FILE)
    manifest = Manifest(
        created_at=created_at,
        gymweb=settings.VERSION,
        vendor=vendor,
        migrations=migrations,
        exports_folder=str(Path(settings.EXPORTS_DIR).absolute()),
        key_digest=digest_secret_key(created_at),
        files=files,
        missing=sorted(missing),
        installation_id=read_installation_id(settings.VAR_DIR),
    )
    write_manifest(part, manifest)
    return manifest


def _describe(path: Path) -> StoredFile:
    return StoredFile(path.stat().st_size, hash_file(path))


class _FileCopier:
    """Copies files into a backup. Files that did not change since the previous backup become hard links to it."""

    def __init__(self, part: Path, previous: Path | None) -> None:
        self._part, self._previous = part, previous
        self._known = read_manifest(previous).files if previous else {}
        self.files: dict[str, StoredFile] = {}

    def needed_bytes(self, reference: FileReference) -> int:
        """Return the bytes that copying this file would write."""
        try:
            found = reference.source.stat()
        except OSError:
            return 0
        return 0 if _is_same(self._known.get(reference.name), found) else found.st_size

    def copy_all(self, references: list[FileReference]) -> None:
        for reference in references:
            # A deleted file stays in the backup if it was copied before.
            with suppress(FileNotFoundError):
                self._copy(reference.source, reference.name)

    def find_missing(self, references: list[FileReference]) -> set[str]:
        """Return the files that are not in the backup, or were copied before they were complete."""
        return {
            name
            for name, _, least in references
            if least is not None and (name not in self.files or self.files[name].bytes < least)
        }

    def discard_others(self, references: list[FileReference]) -> None:
        """Delete copies of files that the copied rows do not refer to."""
        for name in self.files.keys() - {reference.name for reference in references}:
            del self.files[name]
            (self._part / name).unlink()

    def _copy(self, source: Path, name: str) -> None:
        found = source.stat()
        if _is_same(self.files.get(name), found):
            return
        known = self._known.get(name)
        if self._previous and known and _is_same(known, found) and self._link(self._previous / name, name):
            self.files[name] = known
        else:
            self.files[name] = copy_hashed(source, self._part / name)

    def _link(self, old: Path, name: str) -> bool:
        target = self._part / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            target.hardlink_to(old)
        except OSError:  # Some file systems have no hard links, and the old file may have been deleted.
            return False
        return True


def _is_same(known: StoredFile | None, found: os.stat_result) -> bool:
    return known is not None and (known.bytes, known.modified_ns) == (found.st_size, found.st_mtime_ns)
