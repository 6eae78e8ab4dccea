"""Whoever typed a credential into a page is told that it was not stored."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.policies.typed_texts import REDACTED


class RedactionNoticeMiddleware(MiddlewareMixin):
    """After MessageMiddleware, which keeps the notice for the page that is shown next. The API has a header for it."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        counts = getattr(request, REDACTED, None)
        if counts and not hasattr(request, "auth"):
            kinds = ", ".join(f"{count} × {kind.replace('_', ' ')}" for kind, count in sorted(counts.items()))
            messages.warning(request, f"Credentials were taken out of what you typed, and not stored: {kinds}.")
        return response
