"""Decide of pairs: accept or reject them, or take that back. Every change is kept with its reason."""

from collections.abc import Sequence

from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.pairs.models import PairDecision, PreferencePair
from apps.policies.typed_texts import clean_typed

MAX_REASON = 500
Status = PreferencePair.Status


class DecisionRefused(Refusal):
    """A decision that cannot stand like this; `argument` is the one to change."""


def decide_pairs(*, pairs: Sequence[PreferencePair], status: str, reason: str = "", user: User | None = None) -> int:
    """How many had another status, or another reason for theirs. What a trainer must not see is rejected with a reason.

    Raises DecisionRefused.
    """
    reason = clean_typed(reason.strip())
    if status not in Status.values:
        raise DecisionRefused(f"A pair is one of: {', '.join(Status.values)}.", "status")
    if status == Status.REJECTED and not reason:
        raise DecisionRefused("Say why: whoever reads the export's counts will ask.", "reason")
    if len(reason) > MAX_REASON:
        raise DecisionRefused(f"The reason has at most {MAX_REASON} characters.", "reason")
    with transaction.atomic():
        ids = [pair.pk for pair in pairs]
        rows = {row.pk: row for row in PreferencePair.objects.select_for_update().filter(pk__in=ids)}
        last = {one.pair_id: one.reason for one in PairDecision.objects.filter(pair_id__in=rows).order_by("id")}
        changed = [row for row in rows.values() if row.status != status or last.get(row.pk, "") != reason]
        PreferencePair.objects.filter(pk__in=[row.pk for row in changed]).update(status=status)
        PairDecision.objects.bulk_create(
            PairDecision(pair=row, status=status, reason=reason, user=user) for row in changed
        )
        if changed:
            target = str(changed[0]) if len(changed) == 1 else f"{len(changed)} pairs"
            record(user=user, action="pair.decided", target=target, status=status, pairs=len(changed))
    return len(changed)
