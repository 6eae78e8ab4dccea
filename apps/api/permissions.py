"""The API's side of the table of permissions: what a view does not name is refused."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from apps.accounts.permissions import Permission, user_may

# Names that DRF gives to a method the route does not have; they end in 405, for who may know that the route exists.
NO_ACTION = {None, "metadata"}


class TablePermission(BasePermission):
    """`view.permissions` maps each action (or method, in a view without actions) to the permission it needs."""

    def has_permission(self, request: Request, view: Any) -> bool:
        permissions: dict[str, Permission] = getattr(view, "permissions", {})
        name = view.action if hasattr(view, "action") else (request.method or "").lower()
        if hasattr(view, "action") and name in NO_ACTION:
            return user_may(request.user, Permission.READ)
        if name == "head" and name not in permissions:
            name = "get"
        permission = permissions.get(name)
        if permission is None:
            return False
        self.message = f"Your role does not have the permission “{permission}”."
        return user_may(request.user, permission)
