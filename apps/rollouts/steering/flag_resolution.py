"""Somebody has looked at rollouts that had credentials in them: their flags go, the counts stay."""

from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.rollouts.models import Collection, Rollout

CHUNK = 2_000
"""Rows a transaction."""


def resolve_flag(*, rollout: Rollout, user: User | None = None) -> Rollout:
    """Its trace may be exported again. Resolving twice is once."""
    with transaction.atomic():
        if Rollout.objects.filter(pk=rollout.pk, flagged=True).update(flagged=False):
            record(user=user, action="rollout.flag_resolved", target=f"rollout {rollout.pk}", **rollout.redactions)
    rollout.refresh_from_db()
    return rollout


def resolve_flags(*, collection: Collection, user: User | None = None) -> int:
    """Those of a whole collection that have ended; gives how many there were."""
    ended = [Rollout.Status.COMPLETED, Rollout.Status.FAILED, Rollout.Status.CANCELLED]
    flagged = Rollout.objects.filter(collection=collection, flagged=True, status__in=ended).order_by("pk")
    total = 0
    while chunk := list(flagged.values_list("pk", flat=True)[:CHUNK]):
        total += Rollout.objects.filter(pk__in=chunk, flagged=True).update(flagged=False)
    if total:
        record(user=user, action="collection.flags_resolved", target=f"collection {collection.pk}", rollouts=total)
    return total
