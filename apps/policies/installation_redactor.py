"""The redactor of this installation. It knows built-in rules, stored secrets and custom patterns."""

import copy
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.errors import PolicyError
from apps.gym.redaction.redactor import MIN_PREFIX, Pattern, Redactor
from apps.gym.redaction.shortening import set_shortening_redactor
from apps.policies.models import KEY_PLACEHOLDER, PolicyModel, RedactionPattern
from apps.policies.secrets import decrypt_secret

FRESH_SECONDS = 5.0


class _Cache:
    """The cached redactor. Event loops and log handlers use it as it is; callers that may query reload it."""

    def __init__(self) -> None:
        self.redactor: Redactor | None = None
        self.until = 0.0
        self.lock = threading.Lock()


_known = _Cache()


def current_redactor() -> Redactor:
    """Return the cached redactor without a database query."""
    if _known.redactor is None:
        return _cache(Redactor(known=_own_settings(), enabled=settings.REDACT))
    return _known.redactor


def fresh_redactor() -> Redactor:
    """Return the redactor, at most FRESH_SECONDS old. It may query the database: do not call it on an event loop."""
    if time.monotonic() > _known.until:
        with _known.lock:
            _cache(_read())
            _known.until = time.monotonic() + FRESH_SECONDS
    return current_redactor()


def forget_redactor() -> None:
    """Drop the cached redactor.

    Call it when a pattern or secret changes. Other processes notice within FRESH_SECONDS.
    """
    _known.until = 0.0


def _cache(redactor: Redactor) -> Redactor:
    _known.redactor = redactor
    set_shortening_redactor(redactor)
    return redactor


def _read() -> Redactor:
    rows = list(RedactionPattern.objects.all())
    kinds = RedactionPattern.Kind
    return Redactor(
        known=[*_own_settings(), *_api_keys()],
        patterns=[
            Pattern(
                kind="pattern",
                name=row.text if row.kind == kinds.NAME else "",
                prefix=row.text if row.kind == kinds.PREFIX else "",
                least=row.least,
            )
            for row in rows
            if row.kind != kinds.EXCEPTION
        ],
        exceptions=[row.text for row in rows if row.kind == kinds.EXCEPTION],
        enabled=settings.REDACT,
    )


def _api_keys() -> Iterator[str]:
    keys = PolicyModel.objects.exclude(api_key_encrypted="").values_list("api_key_encrypted", flat=True)
    for encrypted in keys:
        try:
            yield decrypt_secret(encrypted)
        except PolicyError:
            # Encrypted with another SECRET_KEY, so this installation cannot send it either.
            continue


def _own_settings() -> Iterator[str]:
    yield settings.SECRET_KEY
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")
    yield settings.EMAIL_HOST_PASSWORD
    yield unquote(urlsplit(settings.REDIS_URL or "").password or "")


def show_extras(extras: Any) -> Any:
    """Return headers or body fields with credentials redacted. The key placeholder is not redacted."""
    if not isinstance(extras, dict):
        return extras
    redactor = fresh_redactor()
    shown: dict[str, Any] = {}
    for name, value in extras.items():
        if isinstance(value, str) and KEY_PLACEHOLDER in value:
            shown[name] = KEY_PLACEHOLDER.join(redactor.redact_text(part)[0] for part in value.split(KEY_PLACEHOLDER))
        else:
            shown |= redactor.redact_value({name: copy.deepcopy(value)})[0]
    return shown


MAX_SAMPLE = 20_000
"""Maximum characters of a text that users can test patterns with."""
_KEPT = (
    "arguments at call_id components content details duration environment error explanation finish_reason function id "
    "input items judge kind message model name output prompt question refusal response_id role sampling seed seen "
    "status stop_reason summary text tokens_note tools type usage verdict version"
)
KEPT_NAMES = frozenset(_KEPT.split())
"""Keys of the trace format, whose values must stay readable."""


def save_pattern(*, pattern: RedactionPattern, user: User | None = None) -> RedactionPattern:
    """Save a pattern. Raise ValidationError by field."""
    pattern.text = pattern.text.strip()
    pattern.full_clean()
    if pattern.kind == RedactionPattern.Kind.NAME and pattern.text.lower() in KEPT_NAMES:
        raise ValidationError({"text": "Traces use this key, so it cannot be redacted. Choose another name."})
    if pattern.kind == RedactionPattern.Kind.PREFIX and len(pattern.text) < MIN_PREFIX:
        raise ValidationError({"text": f"Give a prefix of at least {MIN_PREFIX} characters."})
    with transaction.atomic():
        pattern.save()
        record(user=user, action="redaction_pattern.create", target=pattern.kind, text=pattern.text)
    forget_redactor()
    return pattern


def delete_pattern(*, pattern: RedactionPattern, user: User | None = None) -> None:
    """Delete a pattern. Redacted text stays redacted."""
    with transaction.atomic():
        record(user=user, action="redaction_pattern.delete", target=pattern.kind, text=pattern.text)
        pattern.delete()
    forget_redactor()
