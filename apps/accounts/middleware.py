"""Pages closed by default: a page answers only the methods it has a rule for, and only to who has the permission. And
whatever changed something without saying so itself is written into the audit log."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.audit_log import CURRENT, record
from apps.accounts.permissions import Permission, user_may
from apps.accounts.return_page import page_of

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def is_api_view(view: object) -> bool:
    """Views of Django REST Framework carry their class; their own permission class decides, with a JSON answer."""
    return hasattr(view, "cls")


class SignInMiddleware(LoginRequiredMiddleware):
    """Whoever sent something when their session had ended comes back to the page that they sent it from: its address
    itself may take nothing but what is sent. `unsent` lets the browser keep what was typed (static/js/typed.js)."""

    def handle_no_permission(self, request: HttpRequest, view_func: Callable[..., Any]) -> HttpResponseRedirect:
        if request.method in _SAFE:
            return super().handle_no_permission(request, view_func)
        back = page_of(request, request.headers.get("Referer", "")) or page_of(request, request.path)
        response = redirect_to_login(back)
        response["Location"] += "&unsent=1"
        return response


class PermissionMiddleware(MiddlewareMixin):
    """After SignInMiddleware, which sends whoever is not signed in to the sign-in page first."""

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


class AuditMiddleware:
    """Lets the operations below know the request that they are asked by. One that succeeded, may have changed something
    and is in the log under no name of its own, is there under its address."""

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
        token = CURRENT.set(request)
        try:
            response: HttpResponseBase = self.get_response(request)
            if _is_unsaid(request, response):
                _say(request)
        finally:
            CURRENT.reset(token)
        return response

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        token = CURRENT.set(request)
        try:
            response: HttpResponseBase = await self.get_response(request)
            if _is_unsaid(request, response):
                await sync_to_async(_say)(request)
        finally:
            # Its task need not end with it: whoever waits for it by async_to_sync takes its context over.
            CURRENT.reset(token)
        return response


def _is_unsaid(request: HttpRequest, response: HttpResponseBase) -> bool:
    if request.method in _SAFE or response.status_code >= 400 or getattr(request, "audited", False):
        return False
    match = request.resolver_match
    return match is not None and match.view_name not in settings.UNAUDITED_ROUTES


def _say(request: HttpRequest) -> None:
    assert request.resolver_match is not None
    action = f"request.{(request.method or '').lower()}"
    record(
        user=request.user, action=action, target=request.path, request=request, route=request.resolver_match.view_name
    )
