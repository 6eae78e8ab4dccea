"""Alerts: subscriptions, the events that they receive, and the delivery of each event to each subscription."""

import uuid

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated
from apps.gym.rewards import MAX_REWARD


class EventKind(models.TextChoices):
    COLLECTION_ENDED = "collection.ended", "Collection completed or cancelled"
    COLLECTION_PAUSED = "collection.paused", "Collection paused by a user or an exhausted quota"
    BUDGET_REACHED = "collection.budget_reached", "Collection paused by its time, token or cost limit"
    FAILURE_SHARE = "collection.failure_share", "Share of failed rollouts reached the threshold"
    REWARD_MOVED = "collection.reward_moved", "Mean reward changed since the previous collection"
    ENDPOINT_DOWN = "endpoint.down", "Model or environment down for a minute"
    ENDPOINT_THROTTLED = "endpoint.throttled", "Model or environment throttled for ten minutes"
    DISK_LOW = "disk.low", "Disk almost full, at most once a day"
    QUEUE_FINISHED = "queue.finished", "All items of a review queue reviewed"
    EXPORT_READY = "export.ready", "Export ready"
    TEST = "test", "Test"


EVENT_CHOICES = [(kind.value, kind.label) for kind in EventKind if kind is not EventKind.TEST]
"""The kinds that a subscription can choose."""


def known_kinds(value: object) -> None:
    """Validate a list of event kinds: at least one, without duplicates."""
    known = [kind for kind, _ in EVENT_CHOICES]
    if not isinstance(value, list) or not value:
        raise ValidationError(f"Give at least one of: {', '.join(known)}.", code="required")
    if unknown := [one for one in value if one not in known]:
        raise ValidationError(f"Unknown event “{unknown[0]}”. Choose from {', '.join(known)}.", code="unknown")
    if len(set(value)) < len(value):
        raise ValidationError("An event is repeated. Give each event once.", code="twice")


class Subscription(Dated):
    """A receiver of alerts: a webhook, a Slack-compatible webhook, or an e-mail address."""

    class Channel(models.TextChoices):
        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack-compatible webhook"
        EMAIL = "email", "E-mail"

    name = models.CharField(max_length=100, unique=True, error_messages={"unique": "This name is already used."})
    channel = models.CharField(max_length=16, choices=Channel.choices, default=Channel.WEBHOOK)
    # Encrypted, because the address of a webhook may contain a token.
    address_encrypted = models.TextField(editable=False)
    address_hint = models.CharField(max_length=300, editable=False, help_text="The address without path and query")
    secret_encrypted = models.TextField(blank=True, editable=False)
    event_kinds = models.JSONField(validators=[known_kinds], help_text="Events to send")
    min_failure_share = models.FloatField(
        default=0.2,
        validators=[MinValueValidator(0.01), MaxValueValidator(1)],
        help_text="Share of failed rollouts. Applies after 20 finished rollouts.",
    )
    min_reward_change = models.FloatField(
        default=0.05,
        validators=[MinValueValidator(0.0), MaxValueValidator(MAX_REWARD)],
        help_text="Smallest change of the mean reward, up or down",
    )
    is_enabled = models.BooleanField(default=True, help_text="Disabled: events are neither recorded nor sent")
    created_by = user_column(editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(channel="webhook", secret_encrypted__gt="")
                | Q(channel__in=["slack", "email"], secret_encrypted=""),
                name="subscription_of_webhook_has_a_secret",
            ),
            models.CheckConstraint(
                condition=Q(min_failure_share__gt=0, min_failure_share__lte=1)
                & Q(min_reward_change__gte=0, min_reward_change__lte=MAX_REWARD),
                name="subscription_thresholds_are_possible",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Event(Dated):
    """An event to send as an alert. Its id is the `webhook-id` of all its deliveries and retries."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=32, choices=EventKind.choices)
    key = models.CharField(max_length=200, unique=True, help_text="Natural key: prevents recording an event twice")
    text = models.CharField(max_length=500, help_text="One sentence for e-mail and chat")
    path = models.CharField(max_length=300, help_text="Path of its page")
    data = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Delivery(models.Model):
    """An event to send to a subscription. A worker claims it by moving `next_attempt_at` to the end of its lease."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        DELIVERED = "delivered", "delivered"
        FAILED = "failed", "failed"

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="deliveries")
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    retry_until = models.DateTimeField(help_text="A failed attempt after this time is the last one")
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status of the last attempt")
    error = models.CharField(max_length=500, blank=True, help_text="Error of the last attempt")
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["subscription", "event"], name="delivery_once"),
            models.CheckConstraint(
                condition=Q(state__in=["pending", "failed"], delivered_at__isnull=True)
                | Q(state="delivered", delivered_at__isnull=False),
                name="delivery_state_is_known",
            ),
        ]
        indexes = [
            models.Index(fields=["next_attempt_at"], condition=Q(state="pending"), name="delivery_pending"),
        ]

    def __str__(self) -> str:
        return f"{self.event.kind} to {self.subscription}"
