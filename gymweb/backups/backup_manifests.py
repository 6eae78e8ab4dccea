"""The manifest of a backup: its version, its database and the checksum of every file."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec
from django.conf import settings
from django.utils.crypto import salted_hmac

from apps.exports.row_files import sync_folder

MANIFEST = "manifest.json"
SECRET_KEY_FILE = "secret_key"  # noqa: S105
DATABASE_FILES = {"sqlite": "database.sqlite3", "postgresql": "database.dump"}
MANIFEST_VERSION = 1
_SHOWN_PROBLEMS = 10
_BLOCK_BYTES = 1024**2


class BackupError(Exception):
    """Raised if a backup cannot be written, is damaged, or does not fit the installation."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a backup. `modified_ns` is the modification time of its source."""

    bytes: int
    sha256: str
    modified_ns: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """`files` maps paths below the backup to files. `key_digest` identifies the secret key without revealing it."""

    created_at: str
    gymweb: str
    vendor: str
    migrations: list[tuple[str, str]]
    exports_folder: str
    key_digest: str
    files: dict[str, StoredFile]
    missing: list[str] = []
    """Files that rows refer to, but which did not exist."""
    manifest_version: int = MANIFEST_VERSION
    installation_id: str = ""
    """Empty in backups of GymWeb 0.2.0."""

    @property
    def total_bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    @property
    def database_file(self) -> str:
        return DATABASE_FILES[self.vendor]


def digest_secret_key(created_at: str) -> str:
    """Return a digest of the secret key of this process, salted with the time of a backup."""
    return salted_hmac(f"gymweb.backups {created_at}", "", secret=settings.SECRET_KEY, algorithm="sha256").hexdigest()


def read_manifest(backup: Path) -> Manifest:
    """Return the manifest of a backup. Raise BackupError."""
    try:
        if (backup / MANIFEST).exists() and not (backup / MANIFEST).is_file():
            raise BackupError(f"The manifest of {backup} is not a file. Choose another backup.")
        manifest = msgspec.json.decode((backup / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise BackupError(f"{backup} is not a complete backup: it has no {MANIFEST}. Choose another one.") from None
    except msgspec.MsgspecError as problem:
        raise BackupError(f"The manifest of {backup} is damaged ({problem}). Choose another backup.") from None
    if manifest.manifest_version != MANIFEST_VERSION or manifest.vendor not in DATABASE_FILES:
        raise BackupError(f"GymWeb {manifest.gymweb} wrote {backup} in another format. Use that version.")
    if manifest.database_file not in manifest.files:
        raise BackupError(f"The manifest of {backup} names no database. Choose another backup.")
    if outside := [name for name in manifest.files if not _is_inside(name)]:
        raise BackupError(f"The manifest of {backup} names a path outside the backup: {outside[0]}.")
    return manifest


def write_manifest(backup: Path, manifest: Manifest) -> None:
    write_synced(backup / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))


def check_files(backup: Path, manifest: Manifest) -> None:
    """Compare all files with their checksums. Raise BackupError."""
    problems = [problem for name, file in manifest.files.items() if (problem := _find_problem(backup / name, file))]
    if problems:
        shown = "\n".join(f"  {problem}" for problem in problems[:_SHOWN_PROBLEMS])
        more = f"\n  and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
        raise BackupError(
            f"{backup} is damaged:\n{shown}{more}\nUse another backup. `manage.py backup --full` copies all files anew."
        )


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_hashed(source: Path, target: Path) -> StoredFile:
    """Copy a file to a new private file on disk, and return its size and checksum. Raise OSError."""
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as given:
        modified = os.fstat(given.fileno()).st_mtime_ns
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The existing file may be a hard link into another backup.
        target.unlink(missing_ok=True)
        with _create_private(target) as copy:
            while block := given.read(_BLOCK_BYTES):
                digest.update(block)
                size += copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())
    return StoredFile(size, digest.hexdigest(), modified)


def write_synced(path: Path, content: bytes) -> None:
    """Write a private file to disk."""
    with _create_private(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folders(root: Path) -> None:
    """Sync this folder and all folders below it to disk, so that their files are durable."""
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        sync_folder(folder)


def _is_inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts


def _find_problem(path: Path, file: StoredFile) -> str:
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return f"{path} has {size:,} bytes instead of {file.bytes:,}"
        return "" if hash_file(path) == file.sha256 else f"{path} has another checksum"
    except OSError as problem:
        return f"{path}: {problem.strerror}"


def _create_private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
