"""Where somebody goes on whose session had ended: to a page, never to an address that only takes what is sent."""

from urllib.parse import urlsplit

from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme


def page_of(request: HttpRequest, address: str) -> str:
    """The page of this site that has the address, with its query; the nearest one above where it is no page. Empty for
    another site's."""
    host = request.get_host()
    if not url_has_allowed_host_and_scheme(address, allowed_hosts={host}, require_https=request.is_secure()):
        return ""
    parts = urlsplit(address)
    path = parts.path or "/"
    # What begins with two slashes, or one and a backslash, is another host's name to a browser.
    if not path.startswith("/") or not url_has_allowed_host_and_scheme(path, allowed_hosts=None):
        return ""
    found = _takes_get(path)
    if found or found is None:
        return f"{path}?{parts.query}" if parts.query else path
    while path != "/":
        path = path.rstrip("/").rpartition("/")[0] + "/"
        if _takes_get(path):
            break
    return path


def _takes_get(path: str) -> bool | None:
    """None where nothing has this address: its page says so."""
    try:
        view = resolve(path).func
    except Resolver404:
        return None
    return "GET" in getattr(view, "permissions", {})
