"""Abstract models with common columns."""

from django.db import models


class Dated(models.Model):
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class Named(Dated):
    """A row with a name, and a slug for URLs and the API."""

    slug = models.SlugField(max_length=64, unique=True)
    name: "models.CharField[str, str]"

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name
