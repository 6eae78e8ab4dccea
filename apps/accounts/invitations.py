"""Inviting people: an account and the one-time link that opens it, together or not at all."""

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.sign_in import create_sign_in_link
from apps.accounts.user_accounts import create_user

INVITATION_MINUTES = 3 * 24 * 60


@transaction.atomic
def invite_person(*, username: str, role: str, email: str = "", by: User | None) -> tuple[User, str]:
    """The account, without a password, and the token of its sign-in link. Raises ValidationError."""
    person = create_user(username=username, role=role, email=email, by=by)
    return person, create_sign_in_link(user=person, minutes=INVITATION_MINUTES, by=by)
