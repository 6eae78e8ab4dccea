"""Review queues: items and reviewers."""

from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from apps.accounts.models import user_column
from apps.accounts.shared_columns import Dated, Named
from apps.accounts.stored_json import StoredJSONField
from apps.policies.redacted_fields import RedactedCharField, RedactedTextField
from apps.rollouts.models import Rollout
from apps.tasks.models import Task


class Rubric(Named):
    """Review criteria: questions and the kinds of answers they take (see apps/gym/rubric_criteria.py).

    The criteria of a rubric that reviews or queues use cannot be changed; create a new rubric instead.
    """

    name = RedactedCharField(max_length=100)
    description = RedactedTextField(max_length=4_000, blank=True)
    criteria = StoredJSONField(default=list, help_text="Criteria: key, label, kind and the settings of the kind")
    created_by = user_column("rubrics")

    class Meta:
        ordering = ["slug"]

    @property
    def keys(self) -> list[str]:
        criteria: list[dict[str, Any]] = self.criteria
        return [str(each["key"]) for each in criteria]


MAX_OVERLAP = 20
MAX_LEASE_MINUTES = 240


class QueueQuerySet(models.QuerySet["Queue"]):
    def open(self) -> "QueueQuerySet":
        return self.filter(closed_at__isnull=True)

    def blind(self) -> "QueueQuerySet":
        """Return queues that hide an expected answer, reward or model name from reviewers."""
        return self.exclude(shows_expected=True, shows_reward=True, shows_model=True)

    def for_reviewer(self, user_id: int) -> "QueueQuerySet":
        """Return queues that name this user as reviewer, or that name no reviewers."""
        return self.filter(Q(named_reviewers=False) | Q(reviewers__user=user_id))


class Queue(Dated):
    """A review queue: items, each to be reviewed by `overlap` reviewers."""

    class Kind(models.TextChoices):
        RUBRIC = "rubric", "rubric"
        PAIRWISE = "pairwise", "pairwise"
        RANKING = "ranking", "ranking"

    class Order(models.TextChoices):
        RANDOM = "random", "random"
        DISAGREEMENT = "disagreement", "disagreement first"
        NEWEST = "newest", "newest first"

    name = RedactedCharField(max_length=150)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    rubric = models.ForeignKey(Rubric, null=True, blank=True, on_delete=models.PROTECT, related_name="queues")
    instructions = models.TextField(max_length=20_000, blank=True, help_text="Instructions for reviewers")
    overlap = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_OVERLAP)],
        help_text="Reviews per item",
    )
    order = models.CharField(max_length=16, choices=Order.choices, default=Order.RANDOM)
    seed = models.BigIntegerField(default=0, help_text="Random seed for order and pairing")
    lease_minutes = models.PositiveSmallIntegerField(
        default=15,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_LEASE_MINUTES)],
        help_text="How long an open item stays reserved for one reviewer",
    )
    shows_expected = models.BooleanField(default=False, help_text="Reviewers see the expected answer")
    shows_reward = models.BooleanField(default=False, help_text="Reviewers see the verifier's reward")
    shows_model = models.BooleanField(default=False, help_text="Reviewers see the model name")
    reveals = models.BooleanField(
        default=False, help_text="Show rewards and models after submitting, for training reviewers"
    )
    repeat_share = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.5)],
        help_text="Share of items that each reviewer sees twice, to measure consistency",
    )
    named_reviewers = models.BooleanField(
        default=False, help_text="Only named reviewers; otherwise all annotators, engineers and admins"
    )
    source = models.JSONField(default=dict, blank=True, help_text="Source of its items")
    item_count = models.PositiveIntegerField(default=0)
    created_by = user_column("queues")
    closed_at = models.DateTimeField(null=True, blank=True)

    objects = QueueQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="rubric", rubric__isnull=False) | Q(kind__in=["pairwise", "ranking"]),
                name="queue_of_rubric_has_one",
            ),
            models.CheckConstraint(
                condition=Q(overlap__gte=1, overlap__lte=MAX_OVERLAP)
                & Q(lease_minutes__gte=1, lease_minutes__lte=MAX_LEASE_MINUTES)
                & Q(repeat_share__gte=0.0, repeat_share__lte=0.5)
                & Q(order__in=["random", "disagreement", "newest"]),
                name="queue_is_possible",
            ),
        ]

    def __str__(self) -> str:
        return f"queue “{self.name}”"

    @property
    def is_open(self) -> bool:
        return self.closed_at is None

    @property
    def criteria(self) -> list[dict[str, Any]]:
        return self.rubric.criteria if self.rubric else []

    @property
    def is_blind(self) -> bool:
        return not (self.shows_expected and self.shows_reward and self.shows_model)


class QueueReviewer(models.Model):
    """A named reviewer of a queue."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="reviewers")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "user"], name="queue_reviewer_once")]

    def __str__(self) -> str:
        return f"reviewer {self.user_id} of queue {self.queue_id}"


class QueueItem(models.Model):
    """An item to review: one rollout to score, two to compare, or up to six to rank, all of the same task."""

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="items", db_index=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="+")
    size = models.PositiveSmallIntegerField(help_text="Number of rollouts, including deleted ones")
    shuffle = models.BigIntegerField(help_text="Its place in a random order")
    doubt = models.FloatField(default=0.0, help_text="Disagreement from 0; higher values are assigned first")
    is_repeated = models.BooleanField(default=False, help_text="Shown again to the same reviewer")
    done = models.PositiveSmallIntegerField(default=0, help_text="Submitted reviews, without repeats and adjudications")
    is_adjudicated = models.BooleanField(default=False)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=Q(size__gte=1, size__lte=6), name="item_has_one_to_six"),
        ]
        indexes = [
            models.Index(fields=["queue", "shuffle"], name="item_random"),
            models.Index(fields=["queue", "-doubt", "shuffle"], name="item_doubtful"),
        ]

    def __str__(self) -> str:
        return f"item {self.pk} of queue {self.queue_id}"


class ItemRollout(models.Model):
    """A rollout of a queue item. `place` is its position among them, from 0."""

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="entries", db_index=False)
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="queue_entries")
    place = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ["item", "place"]
        constraints = [
            models.UniqueConstraint(fields=["item", "place"], name="item_place_once"),
            models.UniqueConstraint(fields=["item", "rollout"], name="item_rollout_once"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.rollout_id} in item {self.item_id}"
