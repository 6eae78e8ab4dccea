"""The audit log: every operation that changes something says here who did what to what."""

from typing import Any

from apps.accounts.models import AuditEntry, User


def record(*, user: object, action: str, target: object = "", **detail: Any) -> AuditEntry:
    """Write one entry; `action` is `noun.verb`, such as `dataset.create`. Never pass a secret in `detail`."""
    # Commands and the engine act without a person; anonymous callers have no row to point to.
    actor = user if isinstance(user, User) and user.pk else None
    return AuditEntry.objects.create(user=actor, action=action, target=str(target)[:200], detail=detail)
