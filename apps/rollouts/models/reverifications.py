"""Reverifications and their results."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.accounts.stored_json import StoredJSONField
from apps.rollouts.models.collections import Collection
from apps.rollouts.models.rollouts import Rollout
from apps.tasks.fenced_jobs import FencedJob


class Reverification(FencedJob):
    """Runs the verifier again on stored traces of a collection, without calls of the policy model.

    Rollouts change only when a user applies the results.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        VERIFYING = "verifying", "verifying"
        READY = "ready", "ready"
        APPLYING = "applying", "applying"
        APPLIED = "applied", "applied"
        CANCELLED = "cancelled", "cancelled"
        FAILED = "failed", "failed"

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="reverifications")
    filters = models.JSONField(default=dict, blank=True, help_text='e.g. {"judge_failures": true}; none: all')
    forced = models.BooleanField(
        default=False, help_text="Re-verify even if the verifier may need the state of the attempt"
    )
    replays = models.BooleanField(default=False, help_text="Replay the recorded tool calls in a new session")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    total = models.PositiveIntegerField(default=0)
    verified = models.PositiveIntegerField(default=0, help_text="Rollouts with a new reward")
    changed = models.PositiveIntegerField(default=0, help_text="Rollouts whose reward or components changed")
    failed = models.PositiveIntegerField(default=0, help_text="Failed verifications")
    applied = models.PositiveIntegerField(default=0)
    stale = models.PositiveIntegerField(default=0, help_text="Changed in the meantime, so not updated")
    cost = models.FloatField(default=0.0, help_text="USD of the judge's calls")
    created_by = user_column("reverifications")
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of the worker that runs it")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"reverification #{self.pk} of {self.collection.label}"

    @property
    def done(self) -> int:
        """Return the number of rollouts that the verifier has processed."""
        return self.verified + self.failed


class ReverifiedReward(models.Model):
    """The old and the new reward of one rollout, or the error of its verification. Kept as history."""

    class Fate(models.TextChoices):
        APPLIED = "applied", "applied"
        STALE = "stale", "the rollout changed in the meantime"

    reverification = models.ForeignKey(Reverification, on_delete=models.CASCADE, related_name="rewards")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="reverified_rewards")
    attempt = models.PositiveSmallIntegerField(help_text="The re-verified attempt of the rollout")
    old_status = models.CharField(max_length=16, choices=Rollout.Status.choices)
    old_reward = models.FloatField(null=True, blank=True)
    old_components = StoredJSONField(default=dict, blank=True)
    new_reward = models.FloatField(null=True, blank=True)
    new_components = StoredJSONField(default=dict, blank=True)
    difference = models.FloatField(null=True, blank=True, help_text="New − old; null unless both exist")
    changed = models.BooleanField(default=False)
    fate = models.CharField(max_length=16, choices=Fate.choices, blank=True, help_text="Empty until it is applied")
    stop_reason = models.CharField(max_length=32, blank=True)
    answer = models.CharField(max_length=200, blank=True, help_text="Normalised final answer")
    # Text, as in the trace: model output may contain a NUL character, which PostgreSQL's JSON rejects.
    events = models.TextField(blank=True, help_text="Events to append to the trace, one per line: judge calls, verdict")
    error_kind = models.CharField(max_length=32, blank=True)
    error_message = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["reverification", "rollout"], name="reverified_once"),
            models.CheckConstraint(
                condition=Q(new_reward__isnull=True) | Q(error_kind=""), name="reverified_or_failed"
            ),
        ]
        indexes = [
            models.Index(fields=["reverification", "id"], condition=Q(changed=True), name="reverified_changed"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id}: {self.old_reward} → {self.new_reward}"
