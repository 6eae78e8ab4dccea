"""Tell users that a credential in their input was not stored."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.policies.redacted_fields import REDACTED


class RedactionNoticeMiddleware(MiddlewareMixin):
    """Runs after MessageMiddleware, which stores the notice for the next page. The API sends a header instead."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        counts = getattr(request, REDACTED, None)
        if counts and not hasattr(request, "auth"):
            kinds = ", ".join(f"{count} × {kind.replace('_', ' ')}" for kind, count in sorted(counts.items()))
            messages.warning(request, f"Credentials in your input were redacted and not stored: {kinds}.")
        return response
