"""Create and change accounts. There is no self-registration and no default password: admins invite users."""

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.db import transaction

from apps.accounts.api_keys import revoke_keys_of
from apps.accounts.audit_log import record
from apps.accounts.models import Role, User
from apps.accounts.sessions.browser_sessions import end_sessions_of
from apps.gym.request_refusals import Refusal


class LastAdmin(Refusal, status=409, code="last-admin"):
    """Raised if a change would remove the last admin."""


class ManagedByProvider(Refusal, status=409, code="managed-by-provider"):
    """Raised if a change belongs to the identity provider of the account."""


def is_managed(user: User) -> bool:
    """Return True if the user signs in at the configured identity provider, which then also decides their role."""
    provider = settings.OIDC.provider_id
    return bool(provider) and SocialAccount.objects.filter(user=user, provider=provider).exists()


def require_local_account(user: User) -> None:
    """Raise ManagedByProvider if the user must sign in at the identity provider: a password would bypass it."""
    if is_managed(user):
        raise ManagedByProvider(
            f"{user.username} signs in with the identity provider and cannot have a password or sign-in link."
        )


@transaction.atomic
def create_user(
    *, username: str, role: str = Role.VIEWER, password: str | None = None, email: str = "", by: User | None = None
) -> User:
    """Create an account. Without a password, only a sign-in link gives access. Raise ValidationError."""
    user = User(username=username, role=role, email=email)
    if password is None:
        user.set_unusable_password()
    else:
        validate_password(password, user)
        user.set_password(password)
    user.full_clean()
    user.save()
    record(user=by, action="user.create", target=user, role=role)
    return user


@transaction.atomic
def edit_user(
    *, person: User, role: str, is_active: bool | None = None, email: str | None = None, by: User | None
) -> User:
    """Change role or email, or deactivate or reactivate the account. None changes nothing.

    A deactivation lasts: the account is then no longer suspended, which a sign-in at the provider would end.
    Raise LastAdmin, ManagedByProvider and ValidationError.
    """
    if is_managed(person):
        _refuse_decisions_of_provider(person, role, is_active)
    admins = User.objects.select_for_update().filter(role=Role.ADMIN, is_active=True)
    is_suspended = person.is_suspended and is_active is None
    is_active = person.is_active if is_active is None else is_active
    stays_admin = role == Role.ADMIN and is_active
    # Evaluated to lock the rows, so that two admins cannot demote each other concurrently.
    others = [admin for admin in admins if admin.pk != person.pk]
    if not stays_admin and not others and User.objects.filter(pk=person.pk, role=Role.ADMIN, is_active=True).exists():
        raise LastAdmin("This is the last admin. Make another user an admin first.", "role")
    before = _facts(User.objects.get(pk=person.pk))
    person.role, person.is_active, person.is_suspended = role, is_active, is_suspended
    if email is not None:
        person.email = email
    person.full_clean()
    person.save(update_fields=["role", "is_active", "is_suspended", "email"])
    record(user=by, action="user.edit", target=person, before=before, after=_facts(person))
    if not is_active:
        end_sessions_of(person=person, by=by)
    return person


def _refuse_decisions_of_provider(person: User, role: str, is_active: bool | None) -> None:
    if role != person.role:
        raise ManagedByProvider("The identity provider decides the role of this user. Change it there.", "role")
    if is_active and person.is_suspended:
        raise ManagedByProvider(
            "This user is in no mapped group. Add the user to one at the identity provider; the next sign-in "
            "reactivates the account.",
            "is_active",
        )


def _facts(person: User) -> dict[str, object]:
    return {name: getattr(person, name) for name in ("role", "is_active", "is_suspended", "email")}


@transaction.atomic
def change_password(
    *, person: User, password: str, by: User | None, revoke_keys: bool = False, session_key: str | None = None
) -> int:
    """Set a new password and end all sessions of the user except `session_key`. Return how many keys were revoked.

    Raise ManagedByProvider, and ValidationError for a weak password.
    """
    require_local_account(person)
    validate_password(password, person)
    person.set_password(password)
    person.save(update_fields=["password"])
    revoked = revoke_keys_of(person=person, by=by) if revoke_keys else 0
    record(user=by, action="user.change_password", target=person, revoked_keys=revoked)
    end_sessions_of(person=person, by=by, keep=session_key)
    return revoked
