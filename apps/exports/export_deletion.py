"""Cancel an export, or delete it with the files in the exports folder."""

import shutil
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.models import User
from apps.exports.export_folders import default_path, manifest_path, sweep_parts
from apps.exports.models import Export
from apps.gym.request_refusals import Refusal
from apps.pairs.pair_sets import CannotCancel


class StillBeingWritten(Refusal, status=409, code="being-written"):
    """Raised while a worker writes the export."""


def delete_export(*, export: Export, user: User | None = None) -> None:
    """Delete an export. Raise StillBeingWritten. Files that a command wrote outside the exports folder are kept."""
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
    else:
        path.unlink(missing_ok=True)
        manifest_path(path).unlink(missing_ok=True)


def cancel_export(*, export: Export, user: User | None = None) -> Export:
    """Cancel an export. Idempotent. Raise CannotCancel if it has ended."""
    unfinished = {"state__in": [Export.State.QUEUED, Export.State.WRITING]}
    cancelled = {"state": Export.State.CANCELLED, "touched_at": timezone.now()}
    update_row(export, cancelled, only=unfinished, user=user, action="export.cancelled", target=export)
    if export.state != Export.State.CANCELLED:
        raise CannotCancel(f"Export #{export.pk} is {export.state}: only an unfinished export can be cancelled.")
    return export
