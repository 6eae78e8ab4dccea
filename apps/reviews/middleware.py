"""Pages that show rollouts are closed to who has still to judge them. The API asks in its own permission class."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.middleware import is_api_view
from apps.accounts.permissions import Permission
from apps.reviews.queues.blind_access import find_refusal


class BlindingMiddleware(MiddlewareMixin):
    """After PermissionMiddleware, which has refused everything that has no rule."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if is_api_view(view):
            return None
        method = "GET" if request.method == "HEAD" else request.method or ""
        permission: Permission | None = getattr(view, "permissions", {}).get(method)
        if permission is None or request.resolver_match is None:
            return None
        refusal = find_refusal(request.user, permission, request.resolver_match.view_name, kwargs)
        if refusal:
            raise PermissionDenied(refusal)
        return None
