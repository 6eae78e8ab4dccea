"""The address of a one-time sign-in link, for commands that print it."""

from django.urls import reverse


def sign_in_url(base_url: str, token: str) -> str:
    return base_url.rstrip("/") + reverse("dashboard:sign_in_link", args=[token])
