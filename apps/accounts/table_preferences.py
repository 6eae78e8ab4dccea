"""Table preferences of users: columns, density, and saved views."""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts.audit_log import record
from apps.accounts.models import SavedView, User
from apps.gym.request_refusals import Refusal

MOST_VIEWS = 200
"""Maximum saved views per user."""


class ViewRefused(Refusal):
    """Raised if the preferences or view are invalid. `argument` is the field to change."""


class NameTaken(ViewRefused, status=409, code="name-taken"):
    """Raised if the user already has a view with this name. `view` is that view."""

    def __init__(self, name: str, view: SavedView, remedy: str) -> None:
        super().__init__(f"You already have a view “{name}”: {remedy}.", "name")
        self.view = view

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": [{**self.invalid_values[0], "code": "taken"}], "saved_view": self.view.pk}


class NotYourView(Refusal, status=403, code="not-yours"):
    """Raised if the view belongs to another user."""


def arrange_table(*, user: User, table: str, columns: Sequence[str], density: str) -> None:
    """Store columns and density of a table for a user. The caller validates them."""
    user.tables = {**user.tables, table: {"columns": list(columns), "density": density}}
    user.save(update_fields=["tables"])


def save_view(
    *,
    user: User,
    table: str,
    name: str,
    query: str = "",
    sort: str = "",
    columns: Sequence[str] = (),
    is_shared: bool = False,
    replace: bool = False,
) -> SavedView:
    """Create a view. With `replace`, overwrite the user's view with this name. The caller validates the query.

    Raise NameTaken, and ViewRefused for an invalid name or too many views.
    """
    name = " ".join(name.split())
    if not name or len(name) > 100 or not name.isprintable():
        raise ViewRefused("Give a view name of 1 to 100 characters.", "name")
    given = {"query": query, "sort": sort, "columns": list(columns), "is_shared": is_shared}
    with transaction.atomic():
        if user.saved_views.exclude(table=table, name=name).count() >= MOST_VIEWS:
            raise ViewRefused(f"You have {MOST_VIEWS} saved views, the maximum. Delete one first.")
        view, is_new = SavedView.objects.get_or_create(user=user, table=table, name=name, defaults=given)
        if not is_new:
            if not replace:
                raise NameTaken(name, view, "replace it, or choose another name")
            for field, value in given.items():
                setattr(view, field, value)
            view.save(update_fields=[*given])
        record(user=user, action="view.saved", target=f"view {view.pk}", name=name, shared=is_shared)
    return view


def change_view(*, view: SavedView, user: User, **changes: object) -> SavedView:
    """Save a changed view. Raise NotYourView, NameTaken and ViewRefused."""
    _refuse_others(view, user)
    if "name" in changes:
        changes["name"] = " ".join(str(changes["name"]).split())
        if not changes["name"]:
            raise ViewRefused("Give a view name of 1 to 100 characters.", "name")
    for name, value in changes.items():
        setattr(view, name, value)
    try:
        with transaction.atomic():
            view.save(update_fields=[*changes])
            record(user=user, action="view.changed", target=f"view {view.pk}", fields=sorted(changes))
    except IntegrityError:
        other = user.saved_views.get(table=view.table, name=view.name)
        raise NameTaken(other.name, other, "choose another name, or delete that one") from None
    return view


def delete_view(*, view: SavedView, user: User) -> None:
    """Delete a view. Raise NotYourView."""
    _refuse_others(view, user)
    with transaction.atomic():
        record(user=user, action="view.deleted", target=f"view {view.pk}", name=view.name)
        view.delete()


def _refuse_others(view: SavedView, user: User) -> None:
    if view.user_id != user.pk:
        raise NotYourView(f"This view belongs to {view.user}. Save your own view.")
