"""The redactor of this installation: its own secrets and what people added, read anew every few seconds."""

import threading
import time
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from django.conf import settings

from apps.gym.errors import PolicyError
from apps.gym.redaction.redactor import Pattern, Redactor
from apps.gym.redaction.shortening import shorten_with
from apps.policies.models import PolicyModel, RedactionPattern
from apps.policies.secrets import decrypt_secret

FRESH_SECONDS = 5.0


class _Known:
    """What was read last. Loops and log lines take it as it is; only who may wait for the database reads anew."""

    def __init__(self) -> None:
        self.redactor: Redactor | None = None
        self.until = 0.0
        self.lock = threading.Lock()


_known = _Known()


def current_redactor() -> Redactor:
    """The redactor as it was read last, without asking the database."""
    if _known.redactor is None:
        return _keep(Redactor(known=_own_settings(), enabled=settings.REDACT))
    return _known.redactor


def fresh_redactor() -> Redactor:
    """The redactor, at most FRESH_SECONDS old. Not for an event loop."""
    if time.monotonic() > _known.until:
        with _known.lock:
            _keep(_read())
            _known.until = time.monotonic() + FRESH_SECONDS
    return current_redactor()


def forget_redactor() -> None:
    """Something it is made of has changed in this process; others learn of it within FRESH_SECONDS."""
    _known.until = 0.0


def _keep(redactor: Redactor) -> Redactor:
    _known.redactor = redactor
    shorten_with(redactor)
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
            # Of another secret key: nothing that runs here can have it.
            continue


def _own_settings() -> Iterator[str]:
    yield settings.SECRET_KEY
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")
    yield unquote(urlsplit(settings.REDIS_URL or "").password or "")
