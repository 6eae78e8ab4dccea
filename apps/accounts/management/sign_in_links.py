"""Arguments and URLs of one-time sign-in links, for commands that print them."""

from argparse import ArgumentParser

from django.conf import settings
from django.core.management.base import CommandError
from django.urls import reverse
from django.utils.http import urlencode

from apps.accounts.return_page import find_page

LOCAL_URL = "http://127.0.0.1:8000"


def default_base_url() -> str:
    """Return the first of GYMWEB_TRUSTED_ORIGINS without a wildcard, else the URL of a local site."""
    return next((origin for origin in settings.CSRF_TRUSTED_ORIGINS if "*" not in origin), LOCAL_URL)


def add_base_url(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--base-url",
        default=default_base_url(),
        help=f"base URL of the site, by default the first of GYMWEB_TRUSTED_ORIGINS, else {LOCAL_URL}",
    )


def add_link_arguments(parser: ArgumentParser) -> None:
    add_base_url(parser)
    parser.add_argument("--next", default="", metavar="PATH", help="the page that the link opens, for example /queues/")


def link_query(wanted: str) -> str:
    """Return the URL query with the page to open. Raise CommandError for a page of another site."""
    page = find_page(wanted)
    if wanted and not page:
        raise CommandError(f"The link cannot open {wanted}. Give a path on this site, for example /queues/.")
    return "?" + urlencode({"next": page}) if page else ""


def sign_in_url(base_url: str, token: str, query: str = "") -> str:
    return base_url.rstrip("/") + reverse("dashboard:sign_in_link", args=[token]) + query
