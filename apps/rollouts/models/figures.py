"""Cached figures that take long to compute."""

from django.db import models
from django.db.models import Q

from apps.policies.models import PolicyModel
from apps.rollouts.models.collections import Collection


class KeptFigures(models.Model):
    """Figures of a collection, or of a policy model by version. A worker computes rows with `wanted_at`."""

    collection = models.OneToOneField(Collection, null=True, on_delete=models.CASCADE, related_name="kept_figures")
    policy_model = models.OneToOneField(PolicyModel, null=True, on_delete=models.CASCADE, related_name="kept_figures")
    facets = models.JSONField(default=list, blank=True, help_text="Cached breakdowns of a collection")
    counted = models.CharField(max_length=300, blank=True, help_text="Counters at the time of the measurement")
    content = models.TextField(blank=True, help_text="The figures as JSON; empty: never measured")
    seconds = models.FloatField(default=0.0, help_text="Duration of the measurement")
    measured_at = models.DateTimeField(null=True, blank=True)
    wanted_at = models.DateTimeField(null=True, blank=True, help_text="When newer ones were requested")
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When a worker started measuring")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(collection__isnull=False, policy_model__isnull=True)
                | Q(collection__isnull=True, policy_model__isnull=False),
                name="kept_figures_are_of_one",
            ),
        ]
        indexes = [
            models.Index(fields=["wanted_at"], condition=Q(wanted_at__isnull=False), name="kept_figures_wanted"),
        ]

    def __str__(self) -> str:
        return f"figures of {self.collection or self.policy_model}"
