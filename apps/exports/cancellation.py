"""Cancel an export that waits or is being written: its writer notices within seconds, and keeps nothing."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.exports.models import Export
from apps.pairs.pair_sets import CannotCancel


def cancel_export(*, export: Export, user: User | None = None) -> Export:
    """Raises CannotCancel for one that has ended; cancelling twice is once."""
    going_on = Export.objects.filter(pk=export.pk, state__in=[Export.State.QUEUED, Export.State.WRITING])
    with transaction.atomic():
        if going_on.update(state=Export.State.CANCELLED, touched_at=timezone.now()):
            record(user=user, action="export.cancelled", target=export)
    export.refresh_from_db()
    if export.state != Export.State.CANCELLED:
        raise CannotCancel(f"Export #{export.pk} is {export.state}: only one that is not written yet can be cancelled.")
    return export
