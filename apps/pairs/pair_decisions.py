"""Accept or reject pairs, or withdraw the decision. Every change is kept as history."""

from collections.abc import Sequence

from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.pairs.models import PairDecision, PreferencePair
from apps.policies.redacted_fields import redact_input

MAX_REASON = 500
Status = PreferencePair.Status


class DecisionRefused(Refusal):
    """Raised for an invalid decision. `argument` is the field to change."""


def decide_pairs(*, pairs: Sequence[PreferencePair], status: str, reason: str = "", user: User | None = None) -> int:
    """Set the decision about these pairs and return how many changed. A rejection needs a reason.

    Raise DecisionRefused.
    """
    reason = redact_input(reason.strip())
    if status not in Status.values:
        raise DecisionRefused(f"The status must be one of: {', '.join(Status.values)}.", "status")
    if status == Status.REJECTED and not reason:
        raise DecisionRefused("Give a reason.", "reason")
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
