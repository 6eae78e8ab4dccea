"""Signing in: by password, throttled; by a one-time link, like a notebook server's."""

import hashlib
import secrets
import time
from datetime import timedelta

from django.contrib.auth import authenticate
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.addressing import client_address, tells_clients_apart
from apps.accounts.auditing import record
from apps.accounts.counting import add, forget, network_of
from apps.accounts.models import SignInLink, User

TRIES_PER_NAME = 10
TRIES_PER_ADDRESS = 50
TRIES_WINDOW_SECONDS = 15 * 60


class SignInRefused(Exception):
    """Says the same for a wrong name, a wrong password and a closed account, so names cannot be found out."""

    def __init__(self, message: str = "This user name and password do not match.") -> None:
        super().__init__(message)


class TooManyTries(SignInRefused):
    """Even the right password is refused until the window ends."""

    def __init__(self, retry_after: int = TRIES_WINDOW_SECONDS) -> None:
        super().__init__("Too many tries. Wait a quarter of an hour, or ask an admin for a sign-in link.")
        self.retry_after = retry_after


def sign_in_with_password(*, request: HttpRequest, username: str, password: str) -> User:
    """The user whose password this is; raises SignInRefused or TooManyTries. The caller opens the session."""
    address = client_address(request)
    # Counted by name and address together, so that a stranger cannot lock a person out from elsewhere.
    name_key = f"sign-in {network_of(address)} {username.lower()}"
    address_key = f"sign-in {network_of(address)}"
    # Counted before the password is looked at, and the count is what is judged: tries sent at once, to whichever
    # process, do not all pass.
    _count(name_key, TRIES_PER_NAME)
    if tells_clients_apart():
        _count(address_key, TRIES_PER_ADDRESS)
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        record(user=None, action="sign_in.refuse", target=username, request=request)
        raise SignInRefused
    forget(name_key)
    if tells_clients_apart():
        # People of one office share an address: those who get in must not use up its tries.
        add(address_key, -1, seconds=TRIES_WINDOW_SECONDS)
    record(user=user, action="sign_in.password", target=user, request=request)
    return user


def _count(key: str, most: int) -> None:
    number, ends_at = add(key, seconds=TRIES_WINDOW_SECONDS)
    if number > most:
        raise TooManyTries(max(1, ends_at - int(time.time())))


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
    record(user=link.user, action="sign_in.link", target=link.user)
    return link.user
