"""The API's side of the table of permissions: what a view does not name is refused."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.permissions import Permission, user_may


class TablePermission(BasePermission):
    """`view.permissions` maps each action (or method, in a view without actions) to the permission it needs."""

    def has_permission(self, request: Request, view: Any) -> bool:
        permissions: dict[str, Permission] = getattr(view, "permissions", {})
        name = _asked_for(request, view)
        if name is None:
            # Ends in 405, for who may know that the route exists.
            return user_may(request.user, Permission.READ)
        permission = permissions.get(name)
        if permission is None:
            return False
        self.message = f"Your role does not have the permission “{permission}”."
        return user_may(request.user, permission)


def _asked_for(request: Request, view: Any) -> str | None:
    """The action, or the method's name where a view has no actions; None for a method that the route does not have."""
    if hasattr(view, "action"):
        # Django REST Framework calls OPTIONS "metadata" on every route; no route here has it.
        return None if view.action == "metadata" else view.action
    method = (request.method or "").lower()
    if method == "options" or not hasattr(view, method):
        return None
    return "get" if method == "head" else method
