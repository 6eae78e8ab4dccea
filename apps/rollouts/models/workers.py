"""Workers, their reservations, and circuit breakers of failing endpoints."""

from datetime import datetime

from django.db import models
from django.db.models import Q, Value
from django.utils import timezone

from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.models.collections import Collection


class Worker(models.Model):
    """Identity and lease of a worker. A worker that loses its lease takes a new row."""

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        DRAINING = "draining", "draining"
        STOPPED = "stopped", "stopped"
        LOST = "lost", "lost"

    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    group = models.SlugField(max_length=64, blank=True, help_text="Worker group; selects models and environments")
    seats = models.PositiveIntegerField()
    busy = models.PositiveIntegerField(default=0)
    backlog = models.PositiveIntegerField(default=0, help_text="Rollouts waiting to be stored")
    trouble = models.CharField(max_length=500, blank=True, help_text="Why it cannot claim rollouts")
    refuses = models.JSONField(default=dict, blank=True, help_text="Collections that it cannot run: id and reason")
    meters = models.JSONField(default=dict, help_text="Counters since its start (apps.rollouts.engine.worker_counters)")
    capture_address = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",  # for workers of an older version during an upgrade
        help_text="Host and port at which external agents of its rollouts reach the model",
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
        """Return finished attempts per second between the last two heartbeats.

        None before the second heartbeat and after the worker stopped.
        """
        is_running = self.state in {self.State.ACTIVE, self.State.DRAINING}
        rate: float | None = self.meters.get("rate") if is_running else None
        return rate

    def is_overdue(self, now: datetime) -> bool:
        """Return True if the lease expired although the worker did not stop. The next check marks it lost."""
        return self.state in {self.State.ACTIVE, self.State.DRAINING} and self.lease_expires_at < now


class Reservation(models.Model):
    """Slots that a worker has reserved within the limits of a collection: at least one for each rollout it runs.

    Used on PostgreSQL only (apps.rollouts.engine.reservations).
    """

    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    slots = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["worker", "collection"], name="reservation_is_one")]

    def __str__(self) -> str:
        return f"{self.slots} slots of collection {self.collection_id} for worker {self.worker_id}"


class Breaker(models.Model):
    """The circuit breaker of an endpoint. Without a row, or when closed, it allows all calls."""

    class State(models.TextChoices):
        CLOSED = "closed", "closed"
        OPEN = "open", "open"
        HALF_OPEN = "half_open", "half open"

    policy_model = models.OneToOneField(PolicyModel, null=True, blank=True, on_delete=models.CASCADE)
    environment = models.OneToOneField(Environment, null=True, blank=True, on_delete=models.CASCADE)
    state = models.CharField(max_length=16, choices=State.choices, default=State.CLOSED)
    failures = models.PositiveIntegerField(default=0, help_text="Calls that failed in a row")
    message = models.CharField(max_length=500, blank=True, help_text="Last error message")
    opened_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True, help_text="When one rollout may test it")
    cooldown = models.FloatField(default=0.0, help_text="Seconds between the last two tests")
    # The defaults of the database are for workers of an older version during an upgrade.
    tests = models.JSONField(
        default=dict, db_default=Value({}, models.JSONField()), help_text="Tests since it opened, by collection id"
    )
    rollouts = models.JSONField(
        default=list, db_default=Value([], models.JSONField()), help_text="Rollouts whose calls failed last, by id"
    )

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
