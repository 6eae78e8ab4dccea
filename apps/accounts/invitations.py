"""Invite users by a one-time link that fixes the role of the new account."""

import secrets
from datetime import timedelta
from hashlib import sha256

from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.models import Invitation, User
from apps.accounts.user_accounts import create_user
from apps.gym.request_refusals import Refusal

DEFAULT_DAYS = 7
MOST_DAYS = 30


class InvitationEnded(Refusal, status=410, code="invitation-ended"):
    """Raised if an invitation is unknown, used, revoked or expired."""

    def __init__(self) -> None:
        super().__init__("This invitation was already used or revoked, or has expired. Ask an admin for a new one.")


class InvitationAccepted(Refusal, status=409, code="invitation-accepted"):
    """Raised if an invitation to revoke has been accepted."""


@transaction.atomic
def create_invitation(
    *, role: str, email: str = "", days: int = DEFAULT_DAYS, by: User | None
) -> tuple[Invitation, str]:
    """Create an invitation. Return it with its token, which is not stored. Raise ValidationError."""
    token = secrets.token_urlsafe(32)
    expires_at = timezone.now() + timedelta(days=days)
    invitation = Invitation(role=role, email=email, created_by=by, token_hash=_hash(token), expires_at=expires_at)
    invitation.full_clean(exclude=["created_by", "accepted_by"])
    invitation.save()
    record(user=by, action="invitation.create", target=invitation, role=role, email=email, days=days)
    return invitation, token


def find_invitation(token: str) -> Invitation | None:
    """Return the open invitation of a token, without using it."""
    return Invitation.objects.open().filter(token_hash=_hash(token)).first()


@transaction.atomic
def accept_invitation(*, token: str, username: str, password: str) -> User:
    """Create the account of an invitation, which is used up. Raise InvitationEnded and ValidationError."""
    open_ones = Invitation.objects.open().filter(token_hash=_hash(token))
    invitation = open_ones.select_for_update(of=("self",)).first()
    # If two browsers accept at once, only one UPDATE matches. An error below undoes it.
    if invitation is None or not Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None).update(
        accepted_at=timezone.now()
    ):
        raise InvitationEnded
    user = create_user(username=username, role=invitation.role, email=invitation.email, password=password)
    Invitation.objects.filter(pk=invitation.pk).update(accepted_by=user)
    record(user=user, action="invitation.accept", target=invitation, role=invitation.role)
    return user


def revoke_invitation(*, invitation: Invitation, user: User | None) -> Invitation:
    """Revoke an invitation. Idempotent. Raise InvitationAccepted."""
    update_row(
        invitation,
        {"revoked_at": timezone.now()},
        only={"revoked_at": None, "accepted_at": None},
        user=user,
        action="invitation.revoke",
        target=invitation,
    )
    if invitation.accepted_at is not None:
        raise InvitationAccepted("This invitation was accepted. Deactivate the user instead.")
    return invitation


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()
