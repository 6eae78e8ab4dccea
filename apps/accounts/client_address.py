"""Find the client address of a request behind trusted proxies."""

from django.conf import settings
from django.http import HttpRequest

from apps.gym.storable import clean_line


def client_address(request: HttpRequest) -> str:
    """Return the client address as seen by the outermost trusted proxy. Clients can forge further entries."""
    proxies = settings.TRUSTED_PROXIES
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    if not proxies or not forwarded:
        return str(request.META.get("REMOTE_ADDR", ""))
    return clean_line(forwarded[-min(proxies, len(forwarded))], 64)


def sees_client_addresses() -> bool:
    """Return True if client addresses are known; False behind an untrusted proxy.

    All clients then seem to have the address of the proxy, and a limit per address would lock out everyone at once.
    """
    return bool(settings.TRUSTED_PROXIES) or not settings.SECURE
