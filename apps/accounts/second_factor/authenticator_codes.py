"""Set up an authenticator app (TOTP, RFC 6238) for a user, check its codes, and remove it.

A code works once. Codes of one time step before and after now are accepted, because clocks differ.
"""

import time
from datetime import timedelta

import pyotp
from django.db import transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.encryption import Undecryptable, decrypt, encrypt
from apps.accounts.models import SecondFactor, User
from apps.accounts.second_factor.recovery_codes import delete_recovery_codes, replace_recovery_codes, use_recovery_code
from apps.accounts.sessions.browser_sessions import end_sessions_of
from apps.gym.request_refusals import Refusal

ISSUER = "GymWeb"
STEP_SECONDS = 30
DIGITS = 6
_TOLERANCE_STEPS = 1
_SETUP_TIME = timedelta(minutes=15)
_PURPOSE = "gymweb.accounts.second_factor.v1"


class SecondFactorRefused(Refusal, status=409, code="second-factor"):
    """Raised if two-factor authentication cannot be set up or removed."""


class CodeRefused(Refusal, status=400, code="wrong-code"):
    """Raised for a wrong, expired or used code."""

    def __init__(self, message: str = "This code is wrong, expired or already used. Enter the current code.") -> None:
        super().__init__(message, "code")


class FactorUnreadable(SecondFactorRefused):
    """Raised if the stored secret was encrypted with another GYMWEB_SECRET_KEY."""


def needs_code(user: User) -> bool:
    """Return True if the user has confirmed an authenticator app."""
    return SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).exists()


@transaction.atomic
def start_setup(*, user: User) -> SecondFactor:
    """Create a secret that the user must confirm with a code within 15 minutes. It replaces an unconfirmed one."""
    if not user.has_usable_password():
        raise SecondFactorRefused("Set a password first.")
    if needs_code(user):
        raise SecondFactorRefused("Two-factor authentication is already on. Turn it off first to use another app.")
    secret = encrypt(pyotp.random_base32(), purpose=_PURPOSE)
    started = {"secret_encrypted": secret, "last_step": 0, "created_at": timezone.now()}
    factor, _ = SecondFactor.objects.update_or_create(user=user, defaults=started)
    record(user=user, action="second_factor.start", target=user)
    return factor


@transaction.atomic
def confirm_setup(*, user: User, code: str, session_key: str | None = None) -> list[str]:
    """Turn on two-factor authentication and end the user's sessions except `session_key`.

    Return the recovery codes, which are shown once. Raise SecondFactorRefused and CodeRefused.
    """
    factor = SecondFactor.objects.select_for_update().filter(user=user, confirmed_at=None).first()
    if factor is None or _has_expired(factor):
        raise SecondFactorRefused("No setup is in progress, or it has expired. Start it on your account page.")
    if not _use_code(factor, code):
        raise CodeRefused
    SecondFactor.objects.filter(pk=factor.pk).update(confirmed_at=timezone.now())
    codes = replace_recovery_codes(user=user)
    record(user=user, action="second_factor.enable", target=user)
    end_sessions_of(person=user, by=user, keep=session_key)
    return codes


def find_setup(*, user: User) -> SecondFactor | None:
    """Return the user's app, confirmed or not. An unconfirmed one that is old or unreadable counts as none."""
    factor = SecondFactor.objects.filter(user=user).first()
    if factor is not None and factor.confirmed_at is None:
        if _has_expired(factor):
            return None
        try:
            read_secret(factor)
        except FactorUnreadable:
            return None
    return factor


def _has_expired(factor: SecondFactor) -> bool:
    """Return True if the user has not confirmed the app in time."""
    return factor.confirmed_at is None and factor.created_at < timezone.now() - _SETUP_TIME


@transaction.atomic
def remove_second_factor(*, user: User, by: User | None) -> bool:
    """Turn off two-factor authentication and delete its recovery codes. Return True if it was on."""
    delete_recovery_codes(user=user)
    was_on = needs_code(user)
    SecondFactor.objects.filter(user=user).delete()
    if was_on:
        record(user=by, action="second_factor.remove", target=user)
    return was_on


def remove_second_factor_of(*, person: User, by: User) -> bool:
    """Turn off two-factor authentication of another user. Raise SecondFactorRefused for one's own."""
    if person.pk == by.pk:
        raise SecondFactorRefused("Turn off your own two-factor authentication on your account page. It needs a code.")
    return remove_second_factor(user=person, by=by)


@transaction.atomic
def check_code(*, user: User, code: str) -> None:
    """Use up a code of the app or a recovery code. Raise CodeRefused and FactorUnreadable."""
    factor = SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).first()
    if factor is None:
        raise CodeRefused
    is_app_code = len("".join(code.split())) <= DIGITS
    if not (_use_code(factor, code) if is_app_code else use_recovery_code(user=user, code=code)):
        raise CodeRefused


def read_secret(factor: SecondFactor) -> str:
    """Return the secret in Base32. Raise FactorUnreadable."""
    try:
        return decrypt(factor.secret_encrypted, purpose=_PURPOSE)
    except Undecryptable:
        raise FactorUnreadable(
            "Codes cannot be checked, because GYMWEB_SECRET_KEY has changed. Ask an admin to turn off "
            "two-factor authentication for your account."
        ) from None


def setup_uri(factor: SecondFactor) -> str:
    """Return the otpauth:// URI that authenticator apps read from a QR code."""
    return pyotp.TOTP(read_secret(factor)).provisioning_uri(name=factor.user.username, issuer_name=ISSUER)


def _use_code(factor: SecondFactor, code: str) -> bool:
    given = "".join(code.split())
    if not given.isascii() or not given.isdigit():
        return False
    totp = pyotp.TOTP(read_secret(factor), digits=DIGITS, interval=STEP_SECONDS)
    now = int(time.time()) // STEP_SECONDS
    for step in range(now - _TOLERANCE_STEPS, now + _TOLERANCE_STEPS + 1):
        if pyotp.utils.strings_equal(totp.generate_otp(step), given):
            # If two browsers send the code at once, only one UPDATE matches.
            return bool(SecondFactor.objects.filter(pk=factor.pk, last_step__lt=step).update(last_step=step))
    return False
