"""Who runs rollouts, and what keeps rollouts from an endpoint that fails."""

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.environments.models import Environment
from apps.policies.models import PolicyModel


class Worker(models.Model):
    """A claimer's identity and lease. A worker that loses its lease takes a new row."""

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        DRAINING = "draining", "draining"
        STOPPED = "stopped", "stopped"
        LOST = "lost", "lost"

    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    group = models.SlugField(max_length=64, blank=True, help_text="Which models and environments it may use")
    seats = models.PositiveIntegerField()
    busy = models.PositiveIntegerField(default=0)
    backlog = models.PositiveIntegerField(default=0, help_text="Ended rollouts that wait to be stored")
    trouble = models.CharField(max_length=500, blank=True, help_text="Why it claims nothing, where it cannot")
    refuses = models.JSONField(default=dict, blank=True, help_text="Collections that it cannot run, by id, and why not")
    meters = models.JSONField(
        default=dict, help_text="Its counters since it began, as apps.rollouts.engine.worker_counters has them"
    )
    state = models.CharField(max_length=16, choices=State.choices, default=State.ACTIVE)
    started_at = models.DateTimeField(auto_now_add=True)
    heartbeat_at = models.DateTimeField(default=timezone.now)
    lease_expires_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["active", "draining", "stopped", "lost"]) & Q(seats__gte=1),
                name="worker_is_possible",
            ),
        ]

    def __str__(self) -> str:
        return f"worker {self.pk} on {self.host}:{self.pid}"

    @property
    def rate(self) -> float | None:
        """Attempts ended a second, between its last two beats; None before the second and once it is gone."""
        is_going = self.state in {self.State.ACTIVE, self.State.DRAINING}
        rate: float | None = self.meters.get("rate") if is_going else None
        return rate

    def is_overdue(self, now: datetime) -> bool:
        """Says that it lives, but its lease has run out: the next worker to look will declare it lost."""
        return self.state in {self.State.ACTIVE, self.State.DRAINING} and self.lease_expires_at < now


class Breaker(models.Model):
    """What keeps rollouts from an endpoint that fails. No row, or a closed one, lets everything through."""

    class State(models.TextChoices):
        CLOSED = "closed", "closed"
        OPEN = "open", "open"
        HALF_OPEN = "half_open", "half open"

    policy_model = models.OneToOneField(PolicyModel, null=True, blank=True, on_delete=models.CASCADE)
    environment = models.OneToOneField(Environment, null=True, blank=True, on_delete=models.CASCADE)
    state = models.CharField(max_length=16, choices=State.choices, default=State.CLOSED)
    failures = models.PositiveIntegerField(default=0, help_text="Calls that failed in a row")
    message = models.CharField(max_length=500, blank=True, help_text="What the last one said")
    opened_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True, help_text="When one rollout may try again")
    cooldown = models.FloatField(default=0.0, help_text="Seconds between the last two such tries")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(policy_model__isnull=True, environment__isnull=False)
                | Q(policy_model__isnull=False, environment__isnull=True),
                name="breaker_has_one_endpoint",
            ),
            models.CheckConstraint(
                condition=Q(state="closed") | Q(opened_at__isnull=False, retry_at__isnull=False),
                name="breaker_open_says_since_when",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["closed", "open", "half_open"]), name="breaker_state_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy_model or self.environment}: {self.state}"
