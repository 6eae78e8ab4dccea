"""Links from trackers to pages of GymWeb."""

from django.conf import settings
from django.urls import reverse


def page_link(name: str, *arguments: object) -> str:
    """Return the URL of a page. Without GYMWEB_PUBLIC_URL, only its path."""
    return f"{settings.PUBLIC_URL}{reverse(f'dashboard:{name}', args=arguments)}"
