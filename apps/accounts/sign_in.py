"""Sign in by password and code (throttled) or by one-time link, and create users with such a link."""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth import authenticate
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from apps.accounts.audit_log import record
from apps.accounts.models import SignInLink, User
from apps.accounts.second_factor.authenticator_codes import CodeRefused, FactorUnreadable, check_code
from apps.accounts.sessions.sign_in_limits import SignInLimits, Step, clear_account
from apps.accounts.user_accounts import create_user, is_managed, require_local_account

_NAME_SALT = "apps.accounts.sign_in"
FIRST_LINK_MINUTES = 3 * 24 * 60


_TOO_MANY: dict[Step, tuple[str, str]] = {
    "sign-in": ("Too many failed sign-ins", ", or ask an admin for a sign-in link"),
    "code": ("Too many wrong codes", ", or ask an admin to turn off two-factor authentication for your account"),
    "current password": ("Too many wrong passwords", ""),
}
_LONGEST_IN_MINUTES = 90


class SignInRefused(Exception):
    """Raised if signing in fails.

    The message is the same for an unknown name, a wrong password and a deactivated account, so that names cannot be
    probed.
    """

    def __init__(self, message: str = "This user name and password do not match.") -> None:
        super().__init__(message)


class TooManyTries(SignInRefused):
    """Raised while all tries are rejected, even with the right password. `retry_after` is in seconds."""

    def __init__(self, retry_after: int, step: Step = "sign-in") -> None:
        problem, remedy = _TOO_MANY[step]
        minutes = -(-retry_after // 60)
        number, unit = (-(-minutes // 60), "hour") if minutes > _LONGEST_IN_MINUTES else (minutes, "minute")
        super().__init__(f"{problem}. Try again in {number} {unit}{'' if number == 1 else 's'}{remedy}.")
        self.retry_after = retry_after


def sign_in_with_password(*, request: HttpRequest, username: str, password: str) -> User:
    """Return the user with this password. The caller opens the session. Raise SignInRefused or TooManyTries."""
    limits = SignInLimits(request, username)
    if seconds := limits.count():
        raise TooManyTries(seconds)
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User) or is_managed(user):
        _record_refusal(request, username, limits.account)
        raise SignInRefused
    limits.clear()
    record(user=user, action="sign_in.password", target=user, request=request)
    return user


def _record_refusal(request: HttpRequest, username: str, account: User | None) -> None:
    if account is not None:
        record(user=None, action="sign_in.refuse", target=account, request=request)
        return
    # Some users type their password into the name field. The hash shows which refusals have the same name.
    name_hash = salted_hmac(_NAME_SALT, username, algorithm="sha256").hexdigest()[:16]
    record(user=None, action="sign_in.refuse", target="unknown user", request=request, typed_name=name_hash)


def check_current_password(*, request: HttpRequest, user: User, password: str) -> None:
    """Check the password of a signed-in user, limited like sign-ins. Raise SignInRefused or TooManyTries."""
    limits = SignInLimits(request, user.username, step="current password")
    if seconds := limits.count():
        raise TooManyTries(seconds, "current password")
    if not user.check_password(password):
        record(user=user, action="password.refuse", target=user, request=request)
        raise SignInRefused("This is not your current password.")
    limits.clear()


def check_second_factor(*, request: HttpRequest, user: User, code: str) -> None:
    """Use up a code of the user's authenticator app or a recovery code. Raise SignInRefused or TooManyTries."""
    limits = SignInLimits(request, user.username, step="code")
    if seconds := limits.count():
        raise TooManyTries(seconds, "code")
    try:
        check_code(user=user, code=code)
    except (CodeRefused, FactorUnreadable) as refused:
        record(user=None, action="second_factor.refuse", target=user, request=request)
        raise SignInRefused(str(refused)) from None
    limits.clear()
    record(user=user, action="second_factor.check", target=user, request=request)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@transaction.atomic
def create_sign_in_link(*, user: User, minutes: int = 60, by: User | None = None) -> str:
    """Return a token that signs the user in once within `minutes`. Raise ManagedByProvider."""
    require_local_account(user)
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(
        user=user, token_hash=_hash(token), created_by=by, expires_at=timezone.now() + timedelta(minutes=minutes)
    )
    record(user=by, action="sign_in_link.create", target=user, minutes=minutes)
    return token


@transaction.atomic
def create_user_with_link(*, username: str, role: str, email: str = "", by: User | None) -> tuple[User, str]:
    """Create an account without a password. Return it with the token of a sign-in link. Raise ValidationError."""
    person = create_user(username=username, role=role, email=email, by=by)
    return person, create_sign_in_link(user=person, minutes=FIRST_LINK_MINUTES, by=by)


def is_open(token: str) -> bool:
    """Return True if the link is valid, without using it."""
    return SignInLink.objects.open().filter(token_hash=_hash(token)).exists()


@transaction.atomic
def redeem_sign_in_link(token: str) -> User | None:
    """Use the link and return its user. None if it is unknown, used or expired, or if the user may not use links."""
    link = SignInLink.objects.open().filter(token_hash=_hash(token)).select_related("user").first()
    if link is None or is_managed(link.user):
        return None
    # If two browsers open the link at once, only one UPDATE matches.
    if not SignInLink.objects.filter(pk=link.pk, used_at=None).update(used_at=timezone.now()):
        return None
    clear_account(link.user)
    record(user=link.user, action="sign_in.link", target=link.user)
    return link.user
