"""Save and delete trackers. The credential is write-only."""

from django.db import transaction

from apps.accounts.audit_log import describe, record
from apps.accounts.models import User
from apps.gym.calls.outbound_policy import OutboundRefused
from apps.policies.row_checks import check_row, find_url_problem, lock_stored, save_row
from apps.policies.secrets import encrypt_secret
from apps.tracking.models import Tracker
from apps.tracking.wandb_servers import check_wandb_server

Kind = Tracker.Kind
MAX_SECRET = 500


def save_tracker(*, tracker: Tracker, secret: str | None, user: User | None = None) -> Tracker:
    """Create or change a tracker. With None, the stored credential is kept; an empty text deletes it.

    Raise ValidationError by field.
    """
    tracker.address = tracker.address.strip().rstrip("/")
    secret = secret.strip() if secret is not None else None
    with transaction.atomic():
        stored = lock_stored(tracker)
        check_row(tracker, _find_problems(tracker, stored, secret), validate_constraints=False)
        if secret is not None:
            tracker.secret_encrypted = encrypt_secret(secret) if secret else ""
        if stored is None:
            tracker.created_by = user
        save_row(tracker, stored, user=user, noun="tracker", target=tracker.name, secret_changed=secret is not None)
    return tracker


def _find_problems(tracker: Tracker, stored: Tracker | None, secret: str | None) -> dict[str, list[str]]:
    has_secret = bool(secret) if secret is not None else bool(stored and stored.secret_encrypted)
    changes_kind = stored is not None and stored.kind != tracker.kind and stored.runs.exists()
    found = {
        "kind": "This tracker has runs, so its kind cannot change. Create another tracker." if changes_kind else "",
        "address": _address_problem(tracker, has_secret=has_secret),
        "secret": _secret_problem(tracker, stored, secret) if has_secret else "",
    }
    return {field: [problem] for field, problem in found.items() if problem}


def _secret_problem(tracker: Tracker, stored: Tracker | None, secret: str | None) -> str:
    if tracker.kind in (Kind.TENSORBOARD, Kind.TRACKIO):
        return f"{tracker.get_kind_display()} writes local files. Leave the credential empty."
    if secret is None and stored and (stored.address, stored.kind) != (tracker.address, tracker.kind):
        # A credential must not reach another server than the one that it was entered for.
        return "Enter the credential again, because the URL or the kind has changed."
    return ""


def _address_problem(tracker: Tracker, *, has_secret: bool) -> str:
    if tracker.kind == Kind.MLFLOW and not tracker.address:
        return "Enter the URL of the MLflow server."
    if tracker.kind in (Kind.TENSORBOARD, Kind.TRACKIO) and tracker.address:
        return f"{tracker.get_kind_display()} writes local files. Leave the URL empty."
    if tracker.kind == Kind.WANDB and tracker.address and not has_secret:
        return "Enter an API key too, or leave the URL empty to write offline files."
    if not tracker.address or tracker.kind != Kind.WANDB:
        return find_url_problem(tracker.address) if tracker.address else ""
    try:
        check_wandb_server(tracker.address)
    except OutboundRefused as error:
        return str(error)
    return ""


def delete_tracker(*, tracker: Tracker, user: User | None = None) -> None:
    """Delete a tracker with its links. Workers delete local files of its runs. Runs on its server are kept."""
    with transaction.atomic():
        record(user=user, action="tracker.delete", target=tracker.name, before=describe(tracker))
        tracker.delete()
