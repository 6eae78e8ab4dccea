"""Scans: a judge model answers one question for many rollouts."""

from typing import cast

from django.db import models
from django.db.models import Q

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated
from apps.accounts.stored_json import StoredJSONField
from apps.gym.judging.transcript_questions import AnswerKind, Question
from apps.policies.models import PolicyModel
from apps.policies.redacted_fields import RedactedCharField, RedactedTextField
from apps.rollouts.models.rollouts import Rollout

FAILED_WORD = "error"
"""The value of the filter `scan:NUMBER=error`, which finds rollouts without an answer."""


class Scan(Dated):
    """A question, and the rollouts it is asked about. The rollouts are fixed when the scan starts."""

    class State(models.TextChoices):
        DRAFT = "draft", "not started"
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        COMPLETED = "completed", "completed"
        CANCELLED = "cancelled", "cancelled"

    class Kind(models.TextChoices):
        YES_NO = "yes_no", "yes or no"
        LABEL = "label", "a label"
        NUMBER = "number", "a number"

    name = RedactedCharField(max_length=100)
    question = RedactedTextField(max_length=4_000)
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.YES_NO)
    labels = models.JSONField(default=list, blank=True, help_text="Possible answers of the kind `label`")
    judge_model = models.ForeignKey(PolicyModel, on_delete=models.PROTECT, related_name="scans")
    filter = models.CharField(max_length=2_000, blank=True, help_text="Filter of the rollouts; empty: all")
    budget = models.FloatField(help_text="USD; the scan pauses when its cost reaches it")
    max_characters = models.PositiveIntegerField(help_text="Characters of a transcript that the judge reads")
    structured_output = models.BooleanField(default=True, help_text="Send the schema of the answer to the endpoint")
    state = models.CharField(max_length=16, choices=State.choices, default=State.DRAFT)
    total = models.PositiveIntegerField(default=0, help_text="Rollouts; an estimate until the scan starts")
    answered = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0, help_text="Rollouts without an answer")
    estimated_cost = models.FloatField(default=0.0, help_text="USD, estimated when the scan was created")
    cost = models.FloatField(default=0.0, help_text="USD of the judge's calls")
    message = models.CharField(max_length=500, blank=True)
    created_by = user_column("scans")
    touched_at = models.DateTimeField(null=True, blank=True, help_text="When a worker last worked on it")
    retry_at = models.DateTimeField(null=True, blank=True, help_text="When the judge may be called again")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["draft", "running", "paused", "completed", "cancelled"])
                & Q(kind__in=["yes_no", "label", "number"])
                & Q(budget__gt=0, budget__lte=1e9),
                name="scan_is_possible",
            ),
        ]

    def __str__(self) -> str:
        return f"scan #{self.pk}"

    @property
    def judge_question(self) -> Question:
        return Question(text=self.question, kind=cast(AnswerKind, self.kind), labels=self.labels)

    @property
    def done(self) -> int:
        return self.answered + self.failed

    @property
    def is_settled(self) -> bool:
        """Return True unless workers are calling the judge."""
        return self.state != self.State.RUNNING


class ScanAnswer(models.Model):
    """The judge's answer about one rollout, or the error of the call.

    A pending row has neither. A worker leases it until `leased_until` (database clock) and calls the judge.
    """

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        ANSWERED = "answered", "answered"
        FAILED = "failed", "failed"

    scan = models.ForeignKey(Scan, on_delete=models.CASCADE, related_name="answers", db_index=False)
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="scan_answers")
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="The scanned attempt of the rollout")
    answer = models.CharField(max_length=100, blank=True, help_text="yes, no, a label or a number as text")
    number = models.FloatField(null=True, blank=True, help_text="Of the kind `number`")
    reason = models.TextField(blank=True)
    citations = StoredJSONField(default=list, blank=True, help_text="Event numbers and quotes")
    error = models.TextField(blank=True)
    cost = models.FloatField(default=0.0, help_text="USD")
    tries = models.PositiveSmallIntegerField(default=0, help_text="Claims since the scan was started or resumed")
    lease = models.BigIntegerField(null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["scan", "rollout"], name="scan_answered_once"),
            models.CheckConstraint(
                condition=Q(state="pending", answer="", error="")
                | (Q(state="answered", error="") & ~Q(answer=""))
                | (Q(state="failed", answer="") & ~Q(error="")),
                name="scan_answer_or_error",
            ),
        ]
        indexes = [
            models.Index(fields=["scan", "answer", "id"], name="scan_answer_page"),
            models.Index(fields=["scan", "tries", "id"], condition=Q(state="pending"), name="scan_answer_pending"),
            models.Index(fields=["scan", "id"], condition=Q(state="failed"), name="scan_answer_failed"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id}: {self.answer or self.error or self.state}"
