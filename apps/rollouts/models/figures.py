"""Cached statistics of collections and models, and the precomputed blocks of counts behind them."""

from django.db import models
from django.db.models import F, Q

from apps.policies.models import PolicyModel
from apps.rollouts.models.collections import Collection

SPAN_BITS = 4
"""A span is 16 successive task ids. Its number is `task_id >> SPAN_BITS`. Blocks and marks refer to spans."""
LAST_SPAN = 2 ** (63 - SPAN_BITS) - 1
"""The span of the largest 64-bit id."""


class KeptFigures(models.Model):
    """Cached statistics: of a collection, or of a policy model by version.

    If `wanted_at` is set, a worker computes them again.
    """

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


class FigureBlock(models.Model):
    """Counts of a collection's rollouts in a range of spans. The blocks of a collection cover all spans.

    `content` is an encoded CollectionPart (apps/rollouts/metrics/whole_parts.py), or empty before the first count. A
    block is never updated: a new row replaces it.
    """

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="figure_blocks", db_index=False)
    first = models.BigIntegerField(help_text="First span")
    last = models.BigIntegerField(help_text="Last span")
    content = models.BinaryField(blank=True, default=b"")
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When a worker started counting")

    class Meta:
        ordering = ["collection", "first"]
        constraints = [
            models.UniqueConstraint(fields=["collection", "first"], name="figure_block_once"),
            models.CheckConstraint(condition=Q(first__gte=0, last__gte=F("first")), name="figure_block_is_possible"),
        ]

    def __str__(self) -> str:
        return f"spans {self.first} to {self.last} of {self.collection}"


class FigureMark(models.Model):
    """Marks a span whose rollouts changed. Inserted in the transaction of the change, without a lock on the block."""

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="figure_marks", db_index=False)
    span = models.BigIntegerField()
    marked_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["collection", "span"], name="figure_marks_of")]

    def __str__(self) -> str:
        return f"span {self.span} of {self.collection}"
