"""Delete an export: its row, and its files where this server wrote them into its own folder."""

import shutil
from pathlib import Path

from django.conf import settings
from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.exports.export_folders import default_path, manifest_path, sweep_parts
from apps.exports.models import Export
from apps.gym.request_refusals import Refusal


class StillBeingWritten(Refusal, status=409, code="being-written"):
    """A worker writes its file."""


def delete_export(*, export: Export, user: User | None = None) -> None:
    """Raises StillBeingWritten. Files that a command wrote somewhere else stay with whoever asked for them."""
    with transaction.atomic():
        locked = Export.objects.select_for_update().get(pk=export.pk)
        if locked.state == Export.State.WRITING:
            raise StillBeingWritten(f"Export #{locked.pk} is being written: cancel it first.")
        path = Path(locked.path) if locked.path else None
        own = default_path(locked)
        record(user=user, action="export.deleted", target=f"export {locked.pk}", collection=locked.collection_id)
        locked.delete()
        transaction.on_commit(lambda: sweep_parts(own, export.pk))
        if path is not None and path.parent == Path(settings.EXPORTS_DIR).absolute():
            transaction.on_commit(lambda: _remove(path))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    # Exports of earlier versions were one file, with the manifest beside it.
    path.unlink(missing_ok=True)
    manifest_path(path).unlink(missing_ok=True)
