"""Background jobs, done in the test's own process."""

from datetime import UTC, datetime

from apps.rollouts.models import Reverification
from apps.rollouts.reverification.reverification_jobs import continue_reverification

_FIRST = datetime(2000, 1, 1, tzinfo=UTC)


def finish_reverification(*, reverification: Reverification) -> Reverification:
    """Verify or apply what the reverification waits for, and return the row as it is then."""
    states = [Reverification.State.QUEUED, Reverification.State.APPLYING]
    if Reverification.objects.filter(pk=reverification.pk, state__in=states).update(touched_at=_FIRST):
        continue_reverification()
    reverification.refresh_from_db()
    return reverification
