"""Store responses by idempotency key: repeated requests of a user take effect once and get the same response."""

import re
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.accounts.models import KeptAnswer, User
from apps.gym.process_names import has_ended, name_process
from apps.gym.request_refusals import Refusal

LOST_AFTER = timedelta(minutes=10)
"""Without a response for this long, a request is considered lost, and the next one with its key replaces it.

At once if its process has ended, which processes with the same GYMWEB_VAR can see, also after a restart.
"""
SWEPT_AT_ONCE = 1_000
MAX_KEY_LENGTH = 128
_KEY = re.compile(f"[!-~]{{1,{MAX_KEY_LENGTH}}}")


def find_key_problem(key: str) -> str:
    """Return why an idempotency key is invalid, or an empty string.

    An empty key is rejected too: a script that sends one expects protection that it would not get.
    """
    if _KEY.fullmatch(key):
        return ""
    actual = "is empty" if not key else f"has {len(key):,}" if len(key) > MAX_KEY_LENGTH else "has other characters"
    return f"takes 1 to {MAX_KEY_LENGTH} visible ASCII characters; this one {actual}."


class KeyReused(Refusal, status=422, code="idempotency-key-reused"):
    """Raised if the key was used for another request."""

    def __init__(self, message: str = "This Idempotency-Key was used for another request: choose a new one.") -> None:
        super().__init__(message)


class StillUnderWay(Refusal, status=409, code="idempotency-under-way"):
    """Raised while the first request with this key is in progress."""

    wait = 1

    def __init__(self) -> None:
        super().__init__("The first request with this Idempotency-Key is still in progress.")


def claim_key(*, user: User, key: str, fingerprint: str) -> KeptAnswer:
    """Claim a key. If `status` of the result is set, it is the stored response; otherwise this request is the first.

    Raise KeyReused and StillUnderWay.
    """
    forget_old(user=user, key=key)
    held = KeptAnswer.objects.filter(user=user, key=key, status__isnull=True)
    for pk, process in held.values_list("pk", "body"):
        if has_ended(settings.PROCESSES_DIR, process):
            held.filter(pk=pk, body=process).delete()
    try:
        with transaction.atomic():
            # The body names the process until the response replaces it.
            own = name_process(settings.PROCESSES_DIR)
            return KeptAnswer.objects.create(user=user, key=key, fingerprint=fingerprint, body=own)
    except IntegrityError:
        earlier = KeptAnswer.objects.filter(user=user, key=key).first()
    if earlier is None:
        # The first request has just failed, so this one becomes the first.
        raise StillUnderWay
    if earlier.fingerprint != fingerprint:
        raise KeyReused
    if earlier.status is None:
        raise StillUnderWay
    return earlier


def store_response(*, claim: KeptAnswer, status: int, body: str, location: str) -> None:
    """Store the response for later requests with the key."""
    KeptAnswer.objects.filter(pk=claim.pk).update(status=status, body=body, location=location)


def release_key(*, claim: KeptAnswer) -> None:
    """Release the key after a failed request that changed nothing."""
    KeptAnswer.objects.filter(pk=claim.pk, status__isnull=True).delete()


def forget_old(**which: Any) -> int:
    """Delete expired responses, and claims of processes that died. Return the number of deleted rows.

    `which` are field lookups that restrict the rows.
    """
    now = timezone.now()
    old = KeptAnswer.objects.filter(created_at__lt=now - timedelta(hours=settings.KEEP_ANSWERS_HOURS), **which)
    lost = KeptAnswer.objects.filter(created_at__lt=now - LOST_AFTER, status__isnull=True, **which)
    return old.delete()[0] + lost.delete()[0]


@background_job(every=60.0, on_full_disk=True)
def sweep_answers() -> bool:
    """Background job: delete some expired responses. Return True if there were any."""
    over = timezone.now() - timedelta(hours=settings.KEEP_ANSWERS_HOURS)
    some = KeptAnswer.objects.filter(created_at__lt=over).order_by("created_at").values_list("pk", flat=True)
    return KeptAnswer.objects.filter(pk__in=list(some[:SWEPT_AT_ONCE])).delete()[0] > 0
