"""Ownership of a reverification or recheck: one worker at a time works on it; another takes over if it is lost."""

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from django.utils import timezone

from apps.gym import process_exit
from apps.gym.errors import GymError
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.models import Reverification
from apps.tasks import fenced_jobs

REFUSED_WAIT = timedelta(minutes=1)
"""Wait before continuing a reverification whose judge or environment accepts no calls for now."""

State = Reverification.State


class _TimeIsUp(Exception):
    """Raised at the end of a worker's turn, so that its other background jobs can run. Work continues later."""


class Owner(NamedTuple):
    """The worker's ownership of a job.

    `until` is the monotonic time at which the work returns to the queue.
    """

    row: Any
    attempt: fenced_jobs.Attempt
    until: float = math.inf

    def pause_here(self) -> None:
        """Check between two pieces whether to continue. Raise Leaving on shutdown, _TimeIsUp at the end of the turn."""
        process_exit.check()
        if time.monotonic() >= self.until:
            raise _TimeIsUp

    def write(self, **fields: Any) -> None:
        """Update the row. Raise FencedOut if another worker owns the work or it was cancelled."""
        self.attempt.write(**fields)


def as_owner(row: Any, work: Callable[[Owner], None], *, doing: str, seconds: float) -> None:
    """Run `work` in state `doing` for at most `seconds`, and return unfinished work to the present state."""
    waiting = type(row)._default_manager.filter(state=row.state, attempt=row.attempt)
    attempt = fenced_jobs.claim(waiting, row.pk, doing=doing, queued=row.state)
    if attempt is None:
        return
    with attempt.store_errors():
        try:
            work(Owner(row, attempt, time.monotonic() + seconds))
        except _TimeIsUp:
            attempt.requeue()
        except GymError as problem:
            # An expected failure: it is shown on the row.
            if problem.refused_by:
                attempt.requeue(retry_at=timezone.now() + REFUSED_WAIT, message=cut_clean(str(problem), 500))
            else:
                attempt.fail(problem)


def requeue_unresponsive() -> None:
    """Requeue reverifications whose worker was lost."""
    fenced_jobs.requeue_unresponsive(Reverification.objects.filter(state=State.VERIFYING), queued=State.QUEUED)
    # Applying continues where it stopped: each rollout is marked in the transaction that changes it.
    quiet = timezone.now() - fenced_jobs.QUIET
    lost = Reverification.objects.filter(state=State.APPLYING, attempt__gt=0, touched_at__lt=quiet)
    if lost.exists():
        lost.update(attempt=0)
