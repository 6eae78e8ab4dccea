"""Choose the page to open after signing in. Only pages of this site are allowed."""

from urllib.parse import urlsplit

from django.http import HttpRequest
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may


def landing_page(request: HttpRequest, user: User, wanted: str) -> str:
    """Return the page to open after signing in: the requested one, or the start page of the user's role.

    `/` does not count as a requested page.
    """
    page = page_of(request, wanted)
    home = reverse("dashboard:home")
    if page and page != home:
        return page
    return home if user_may(user, Permission.READ) else reverse("dashboard:queue_list")


def page_of(request: HttpRequest, address: str) -> str:
    """Return the page of this site at the address, with its query; see `find_page`."""
    return find_page(address, host=request.get_host(), is_secure=request.is_secure())


def find_page(address: str, *, host: str | None = None, is_secure: bool = False) -> str:
    """Return path and query of a page of this site, or an empty string for any other address.

    For a URL that only accepts POST, return the nearest parent page. Without `host`, only paths are accepted.
    """
    if not url_has_allowed_host_and_scheme(address, allowed_hosts=host, require_https=is_secure):
        return ""
    parts = urlsplit(address)
    path = parts.path or "/"
    # Browsers treat // and /\ at the start as the beginning of a host name.
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
    """Return whether the path accepts GET; None if it does not exist, which will give a 404."""
    try:
        view = resolve(path).func
    except Resolver404:
        return None
    return "GET" in getattr(view, "permissions", {})
