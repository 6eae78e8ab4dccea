"""Flag a rollout or one of its steps with a kind of problem."""

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.gym.redaction.shortening import cut
from apps.gym.request_refusals import Refusal
from apps.policies.redacted_fields import redact_input
from apps.reviews.models import Flag
from apps.rollouts.models import Rollout

MAX_NOTE = 1_000


class FlagRefused(Refusal, code="flag-refused"):
    """Raised for an unknown kind or event, a note that is too long, or a flag of another user."""


def raise_flag(*, rollout: Rollout, kind: str, author: User, seq: int | None = None, note: str = "") -> Flag:
    """Flag a rollout, or event `seq` of its latest attempt.

    A repeated flag of the same user is stored once. Raise FlagRefused.
    """
    if kind not in Flag.Kind.values:
        raise FlagRefused(f"Unknown flag “{cut(kind, 50)}”. Choose one of: {', '.join(Flag.Kind.values)}.")
    note = note.strip()
    if len(note) > MAX_NOTE:
        raise FlagRefused(f"A note has at most {MAX_NOTE:,} characters; this one has {len(note):,}.")
    if seq is not None and not rollout.events.filter(attempt=rollout.attempt, seq=seq).exists():
        raise FlagRefused(f"The rollout's latest attempt has no event {seq}.")
    clean = redact_input(note)
    with transaction.atomic():
        # Lock the rollout, so that concurrent flags of one user are stored once.
        Rollout.objects.select_for_update().only("pk").get(pk=rollout.pk)
        standing = Flag.objects.filter(rollout=rollout, kind=kind, author=author, seq=seq, withdrawn_at__isnull=True)
        flag = standing.first()
        if flag is not None and flag.note == clean:
            return flag
        flag = flag or Flag(rollout=rollout, kind=kind, author=author, seq=seq)
        before, flag.note = {"note": flag.note} if flag.pk else {}, clean
        flag.save()
        target = f"rollout {rollout.pk}"
        record(user=author, action="flag.raise", target=target, before=before, flag=kind, seq=seq, note=clean)
    return flag


def withdraw_flag(*, flag: Flag, user: User) -> Flag:
    """Withdraw a flag: your own, or any flag if you manage queues. It is kept as history. Raise FlagRefused."""
    if flag.author_id != user.pk and not user_may(user, Permission.LEAD):
        raise FlagRefused("Only the author, an engineer or an admin can withdraw this flag.")
    with transaction.atomic():
        ended = Flag.objects.filter(pk=flag.pk, withdrawn_at__isnull=True).update(
            withdrawn_at=timezone.now(), withdrawn_by=user
        )
        if ended:
            record(user=user, action="flag.withdraw", target=f"rollout {flag.rollout_id}", flag=flag.kind, seq=flag.seq)
    flag.refresh_from_db()
    return flag
