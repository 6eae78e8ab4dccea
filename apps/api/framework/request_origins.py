"""Check the Origin header of requests that Django's CSRF check does not cover."""

from urllib.parse import urlsplit

from channels.security.websocket import OriginValidator
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest


def is_own_origin(request: HttpRequest, origin: str) -> bool:
    """Return True if the origin is this site or in GYMWEB_TRUSTED_ORIGINS, by scheme, host and port.

    The site's own origin is determined as in Django's CSRF check, so the same proxies are trusted.
    """
    try:
        own = f"{request.scheme}://{request.get_host()}"
        trusted = [one.replace("://*.", "://.") for one in settings.CSRF_TRUSTED_ORIGINS]
        return bool(OriginValidator(None, [own, *trusted]).valid_origin(urlsplit(origin)))
    except (DisallowedHost, ValueError):
        return False
