"""Check the permission of an API action. Actions without a declared permission are rejected."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.permissions import Permission, caller_may, scopes_with, user_may


class TablePermission(BasePermission):
    """`view.permissions` maps each action (or method, in a view without actions) to its permission."""

    def has_permission(self, request: Request, view: Any) -> bool:
        permissions: dict[str, Permission] = getattr(view, "permissions", {})
        name = _requested_action(request, view)
        if name is None:
            # DRF returns 405 next, but only members may learn that the route exists.
            return caller_may(request.user, request.auth, Permission.MEMBER)
        permission = permissions.get(name)
        if permission is None:
            return False
        refusal = find_refusal(request.user, request.auth, permission)
        if refusal and user_may(request.user, permission):
            self.code = "missing_scope"
        self.message = refusal
        return not refusal


def find_refusal(user: object, api_key: object, permission: Permission) -> str:
    """Return why this caller lacks the permission, with the remedy. Empty if the caller has it."""
    if not user_may(user, permission):
        return f"Your role does not have the permission “{permission}”."
    if caller_may(user, api_key, permission):
        return ""
    scopes = scopes_with(permission)
    if not scopes:
        return "API keys cannot do this. Sign in, or use a command."
    return f"The API key needs a scope for this: {' or '.join(scopes)}."


def _requested_action(request: Request, view: Any) -> str | None:
    """Return the action, or the method for views without actions. None if the route does not support the method."""
    if hasattr(view, "action"):
        # Django REST Framework calls OPTIONS "metadata" on every route; no route here supports it.
        return None if view.action == "metadata" else view.action
    method = (request.method or "").lower()
    if method == "options" or not hasattr(view, method):
        return None
    return "get" if method == "head" else method
