from django.conf import settings
from django.db import models

from apps.rollouts.models import Rollout


class Comment(models.Model):
    """What a person says of a rollout, or of one event of its trace."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="comments")
    seq = models.PositiveIntegerField(null=True, blank=True, help_text="The trace event it is about, if one")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="comments")
    text = models.TextField(max_length=10_000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"comment {self.pk} on rollout {self.rollout_id}"
