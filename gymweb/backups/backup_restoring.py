"""Restore a backup into an installation whose processes are stopped."""

import shutil
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from apps.accounts.disk_space import check_folder
from apps.accounts.models import User
from apps.exports.models import Export
from apps.policies.models import PolicyModel
from apps.rollouts.database_clock import server_now
from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE, release_lease
from apps.rollouts.models import Collection, Worker
from apps.tasks.fenced_jobs import let_go_of_all
from apps.tasks.models import Dataset
from gymweb.backups.backup_folders import find_backup
from gymweb.backups.backup_manifests import (
    SECRET_KEY_FILE,
    BackupError,
    Manifest,
    check_files,
    copy_hashed,
    digest_secret_key,
    read_manifest,
    sync_folders,
)
from gymweb.backups.database_copies import check_copy, replace_database
from gymweb.backups.referenced_files import EXPORTS, UPLOADS
from gymweb.migration_state import find_gap, find_unknown


def verify_backup(folder: Path) -> tuple[Path, Manifest]:
    """Check all files of the backup, or of the newest backup in the folder. Return its path and manifest.

    Raise BackupError.
    """
    backup = find_backup(folder)
    manifest = read_manifest(backup)
    check_files(backup, manifest)
    check_copy(backup / manifest.database_file, manifest.vendor)
    return backup, manifest


def restore_backup(folder: Path, *, replace: bool = False) -> tuple[Path, Manifest]:
    """Restore the backup, or the newest one in the folder, then migrate it. Return its path and manifest.

    Nothing changes before all checks have passed. With `replace`, an installation that has data is overwritten.
    Raise BackupError and DiskFull.
    """
    backup, manifest = verify_backup(folder)
    _check_version(manifest)
    _check_installation(replace=replace)

    check_folder(settings.VAR_DIR, extra=manifest.total_bytes)
    places = {UPLOADS: Path(settings.UPLOADS_DIR), EXPORTS: Path(settings.EXPORTS_DIR)}
    for place, target in places.items():
        _copy_files(backup, manifest, place, _beside(target, "restoring"))
    replace_database(backup / manifest.database_file)
    for target in places.values():
        _swap(_beside(target, "restoring"), target)
    call_command("migrate", verbosity=0, interactive=False)
    _correct_rows(manifest)
    if SECRET_KEY_FILE in manifest.files and not settings.SECRET_KEY_GIVEN:
        copy_hashed(backup / SECRET_KEY_FILE, settings.VAR_DIR / SECRET_KEY_FILE)
    return backup, manifest


def explain_secret_key(manifest: Manifest) -> str:
    """Return a warning if this installation cannot read the API keys of the backup, or an empty string."""
    if digest_secret_key(manifest.created_at) == manifest.key_digest:
        return ""
    if SECRET_KEY_FILE in manifest.files:
        if not settings.SECRET_KEY_GIVEN:
            return ""
        return "GYMWEB_SECRET_KEY differs from the backup. Set it to the content of the backup's file secret_key."
    return (
        "The secret key differs from the backup, so stored API keys and alert addresses are unreadable, and all users "
        "are signed out. Set GYMWEB_SECRET_KEY to the old key, or enter them again."
    )


def _check_version(manifest: Manifest) -> None:
    if manifest.vendor != connection.vendor:
        raise BackupError(
            f"The backup is of {manifest.vendor}, and this installation uses {connection.vendor}. "
            "Set GYMWEB_DATABASE_URL to a database of the same kind."
        )
    if unknown := find_unknown(manifest.migrations):
        raise BackupError(
            f"GymWeb {manifest.gymweb} wrote the backup, and this is {settings.VERSION}, which does not know the "
            f"migration {unknown}. Install GymWeb {manifest.gymweb} or newer."
        )
    if gap := find_gap(manifest.migrations):
        raise BackupError(f"This version cannot restore the backup: {gap}.")


def _check_installation(*, replace: bool) -> None:
    tables = set(connection.introspection.table_names())
    if Worker._meta.db_table in tables:
        live = Worker.objects.filter(state__in=STATES_WITH_LEASE, lease_expires_at__gte=server_now()).count()
        if live:
            raise BackupError(
                f"{live} workers are running. Stop all processes first. A killed worker counts as running for "
                f"{settings.WORKER_LEASE_SECONDS:g} seconds."
            )
    if replace:
        return
    filled = [
        str(model._meta.verbose_name_plural)
        for model in (User, PolicyModel, Dataset, Collection)
        if model._meta.db_table in tables and model._default_manager.exists()
    ]
    filled += [str(path) for path in (settings.UPLOADS_DIR, settings.EXPORTS_DIR) if any(Path(path).iterdir())]
    if filled:
        raise BackupError(f"This installation has data: {', '.join(filled)}. --replace deletes it and restores.")


def _copy_files(backup: Path, manifest: Manifest, place: str, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    for name, file in manifest.files.items():
        if name.startswith(f"{place}/"):
            copied = copy_hashed(backup / name, target / name.removeprefix(f"{place}/"))
            if copied.sha256 != file.sha256:
                raise BackupError(f"{backup / name} changed while it was copied. Restore again.")
    sync_folders(target)


def _swap(fresh: Path, target: Path) -> None:
    old = _beside(target, "replaced")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.replace(old)
    fresh.replace(target)
    shutil.rmtree(old, ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _correct_rows(manifest: Manifest) -> None:
    """Point exports to the folder of this installation, and queue rollouts and jobs that were running."""
    old, new = Path(manifest.exports_folder), Path(settings.EXPORTS_DIR).absolute()
    for export in Export.objects.filter(path__startswith=f"{old}/").only("path"):
        Export.objects.filter(pk=export.pk).update(path=str(new / Path(export.path).relative_to(old)))
    for worker_id in Worker.objects.filter(state__in=STATES_WITH_LEASE).values_list("pk", flat=True):
        release_lease(worker_id=worker_id)
    let_go_of_all()
