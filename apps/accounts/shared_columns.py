"""Abstract models with common columns."""

from django.db import models


class Dated(models.Model):
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True


class MayBeStale(models.Model):
    """A row made from rollouts. It is stale once a recheck has changed some of them."""

    stale_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="When it became stale")
    stale_reason = models.CharField(max_length=200, blank=True, editable=False, db_default="", default="")

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
