"""Validate rows and their URLs, lock stored rows, and save rows with an audit entry."""

from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Model

from apps.accounts.audit_log import describe, record
from apps.gym.calls import lookups
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from apps.gym.request_refusals import Refusal

Row = TypeVar("Row", bound=Model)


class RowDeleted(Refusal, status=409, code="changed"):
    """Raised if the row to change was deleted in the meantime."""


def check_row(row: Model, problems: dict[str, list[str]], **leaving_out: Any) -> None:
    """Raise ValidationError with all errors together.

    Errors of field validators take precedence over `problems`. `leaving_out` is passed to `full_clean` as `exclude`.
    """
    errors: dict[str, list[Any]] = {}
    try:
        row.full_clean(**leaving_out)
    except ValidationError as wrong:
        errors = wrong.update_error_dict({})
    for field, found in problems.items():
        errors.setdefault(field, [ValidationError(problem) for problem in found])
    if errors:
        raise ValidationError(errors)


def find_url_problem(url: str) -> str:
    """Return why requests to this URL are not allowed; empty if they are, or if its host does not resolve in time."""
    try:
        lookups.check_saved_url(OutboundPolicy(settings.OUTBOUND_ALLOW), url)
    except OutboundRefused as refused:
        return str(refused)
    return ""


def lock_stored(row: Row) -> Row | None:
    """Return the stored row, locked, or None for a new one. Raise RowDeleted if it no longer exists."""
    if row.pk is None:
        return None
    stored = type(row)._default_manager.select_for_update().filter(pk=row.pk).first()
    if stored is None:
        raise RowDeleted(f"The {row._meta.verbose_name} {getattr(row, 'slug', row)} was deleted in the meantime.")
    return stored


def save_row(row: Model, stored: Model | None, *, user: object, noun: str, target: object, **detail: Any) -> None:
    """Save a row, and write the audit entry of its creation, or of its change from `stored`."""
    row.save()
    action = f"{noun}.create" if stored is None else f"{noun}.change"
    record(user=user, action=action, target=target, before=describe(stored), after=describe(row), **detail)
