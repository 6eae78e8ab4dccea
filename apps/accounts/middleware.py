"""Pages closed by default: a page answers only the methods it has a rule for, and only to who has the permission."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.permissions import Permission, user_may


def is_api_view(view: object) -> bool:
    """Views of Django REST Framework carry their class; their own permission class decides, with a JSON answer."""
    return hasattr(view, "cls")


class PermissionMiddleware(MiddlewareMixin):
    """After LoginRequiredMiddleware, which sends whoever is not signed in to the sign-in page first."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if is_api_view(view):
            return None
        permissions: dict[str, Permission] = getattr(view, "permissions", {})
        if not permissions:
            raise PermissionDenied("This page has no rule yet, so it is closed to everyone.")
        method = "GET" if request.method == "HEAD" else request.method or ""
        if method not in permissions:
            named = sorted(permissions) + (["HEAD"] if "GET" in permissions else [])
            return HttpResponseNotAllowed(named)
        if not user_may(request.user, permissions[method]):
            raise PermissionDenied(f"Your role does not have the permission “{permissions[method]}”.")
        return None
