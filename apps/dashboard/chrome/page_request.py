"""The request of a page. The middleware ensures that a user is signed in, and adds the htmx details."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from apps.accounts.models import User


class PageRequest(HttpRequest):
    user: User
    htmx: HtmxDetails


def read_number(text: str, *, digits: int = 18) -> int | None:
    """Return the number in a URL or form, for example a row id; None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
