"""The request of a page: someone is signed in (the middleware saw to it), and htmx may be asking."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from apps.accounts.models import User


class PageRequest(HttpRequest):
    user: User
    htmx: HtmxDetails
