"""The audit log: every operation that changes data records user, action, object and changed values."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest

from apps.accounts.client_address import client_address
from apps.accounts.models import ApiKey, AuditEntry, User
from apps.accounts.telemetry.current_request import CURRENT_REQUEST, request_id_of
from apps.gym.redaction.redactor import Redactor
from apps.gym.storable import bound_numbers, clean_line

# Longer texts and lists, and deeper values, are cut before they are stored.
MAX_TEXT = 400
MAX_MEMBERS = 50
MAX_DEPTH = 6
# Callers must not pass secrets. This redacts them if they do.
_REDACTOR = Redactor()
# Endings of the names of fields that are not logged: timestamps and secrets.
_OMITTED_ENDINGS = ("_at", "_encrypted", "_hash", "_hint", "password", "last_login")


def record(
    *,
    user: object,
    action: str,
    target: object = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    request: HttpRequest | None = None,
    **detail: Any,
) -> AuditEntry:
    """Write an audit entry.

    `action` is `noun.verb`, for example `dataset.create`. Only values that differ between `before` and `after` are
    stored. API key, address, origin and request id come from `request`, by default the current one. Without a request,
    the origin is the command.
    """
    request = request or CURRENT_REQUEST.get()
    # Commands and the engine have no user; anonymous users have no row.
    actor = user if isinstance(user, User) and user.pk else None
    api_key = getattr(request, "auth", None)
    old_values, new_values = _differences(before or {}, after or {})
    entry = AuditEntry.objects.create(
        user=actor,
        api_key=api_key if isinstance(api_key, ApiKey) else None,
        action=action,
        noun=action.partition(".")[0],
        target=clean_line(_REDACTOR.redact_text(str(target))[0], 200),
        before=_storable(old_values),
        after=_storable(new_values),
        detail=_storable(detail),
        origin=_origin(request),
        address=client_address(request) if request else "",
        request_id=request_id_of(request),
    )
    if request is not None:
        request.audited = True  # type: ignore[attr-defined]
    return entry


def update_row(
    row: Model, changes: Mapping[str, Any], *, only: Mapping[str, Any], user: object, action: str, **entry: Any
) -> bool:
    """Update a row and write an audit entry if the row matches the lookups `only`. Return True if it matched.

    The row is reloaded in either case. `entry` holds further arguments of `record`. The default target is the kind and
    id of the row.
    """
    entry = {"target": f"{row._meta.verbose_name} {row.pk}", **entry}
    with transaction.atomic():
        changed = type(row)._default_manager.filter(pk=row.pk, **only).update(**changes)
        if changed:
            record(user=user, action=action, **entry)
    row.refresh_from_db()
    return bool(changed)


def describe(row: Model | None) -> dict[str, Any]:
    """Return the fields of a row, for `before` and `after` of `record`. Timestamps and secrets are left out."""
    if row is None:
        return {}
    names = [field.attname for field in row._meta.concrete_fields if not field.attname.endswith(_OMITTED_ENDINGS)]
    return {name: getattr(row, name) for name in names}


def _origin(request: HttpRequest | None) -> str:
    if request is not None:
        return "api" if hasattr(request, "auth") else "page"
    # For example `manage.py collect`, or `manage.py serve` for its worker.
    return clean_line(" ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]), 64)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...)]
    old_values = {name: before[name] for name in names if name in before}
    new_values = {name: after[name] for name in names if name in after}
    return old_values, new_values


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value redacted, shortened, and as plain JSON that PostgreSQL and SQLite accept.

    Infinite numbers become null.
    """
    plain = orjson.loads(_dump(value)) if value else {}
    # Redact before shortening: half a credential would not be recognised.
    clean = _shorten(_REDACTOR.redact_value(plain)[0])
    return clean if isinstance(clean, dict) else {}


def _dump(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        # The change is already saved, so too large an integer must not raise here.
        return orjson.dumps(bound_numbers(value), default=str, option=orjson.OPT_NON_STR_KEYS)


def _shorten(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        cut = clean_line(value, MAX_TEXT) if "\x00" in value else value[:MAX_TEXT]
        return cut if len(value) <= MAX_TEXT else f"{cut}… ({len(value):,} characters)"
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        return "…"
    left_out = len(value) - MAX_MEMBERS
    if isinstance(value, dict):
        kept = {_shorten(name): _shorten(one, depth + 1) for name, one in list(value.items())[:MAX_MEMBERS]}
        return {**kept, "…": f"{left_out:,} more"} if left_out > 0 else kept
    members = [_shorten(one, depth + 1) for one in value[:MAX_MEMBERS]]
    return [*members, f"… {left_out:,} more"] if left_out > 0 else members
