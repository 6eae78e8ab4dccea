"""API keys: `gw_<prefix>_<secret>`, shown once, kept as a hash, found by prefix."""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.auditing import record
from apps.accounts.models import ApiKey, User
from apps.accounts.permissions import Permission, user_may

# A key in constant use must not cost a write for every request.
LAST_USED_PRECISION = timedelta(minutes=1)
_NO_KEY_HASH = hashlib.sha256(b"no such key").hexdigest()


class NotYourKey(Exception):
    """Somebody else's key can be revoked only by who may edit accounts."""


def _hash(secret: str) -> str:
    # The secret has 256 bits of randomness, so a slow password hash would add nothing but time.
    return hashlib.sha256(secret.encode()).hexdigest()


@transaction.atomic
def create_api_key(*, user: User, name: str, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    """The row and the token; the token cannot be had again."""
    prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    api_key = ApiKey.objects.create(
        user=user, name=name, prefix=prefix, secret_hash=_hash(secret), expires_at=expires_at
    )
    record(user=user, action="api_key.create", target=api_key.prefix, name=name)
    return api_key, f"gw_{prefix}_{secret}"


def find_api_key(token: str) -> ApiKey | None:
    """The usable key of this token, with its user; None for anything else."""
    parts = token.split("_", 2)
    # PostgreSQL refuses a text with a zero byte, and a prefix has none.
    if len(parts) != 3 or parts[0] != "gw" or not parts[1].isalnum():
        return None
    _, prefix, secret = parts
    api_key = ApiKey.objects.usable().select_related("user").filter(prefix=prefix).first()
    known_hash = api_key.secret_hash if api_key else _NO_KEY_HASH
    if not secrets.compare_digest(known_hash, _hash(secret)) or api_key is None:
        return None
    _touch(api_key)
    return api_key


def _touch(api_key: ApiKey) -> None:
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - LAST_USED_PRECISION)
    if api_key.last_used_at is None or api_key.last_used_at < now - LAST_USED_PRECISION:
        ApiKey.objects.filter(stale, pk=api_key.pk).update(last_used_at=now)
        api_key.last_used_at = now


@transaction.atomic
def revoke_api_key(*, api_key: ApiKey, user: User) -> ApiKey:
    """Raises NotYourKey; revoking a revoked key changes nothing."""
    if api_key.user_id != user.pk and not user_may(user, Permission.ACCOUNTS):
        raise NotYourKey("Only its owner or an admin can revoke this key.")
    if ApiKey.objects.filter(pk=api_key.pk, revoked_at__isnull=True).update(revoked_at=timezone.now()):
        record(user=user, action="api_key.revoke", target=api_key.prefix, name=api_key.name)
    api_key.refresh_from_db()
    return api_key
