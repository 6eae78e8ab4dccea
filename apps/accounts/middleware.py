"""Reject pages without a declared permission, and write audit entries for changes that did not record any."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.audit_log import record
from apps.accounts.permissions import Permission, user_may
from apps.accounts.return_page import page_of

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def is_api_view(view: object) -> bool:
    """Return True for Django REST Framework views, which check permissions themselves."""
    return hasattr(view, "cls")


class SignInMiddleware(LoginRequiredMiddleware):
    """Redirect anonymous users to the sign-in page.

    A form submitted with an expired session leads back to its page after signing in, because its own URL may accept
    only POST. `unsent` lets the browser keep the input (static/js/typed.js).
    """

    def handle_no_permission(self, request: HttpRequest, view_func: Callable[..., Any]) -> HttpResponseRedirect:
        if request.method in _SAFE:
            return super().handle_no_permission(request, view_func)
        back = page_of(request, request.headers.get("Referer", "")) or page_of(request, request.path)
        response = redirect_to_login(back)
        response["Location"] += "&unsent=1"
        return response


class PermissionMiddleware(MiddlewareMixin):
    """Check the permission of pages. Must run after SignInMiddleware, so that anonymous users are redirected first."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if is_api_view(view):
            return None
        permissions: dict[str, Permission] = getattr(view, "permissions", {})
        if not permissions:
            raise PermissionDenied("This page has no access rule, so access is denied.")
        method = "GET" if request.method == "HEAD" else request.method or ""
        if method not in permissions:
            return HttpResponseNotAllowed(sorted(permissions) + (["HEAD"] if "GET" in permissions else []))
        if not user_may(request.user, permissions[method]):
            raise PermissionDenied(f"Your role does not have the permission “{permissions[method]}”.")
        return None


class AuditMiddleware:
    """Record changes without an audit entry of their own under their URL."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._answer(request)
        response: HttpResponseBase = self.get_response(request)
        if _is_unlogged(request, response):
            _record_unlogged(request)
        return response

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        response: HttpResponseBase = await self.get_response(request)
        if _is_unlogged(request, response):
            await sync_to_async(_record_unlogged)(request)
        return response


def _is_unlogged(request: HttpRequest, response: HttpResponseBase) -> bool:
    if request.method in _SAFE or response.status_code >= 400 or getattr(request, "audited", False):
        return False
    match = request.resolver_match
    return match is not None and match.view_name not in settings.UNAUDITED_ROUTES


def _record_unlogged(request: HttpRequest) -> None:
    assert request.resolver_match is not None
    action = f"request.{(request.method or '').lower()}"
    record(
        user=request.user, action=action, target=request.path, request=request, route=request.resolver_match.view_name
    )
