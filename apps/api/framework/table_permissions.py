"""The API's side of the table of permissions: what a view does not name is refused."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.permissions import Permission, caller_may, scopes_with, user_may


class TablePermission(BasePermission):
    """`view.permissions` maps each action (or method, in a view without actions) to the permission it needs."""

    def has_permission(self, request: Request, view: Any) -> bool:
        permissions: dict[str, Permission] = getattr(view, "permissions", {})
        name = _asked_for(request, view)
        if name is None:
            # Ends in 405, for who may know that the route exists.
            return caller_may(request.user, request.auth, Permission.MEMBER)
        permission = permissions.get(name)
        if permission is None:
            return False
        if not user_may(request.user, permission):
            self.message = f"Your role does not have the permission “{permission}”."
            return False
        if caller_may(request.user, request.auth, permission):
            return True
        self.code, self.message = "missing_scope", _say_missing(permission)
        return False


def _say_missing(permission: Permission) -> str:
    scopes = scopes_with(permission)
    if not scopes:
        return "No API key may do this: sign in, or use a command."
    return f"This API key lacks a scope for this: {' or '.join(scopes)}."


def _asked_for(request: Request, view: Any) -> str | None:
    """The action, or the method's name where a view has no actions; None for a method that the route does not have."""
    if hasattr(view, "action"):
        # Django REST Framework calls OPTIONS "metadata" on every route; no route here has it.
        return None if view.action == "metadata" else view.action
    method = (request.method or "").lower()
    if method == "options" or not hasattr(view, method):
        return None
    return "get" if method == "head" else method
