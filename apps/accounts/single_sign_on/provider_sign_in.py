"""Create and update the accounts of users who sign in at the identity provider."""

import re
import unicodedata
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.http import HttpRequest

from apps.accounts.audit_log import record
from apps.accounts.models import Role, User
from apps.accounts.sessions.browser_sessions import end_sessions_of
from apps.accounts.sign_in import SignInRefused
from apps.accounts.single_sign_on.group_roles import find_role, groups_of
from apps.accounts.user_accounts import create_user
from apps.gym.user_names import find_mixed_alphabets, simplify_name

_NAME_LENGTH = 150
_EMAIL_LENGTH = 254
# A letter of another script can look like a Latin one, so a name could imitate another user's.
_NOT_IN_NAMES = re.compile(r"[^\w.@+-]+", re.ASCII)


def sign_in_with_claims(*, request: HttpRequest, claims: dict[str, Any]) -> User:
    """Return the account of the user, created or updated by the claims. Raise SignInRefused.

    The account is found by issuer and subject. E-mail addresses and names do not identify anyone: a provider may let
    users choose them, so they must not open an account that exists.
    """
    try:
        user, refusal = _sign_in(request, claims)
    except (IntegrityError, ValidationError):
        raise SignInRefused("An account with your name was created at the same moment. Sign in again.") from None
    if user is None:
        raise SignInRefused(refusal)
    return user


@transaction.atomic
def _sign_in(request: HttpRequest, claims: dict[str, Any]) -> tuple[User | None, str]:
    """Return the account and an empty string, or None and the reason of the refusal, which is recorded."""
    role, user = find_role(claims), _lock_user(claims)
    if role is None:
        _suspend(request, claims, user)
        return None, "You are in no group that has access to GymWeb. Ask an admin to add you to one."
    if user is not None and not user.is_active and not user.is_suspended:
        record(user=None, action="sign_in.refuse", target=user, request=request, reason="deactivated")
        return None, "Your account is deactivated. Ask an admin to reactivate it."
    user = _update_user(user, role) if user else _create_user(claims, role)
    record(user=user, action="sign_in.provider", target=user, request=request)
    return user, ""


def _lock_user(claims: dict[str, Any]) -> User | None:
    """Return the locked account, if any, so that no admin deactivates it before it is updated."""
    accounts = SocialAccount.objects.filter(provider=settings.OIDC.provider_id, uid=claims["sub"])
    return User.objects.select_for_update().filter(pk__in=accounts.values("user")).first()


def _suspend(request: HttpRequest, claims: dict[str, Any], user: User | None) -> None:
    """Deactivate the account, if any, of a user who is in no mapped group."""
    if user is not None and user.is_active:
        User.objects.filter(pk=user.pk).update(is_active=False, is_suspended=True)
        end_sessions_of(person=user, by=None)
        record(user=None, action="user.suspend", target=user, request=request)
    target = user or _name_of(claims)
    record(user=None, action="sign_in.refuse", target=target, request=request, groups=groups_of(claims))


def _update_user(user: User, role: Role) -> User:
    """Give the user the role of their groups. The provider decides, even about the last admin."""
    before = {"role": user.role, "is_active": user.is_active}
    user.role, user.is_active, user.is_suspended = role, True, False
    user.save(update_fields=["role", "is_active", "is_suspended"])
    after = {"role": user.role, "is_active": user.is_active}
    if before != after:
        record(user=user, action="user.edit", target=user, before=before, after=after, by="identity provider")
    return user


def _create_user(claims: dict[str, Any], role: Role) -> User:
    user = create_user(username=_free_name(_name_of(claims)), role=role, email=_email_of(claims))
    SocialAccount.objects.create(user=user, provider=settings.OIDC.provider_id, uid=claims["sub"], extra_data={})
    return user


def _name_of(claims: dict[str, Any]) -> str:
    """Return a valid user name from the claims."""
    given = (claims.get(name) for name in ("preferred_username", "email", "sub"))
    names = (_NOT_IN_NAMES.sub("-", _without_accents(one)).strip("-") for one in given if isinstance(one, str))
    return next((one for one in names if one and not find_mixed_alphabets(one)), "user")[:_NAME_LENGTH]


def _without_accents(text: str) -> str:
    """Return the text with accented and compatibility characters replaced by plain ones, for example é by e."""
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def _free_name(wanted: str) -> str:
    """Return the name, with a number if another account has it, or one that looks alike."""
    name, number = wanted, 1
    taken = {simplify_name(one) for one in User.objects.values_list("username", flat=True)}
    while simplify_name(name) in taken:
        number += 1
        suffix = f"-{number}"
        name = f"{wanted[: _NAME_LENGTH - len(suffix)]}{suffix}"
    return name


def _email_of(claims: dict[str, Any]) -> str:
    email = claims.get("email")
    if not isinstance(email, str) or len(email) > _EMAIL_LENGTH or claims.get("email_verified") is False:
        return ""
    try:
        validate_email(email)
    except ValidationError:
        return ""
    return email
