"""Where a request comes from, as far as the proxies in front of this installation can be believed."""

from django.conf import settings
from django.http import HttpRequest

from apps.gym.storable import clean_line


def client_address(request: HttpRequest) -> str:
    """Who is calling, as the outermost of our own proxies saw it; what stands left of that anybody may have written."""
    proxies = settings.TRUSTED_PROXIES
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    if not proxies or not forwarded:
        return str(request.META.get("REMOTE_ADDR", ""))
    return clean_line(forwarded[-min(proxies, len(forwarded))], 64)


def tells_clients_apart() -> bool:
    """Behind a proxy that we may not believe everybody has its address: one stranger would lock all people out."""
    return bool(settings.TRUSTED_PROXIES) or not settings.SECURE
