"""What people are asked to score."""

from typing import Any

from django.conf import settings
from django.db import models

from apps.accounts.stored_json import StoredJSONField
from apps.policies.typed_texts import TypedCharField, TypedTextField


class Rubric(models.Model):
    """A list of criteria, each a question with the form of its answer; see apps/gym/rubric_criteria.py.

    What has been scored by it stays: once a review uses it, another one is made instead of changing it.
    """

    slug = models.SlugField(max_length=64, unique=True)
    name = TypedCharField(max_length=100)
    description = TypedTextField(max_length=4_000, blank=True)
    criteria = StoredJSONField(default=list, help_text="A list of criteria: key, label, kind and what its kind needs")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="rubrics"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name

    @property
    def keys(self) -> list[str]:
        criteria: list[dict[str, Any]] = self.criteria
        return [str(each["key"]) for each in criteria]
