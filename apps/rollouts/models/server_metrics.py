"""Metrics of a collection that the resource server of its environment computed."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.rollouts.models.collections import Collection
from apps.tasks.fenced_jobs import FencedJob


class ServerMetrics(FencedJob):
    """A job that requests `/aggregate_metrics` of a server. It keeps the last reply, even if a later request fails."""

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        COMPUTING = "computing", "computing"
        READY = "ready", "ready"
        UNSUPPORTED = "unsupported", "not supported by the server"
        FAILED = "failed", "failed"

    collection = models.OneToOneField(Collection, on_delete=models.CASCADE, related_name="server_metrics")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    message = models.CharField(max_length=500, blank=True, help_text="Why the last request failed")
    key_metrics = models.JSONField(default=dict, blank=True, help_text="Headline metrics, by name")
    agent_metrics = models.JSONField(default=dict, blank=True, help_text="All metrics, by name")
    rewarded = models.PositiveIntegerField(default=0, help_text="Rollouts that were sent")
    reward_sum = models.FloatField(default=0.0, help_text="Sum of their rewards")
    measured_at = models.DateTimeField(null=True, blank=True, help_text="When the server replied")
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of the worker that runs it")

    class Meta:
        verbose_name = verbose_name_plural = "server metrics"
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["queued", "computing", "ready", "unsupported", "failed"]),
                name="server_metrics_state_is_known",
            )
        ]
        indexes = [
            models.Index(
                fields=["touched_at"], condition=Q(state__in=["queued", "computing"]), name="server_metrics_waiting"
            )
        ]

    def __str__(self) -> str:
        return f"server metrics of {self.collection.label}"

    @property
    def is_running(self) -> bool:
        return self.state in {self.State.QUEUED, self.State.COMPUTING}

    @property
    def is_outdated(self) -> bool:
        """Return True if the rewards of the collection have changed since the server replied."""
        known = self.collection.rewarded, self.collection.reward_sum
        return self.measured_at is not None and (self.rewarded, self.reward_sum) != known
