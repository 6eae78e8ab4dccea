"""Signing in: by password, throttled; by a one-time link, like a notebook server's."""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth import authenticate
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import SignInLink, User
from apps.accounts.sign_in_limits import SignInLimits, clear_account


class SignInRefused(Exception):
    """Says the same for a wrong name, a wrong password and a closed account, so names cannot be found out."""

    def __init__(self, message: str = "This user name and password do not match.") -> None:
        super().__init__(message)


class TooManyTries(SignInRefused):
    """Raised while even the right password is refused; `retry_after` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        minutes = -(-retry_after // 60)
        wait = "1 minute" if minutes == 1 else f"{minutes} minutes"
        super().__init__(f"Too many failed sign-ins. Try again in {wait}, or ask an admin for a sign-in link.")
        self.retry_after = retry_after


def sign_in_with_password(*, request: HttpRequest, username: str, password: str) -> User:
    """Return the user whose password this is. Raises SignInRefused or TooManyTries. The caller opens the session."""
    limits = SignInLimits(request, username)
    if seconds := limits.count():
        raise TooManyTries(seconds)
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        record(user=None, action="sign_in.refuse", target=username, request=request)
        raise SignInRefused
    limits.clear()
    record(user=user, action="sign_in.password", target=user, request=request)
    return user


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@transaction.atomic
def create_sign_in_link(*, user: User, minutes: int = 60, by: User | None = None) -> str:
    """A token that signs `user` in once within the time."""
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(
        user=user, token_hash=_hash(token), expires_at=timezone.now() + timedelta(minutes=minutes)
    )
    record(user=by, action="sign_in_link.create", target=user, minutes=minutes)
    return token


def is_open(token: str) -> bool:
    """Whether the link would sign somebody in now. Looking does not use it up."""
    links = SignInLink.objects.filter(token_hash=_hash(token), user__is_active=True)
    return links.filter(used_at__isnull=True, expires_at__gt=timezone.now()).exists()


@transaction.atomic
def redeem_sign_in_link(token: str) -> User | None:
    """The link's user, once; None for a link that is used, expired, unknown, or whose user is closed."""
    now = timezone.now()
    link = SignInLink.objects.filter(token_hash=_hash(token), user__is_active=True).select_related("user").first()
    if link is None:
        return None
    # The UPDATE's row count says who won when two browsers open the link at once.
    if not SignInLink.objects.filter(pk=link.pk, used_at__isnull=True, expires_at__gt=now).update(used_at=now):
        return None
    clear_account(link.user.username)
    record(user=link.user, action="sign_in.link", target=link.user)
    return link.user
