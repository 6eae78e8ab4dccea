"""Columns that refer to a user."""

from django.conf import settings
from django.db import models

from apps.accounts.models import User


def user_column(related_name: str = "+", *, editable: bool = True) -> "models.ForeignKey[User | None, User | None]":
    """Return a column for the user who did something. It is null after the user is deleted."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        editable=editable,
        on_delete=models.SET_NULL,
        related_name=related_name,
    )
