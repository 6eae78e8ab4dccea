"""Who works at a reverification: one worker at a time, fenced by its attempt, and another one when it is lost."""

import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils import timezone

from apps.accounts.job_retries import claimed, put_back
from apps.gym import process_exit
from apps.gym.errors import GymError
from apps.gym.redaction.shortening import cut_clean
from apps.rollouts.models import Reverification

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
QUIET = timedelta(minutes=5)
REFUSED_WAIT = timedelta(minutes=1)
"""How long a reverification waits whose judge or environment takes no calls for now."""

State = Reverification.State


class FencedOut(Exception):
    """Somebody else has taken it over, or cancelled it."""


class _TimeIsUp(Exception):
    """Others wait for this worker: the rest is done later, from where it stopped."""


class Owner(NamedTuple):
    """Whoever works at it now. `write` fails where somebody else does, or it was cancelled.

    `until` is a monotonic time after which it is put back between two pieces.
    """

    reverification: Reverification
    attempt: int
    state: str
    until: float = math.inf

    def pause_here(self) -> None:
        """Between two pieces: whether to go on. Raises Leaving, or what puts it back."""
        process_exit.check()
        if time.monotonic() >= self.until:
            raise _TimeIsUp

    def write(self, **fields: Any) -> None:
        mine = Reverification.objects.filter(pk=self.reverification.pk, attempt=self.attempt, state=self.state)
        if not mine.update(**{"touched_at": timezone.now(), **fields}):
            raise FencedOut


def as_owner(reverification: Reverification, state: str, work: Callable[[Owner], None], *, seconds: float) -> None:
    """Do the work for at most so many seconds; what is left goes back into `state`."""
    doing = State.VERIFYING if state == State.QUEUED else State.APPLYING
    attempt = reverification.attempt + 1
    waiting = Reverification.objects.filter(pk=reverification.pk, state=state, attempt=reverification.attempt)
    if not waiting.update(state=doing, attempt=attempt, **claimed()):
        return
    owner = Owner(reverification, attempt, doing, time.monotonic() + seconds)
    mine = Reverification.objects.filter(pk=reverification.pk, attempt=attempt, state=doing)
    try:
        work(owner)
    except process_exit.Leaving:
        mine.update(state=state, attempt=attempt - 1)
        logger.info("reverification %s is left to another worker", reverification.pk)
    except _TimeIsUp:
        mine.update(state=state, attempt=attempt - 1)
    except FencedOut:
        logger.info("reverification %s was taken over or cancelled", reverification.pk)
    except Exception as problem:
        if put_back(mine, problem, state=state, attempt=attempt - 1):
            return
        if isinstance(problem, GymError) and problem.refused_by:
            again = {"retry_at": timezone.now() + REFUSED_WAIT, "message": cut_clean(str(problem), 500)}
            mine.update(state=state, attempt=attempt - 1, **again)
            return
        # The row is where people look for what went wrong; the log keeps the traceback of what is no expected failure.
        if not isinstance(problem, GymError):
            logger.exception("reverification %s failed", reverification.pk)
        message = cut_clean(f"{type(problem).__name__}: {problem}", 500)
        mine.update(state=State.FAILED, message=message, finished_at=timezone.now())


def requeue_quiet() -> None:
    """Give what lost its worker to another."""
    quiet = Reverification.objects.filter(touched_at__lt=timezone.now() - QUIET)
    lost = quiet.filter(Q(state=State.VERIFYING) | Q(state=State.APPLYING, attempt__gt=0))
    if not lost.exists():
        return
    lost.filter(attempt__gte=MAX_ATTEMPTS).update(
        state=State.FAILED, message=f"Its worker was lost {MAX_ATTEMPTS} times.", finished_at=timezone.now()
    )
    lost.filter(state=State.VERIFYING).update(state=State.QUEUED)
    # An application goes on where it stopped: each rollout is changed in one transaction with its mark.
    lost.filter(state=State.APPLYING).update(attempt=0)
