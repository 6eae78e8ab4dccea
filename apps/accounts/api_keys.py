"""API keys `gw_<prefix>_<secret>`: shown once, stored as a hash, looked up by prefix."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.disk_space import skip_when_full
from apps.accounts.models import ApiKey, User
from apps.accounts.permissions import Permission, caller_may, user_may

# Limits writes for a key in constant use.
LAST_USED_PRECISION = timedelta(minutes=1)
_NO_KEY_HASH = hashlib.sha256(b"no such key").hexdigest()


class NotYourKey(Exception):
    """Raised if a user without permission to edit accounts revokes the key of another user."""


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so a slow hash would add no security.
    return hashlib.sha256(secret.encode()).hexdigest()


@transaction.atomic
def create_api_key(
    *, user: User, name: str, scopes: Sequence[str], expires_at: datetime | None = None, by: User | None = None
) -> tuple[ApiKey, str]:
    """Create an API key. Return its row and the token, which is not stored.

    Raise ValidationError for an unknown scope.
    """
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    api_key = ApiKey(
        user=user, name=name, scopes=list(scopes), prefix=prefix, secret_hash=_hash(secret), expires_at=expires_at
    )
    api_key.full_clean()
    api_key.save()
    expires = expires_at.isoformat() if expires_at else None
    record(user=by, action="api_key.create", target=api_key, owner=user.username, scopes=list(scopes), expires=expires)
    return api_key, f"gw_{prefix}_{secret}"


def find_api_key(token: str, *, address: str = "") -> ApiKey | None:
    """Return the valid key of this token, with its user, or None. `address` is recorded as last used."""
    parts = token.split("_", 2)
    # PostgreSQL rejects NUL characters, which valid prefixes do not have.
    if len(parts) != 3 or parts[0] != "gw" or not parts[1].isalnum():
        return None
    _, prefix, secret = parts
    api_key = ApiKey.objects.usable().select_related("user").filter(prefix=prefix).first()
    known_hash = api_key.secret_hash if api_key else _NO_KEY_HASH
    if not secrets.compare_digest(known_hash, _hash(secret)) or api_key is None:
        return None
    _touch(api_key, address)
    return api_key


def still_may(user_id: int, api_key: object, permission: Permission) -> bool:
    """Return True if the caller still has the permission. For connections that stay open."""
    if isinstance(api_key, ApiKey):
        api_key = ApiKey.objects.usable().filter(pk=api_key.pk).first()
        if api_key is None:
            return False
    return caller_may(User.objects.filter(pk=user_id).first(), api_key, permission)


def _touch(api_key: ApiKey, address: str) -> None:
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - LAST_USED_PRECISION)
    if api_key.last_used_at is None or api_key.last_used_at < now - LAST_USED_PRECISION:
        with skip_when_full():
            ApiKey.objects.filter(stale, pk=api_key.pk).update(last_used_at=now, last_used_address=address)
        api_key.last_used_at, api_key.last_used_address = now, address


def revoke_api_key(*, api_key: ApiKey, user: User | None) -> ApiKey:
    """Revoke a key. Idempotent. `user` is None for the operator. Raise NotYourKey."""
    if user is not None and api_key.user_id != user.pk and not user_may(user, Permission.ACCOUNTS):
        raise NotYourKey("Only its owner or an admin can revoke this key.")
    update_row(
        api_key,
        {"revoked_at": timezone.now()},
        only={"revoked_at": None},
        user=user,
        action="api_key.revoke",
        target=api_key,
        owner=api_key.user.username,
    )
    return api_key


@transaction.atomic
def revoke_keys_of(*, person: User, by: User | None) -> int:
    """Revoke all active API keys of a user and return how many there were. Raise NotYourKey."""
    api_keys = list(person.api_keys.usable().select_related("user"))
    for api_key in api_keys:
        revoke_api_key(api_key=api_key, user=by)
    return len(api_keys)
