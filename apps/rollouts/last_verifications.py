"""Read the last verification of rollouts: the one that their rewards come from."""

from collections.abc import Iterable

import msgspec
from django.db.models import OuterRef, Subquery

from apps.gym.traces.events import Verification
from apps.rollouts.models import Rollout, TraceEvent


def read_last_verifications(rollouts: Iterable[int]) -> dict[int, Verification]:
    """Return the last verification by rollout id. Rollouts whose last attempt has none are left out."""
    # Descending, because the verification is at the end of a trace that may have thousands of events.
    verified = TraceEvent.objects.filter(rollout=OuterRef("pk"), attempt=OuterRef("attempt"), kind="verification")
    payload = Subquery(verified.order_by("-seq").values("payload")[:1])
    rows = Rollout.objects.filter(pk__in=list(rollouts)).annotate(verified=payload).order_by()
    return {
        pk: msgspec.json.decode(payload, type=Verification)
        for pk, payload in rows.values_list("pk", "verified")
        if payload
    }
