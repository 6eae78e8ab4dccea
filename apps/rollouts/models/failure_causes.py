"""Causes of failed and unsolved rollouts, grouped by normalised text."""

from django.db import models

from apps.rollouts.models.collections import Collection
from apps.rollouts.models.rollouts import Rollout


class FailureCause(models.Model):
    """A cause that rollouts of one collection share."""

    class Source(models.TextChoices):
        VERIFIER = "verifier", "Verifier explanation"
        TOOL = "tool", "Last tool error"
        ERROR = "error", "Error"

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="failure_causes", db_index=False)
    source = models.CharField(max_length=16, choices=Source.choices)
    text = models.CharField(max_length=300, help_text="Normalised text, see apps/gym.traces.cause_texts.py")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["collection", "source", "text"], name="failure_cause_once"),
            models.CheckConstraint(
                condition=models.Q(source__in=["verifier", "tool", "error"]), name="failure_cause_source_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


class RolloutCause(models.Model):
    """A cause of one failed or unsolved rollout, at most one per source. The indexing job writes it."""

    pk = models.CompositePrimaryKey("rollout_id", "source")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="causes", db_index=False)
    source = models.CharField(max_length=16, choices=FailureCause.Source.choices)
    cause = models.ForeignKey(FailureCause, on_delete=models.CASCADE, related_name="rollouts", db_index=False)

    class Meta:
        indexes = [models.Index(fields=["cause", "rollout"], name="rollout_cause_page")]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id}: cause {self.cause_id}"
