"""Known devices: browsers in which a user has signed in before, identified by a signed cookie."""

import secrets
from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.crypto import constant_time_compare, salted_hmac

from apps.accounts.models import User

COOKIE = "device"
MAX_AGE = timedelta(days=365)
_SALT = "apps.accounts.known_devices"


def remember_device(response: HttpResponse, user: User) -> None:
    """Make the browser a known device of the user, until their password changes."""
    device = secrets.token_urlsafe(12)
    response.set_signed_cookie(
        COOKIE,
        f"{user.pk}:{device}:{_fingerprint(user, device)}",
        salt=_SALT,
        max_age=MAX_AGE,
        path=reverse("dashboard:sign_in"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def find_device(request: HttpRequest, account: User | None) -> str:
    """Return the id of the browser if it is a known device of the account, or an empty string."""
    signed = request.get_signed_cookie(COOKIE, default="", salt=_SALT, max_age=MAX_AGE)
    if not signed:
        return ""
    pk, device, fingerprint = signed.split(":")
    if account is None or pk != str(account.pk):
        return ""
    return device if constant_time_compare(fingerprint, _fingerprint(account, device)) else ""


def _fingerprint(user: User, device: str) -> str:
    # Includes the password hash, so that a new password invalidates all devices.
    return salted_hmac(_SALT, f"{device}:{user.password}", algorithm="sha256").hexdigest()
