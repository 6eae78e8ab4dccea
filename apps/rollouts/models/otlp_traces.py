"""Spans received over OTLP, kept until their trace is complete."""

from django.db import models
from django.db.models import Q

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated
from apps.policies.redacted_fields import RedactedCharField, RedactedTextField
from apps.rollouts.models.rollouts import Rollout
from apps.tasks.models import Dataset


class ReceivedTrace(Dated):
    """A trace for one dataset. It becomes a rollout, or gets a problem; then it is finished."""

    trace_id = models.CharField(max_length=32)
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="+")
    collection_name = RedactedCharField(max_length=200)
    has_root = models.BooleanField(default=False)
    size = models.PositiveIntegerField(default=0, help_text="Bytes of its spans")
    changed_at = models.DateTimeField(help_text="When its last span arrived")
    finished_at = models.DateTimeField(null=True, blank=True)
    rollout = models.ForeignKey(Rollout, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    problem = RedactedTextField(blank=True, help_text="Why it did not become a rollout")
    created_by = user_column()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["trace_id", "dataset"], name="received_trace_once")]
        indexes = [
            models.Index(fields=["changed_at"], condition=Q(finished_at__isnull=True), name="received_trace_open"),
            models.Index(fields=["finished_at"], name="received_trace_finished"),
        ]

    def __str__(self) -> str:
        return f"trace {self.trace_id}"


class ReceivedSpan(models.Model):
    """A span of a trace. Its body, in OTLP/JSON, is emptied when the trace is finished."""

    trace = models.ForeignKey(ReceivedTrace, on_delete=models.CASCADE, related_name="spans", db_index=False)
    span_id = models.CharField(max_length=16)
    body = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["trace", "span_id"], name="received_span_once")]

    def __str__(self) -> str:
        return f"span {self.span_id}"
