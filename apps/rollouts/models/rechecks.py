"""Rechecks of stored rollouts, and the changes that they find."""

import json
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.accounts.stored_json import StoredJSONField
from apps.rollouts.models.collections import Collection
from apps.rollouts.models.reverifications import Reverification
from apps.rollouts.models.rollouts import Rollout
from apps.tasks.fenced_jobs import FencedJob


class Recheck(FencedJob):
    """Derives the columns and links of a collection's rollouts again with the current rules.

    Rollouts change only when a user applies the changes. A job that was cancelled or failed can be resumed.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        READY = "ready", "ready"
        APPLIED = "applied", "applied"
        CANCELLED = "cancelled", "cancelled"
        FAILED = "failed", "failed"

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="rechecks")
    rules = models.PositiveSmallIntegerField(help_text="Version of the rules")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    applies = models.BooleanField(default=False, help_text="True once a user has applied the changes")
    last_rollout = models.BigIntegerField(default=0, help_text="The rollout that was checked last")
    total = models.PositiveIntegerField(default=0, help_text="Ended rollouts")
    checked = models.PositiveIntegerField(default=0, help_text="Rollouts checked so far")
    outcomes = models.PositiveIntegerField(default=0, help_text="Rollouts with another reward, outcome or trace")
    untrainable = models.PositiveIntegerField(
        default=0, help_text="Rollouts without a trainable token, or with tokens left out"
    )
    counts = models.PositiveIntegerField(default=0, help_text="Rollouts with other counts only")
    to_verify = models.PositiveIntegerField(
        default=0, help_text="Rollouts whose verifier saw another conversation, or gives another reward today"
    )
    applied = models.PositiveIntegerField(default=0, help_text="Updated rollouts")
    skipped = models.PositiveIntegerField(default=0, help_text="Changed in the meantime, so not updated")
    exports = models.JSONField(default=list, blank=True, help_text="Exports that used rollouts with another outcome")
    reverifications = models.ManyToManyField(Reverification, related_name="rechecks")
    created_by = user_column("rechecks")
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of the worker that runs it")
    applied_from = models.DateTimeField(null=True, blank=True, help_text="When the first change was written")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["collection"], condition=Q(state__in=["queued", "running"]), name="recheck_once_at_a_time"
            ),
        ]

    def __str__(self) -> str:
        return f"recheck #{self.pk} of {self.collection.label}"

    @property
    def changed(self) -> int:
        """Return the number of rollouts that differ from the current rules."""
        return self.outcomes + self.untrainable + self.counts

    @property
    def done(self) -> int:
        """Return the progress of the current phase."""
        return self.applied + self.skipped if self.applies else self.checked

    @property
    def whole(self) -> int:
        """Return the number at which the current phase is complete."""
        return self.changed if self.applies else self.total

    @property
    def can_resume(self) -> bool:
        return self.state in {self.State.CANCELLED, self.State.FAILED}


class RolloutChange(models.Model):
    """The columns of a rollout that differ from the current rules, with old and new values. Kept as history."""

    class Kind(models.TextChoices):
        OUTCOME = "outcome", "outcome"
        UNTRAINABLE = "untrainable", "untrainable tokens"
        COUNTS = "counts", "counts"

    class Fate(models.TextChoices):
        APPLIED = "applied", "applied"
        SKIPPED = "skipped", "the rollout changed in the meantime"

    recheck = models.ForeignKey(Recheck, on_delete=models.CASCADE, related_name="changes")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="changes")
    attempt = models.PositiveSmallIntegerField(help_text="The checked attempt of the rollout")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    old = StoredJSONField(default=dict)
    new = StoredJSONField(default=dict)
    needs_verification = models.BooleanField(
        default=False, help_text="The verifier saw another conversation, or gives another reward today"
    )
    fate = models.CharField(max_length=16, choices=Fate.choices, blank=True, help_text="Empty until it is applied")

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["recheck", "rollout"], name="rechecked_once")]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id}: {self.kind}"

    @property
    def fields(self) -> list[tuple[str, str, str]]:
        """Return name, old and new value of each changed field, as texts."""
        return [(name, _shown(self.old.get(name)), _shown(value)) for name, value in self.new.items()]


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
