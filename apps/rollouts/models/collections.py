"""Collections and what becomes of them."""

import hashlib
import json

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.job_retries import RetriedJob
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.policies.typed_texts import TypedCharField
from apps.tasks.models import Dataset, DatasetVersion

LARGEST = 1e308
"""Both databases can compare with it: what is between it and its negative is neither infinite nor NaN."""


class CollectionQuerySet(models.QuerySet["Collection"]):
    def present(self) -> "CollectionQuerySet":
        """Those that are not on their way out."""
        return self.filter(is_being_deleted=False)

    def listed(self) -> "CollectionQuerySet":
        """Of them, those that nobody has put into the archive."""
        return self.present().filter(archived_at__isnull=True)


class Collection(models.Model):
    """One rollout collection: dataset version × agent × policy model × repeats. Its counters are kept by the engine."""

    class State(models.TextChoices):
        PLANNING = "planning", "planning"
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        COMPLETED = "completed", "completed"
        CANCELLED = "cancelled", "cancelled"

    class PauseReason(models.TextChoices):
        ASKED = "asked", "paused by a user"
        MAX_SECONDS = "max_seconds", "its time is used up"
        MAX_TOKENS = "max_tokens", "its tokens are used up"
        MAX_COST = "max_cost", "its budget is used up"
        QUOTA = "quota", "the quota of a model is exhausted"

    name = TypedCharField(max_length=200)
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="collections")
    version = models.ForeignKey(DatasetVersion, on_delete=models.PROTECT, related_name="collections")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="collections")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="collections")
    policy_model = models.ForeignKey(PolicyModel, on_delete=models.PROTECT, related_name="collections")
    repeats = models.PositiveIntegerField(default=1)
    limit = models.PositiveIntegerField(null=True, blank=True, help_text="Only the first so many tasks")
    seed = models.PositiveIntegerField(default=0)
    sampling = models.JSONField(default=dict, blank=True)
    split_repeats = models.JSONField(
        default=dict,
        blank=True,
        help_text='Rollouts of each task by its split, e.g. {"train": 8}; others get `repeats`',
    )
    splits = models.JSONField(default=list, blank=True, help_text="Only tasks of one of these splits")
    tags = models.JSONField(default=list, blank=True, help_text="Only tasks that have all of these tags")
    search = models.CharField(
        max_length=200,
        blank=True,
        help_text="Only tasks with these words in their id or in the beginning of their prompt",
    )
    prompt_template = models.JSONField(
        default=dict, blank=True, help_text="In place of the tasks' own prompts: {system, user}, with {gaps}"
    )
    resume_from = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="resumed_by",
        help_text="Only what failed, was cancelled or is missing in this earlier collection",
    )
    only_failed = models.BooleanField(default=False, help_text="Of that, only the rollouts that failed there")
    priority = models.SmallIntegerField(
        default=0,
        validators=[MinValueValidator(-1000), MaxValueValidator(1000)],
        help_text="Smaller is claimed first",
    )
    concurrency = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Maximum concurrent rollouts of all workers; empty: the limits of model and environment",
    )
    rollout_timeout = models.FloatField(
        default=1800.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(86_400)],
        help_text="Seconds of wall time for one attempt",
    )
    max_attempts = models.PositiveSmallIntegerField(
        default=2,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="Attempts at one rollout while models or environments fail; lost workers are counted apart",
    )
    max_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        default=7 * 86_400,
        validators=[MinValueValidator(1)],
        help_text="Seconds from its first rollout on, after which it is paused",
    )
    max_tokens = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Tokens of all its rollouts and their judge, after which it is paused; empty: no limit",
    )
    max_cost = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="USD by the prices of its models, after which it is paused; empty: no limit",
    )
    archived_at = models.DateTimeField(null=True, blank=True, help_text="Since when lists leave it out")
    is_being_deleted = models.BooleanField(
        default=False, help_text="A worker is deleting it; pages and API no longer show it"
    )
    snapshot = models.JSONField(default=dict, help_text="The resolved agent, policy model and environment as planned")
    # Null, since two plans without a key have none in common.
    idempotency_key = models.CharField(max_length=128, null=True, blank=True)  # noqa: DJ001
    plan_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the request with that key")
    state = models.CharField(max_length=16, choices=State.choices, default=State.PLANNING)
    pause_reason = models.CharField(max_length=16, choices=PauseReason.choices, blank=True)

    total = models.PositiveIntegerField(default=0)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    retried = models.PositiveIntegerField(default=0, help_text="Attempts that failed and were queued again")
    rewarded = models.PositiveIntegerField(default=0, help_text="Completed with a reward")
    reward_sum = models.FloatField(default=0.0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    judge_tokens = models.BigIntegerField(default=0, help_text="Read and written by its judge model")
    calls_without_usage = models.BigIntegerField(
        default=0, help_text="Replies of its models that did not tell their tokens: no limit and no cost counts them"
    )
    cost = models.FloatField(default=0.0, help_text="USD of every attempt that ended, its judge included")

    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="collections"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of its planning")
    reader = models.UUIDField(null=True, editable=False, help_text="Who came last to read it as a stream")
    left_at = models.DateTimeField(null=True, editable=False, help_text="When the reader of its stream disconnected")
    started_at = models.DateTimeField(null=True, blank=True, help_text="When its first rollout was claimed")
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = CollectionQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            # A key is its person's own. Commands have no person, and share one set of keys.
            models.UniqueConstraint(fields=["idempotency_key", "created_by"], name="collection_key_of_a_person"),
            models.UniqueConstraint(
                fields=["idempotency_key"], condition=Q(created_by__isnull=True), name="collection_key_of_commands"
            ),
            models.CheckConstraint(
                condition=(Q(state="paused") & ~Q(pause_reason="")) | (~Q(state="paused") & Q(pause_reason="")),
                name="collection_paused_has_a_reason",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["planning", "running", "paused", "completed", "cancelled"])
                & Q(pause_reason__in=["", "asked", "max_seconds", "max_tokens", "max_cost", "quota"]),
                name="collection_state_is_known",
            ),
            models.CheckConstraint(
                condition=Q(repeats__gte=1)
                & (Q(concurrency__isnull=True) | Q(concurrency__gte=1))
                & Q(rollout_timeout__gt=0, rollout_timeout__lte=86_400)
                & Q(max_attempts__gte=1, max_attempts__lte=20)
                & (Q(max_seconds__isnull=True) | Q(max_seconds__gte=1))
                & (Q(max_tokens__isnull=True) | Q(max_tokens__gte=1))
                & (Q(max_cost__isnull=True) | Q(max_cost__gte=0, max_cost__lte=LARGEST))
                & Q(priority__gte=-1000, priority__lte=1000),
                name="collection_limits_are_possible",
                violation_error_message="One of its limits cannot be.",
            ),
            models.CheckConstraint(
                condition=Q(cost__gte=0, cost__lte=LARGEST) & Q(reward_sum__gte=-LARGEST, reward_sum__lte=LARGEST),
                name="collection_sums_are_finite",
            ),
            models.CheckConstraint(
                condition=Q(total__gte=F("completed") + F("failed") + F("cancelled")),
                name="collection_counts_no_more_than_it_has",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["completed", "cancelled"]) | Q(finished_at__isnull=False),
                name="collection_finished_says_when",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        """Names are not unique: wherever one of several is meant, the number says which."""
        return f"#{self.pk} {self.name}"

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    def is_archived(self) -> bool:
        return self.archived_at is not None

    @property
    def snapshot_digest(self) -> str:
        """SHA-256 of the resolved configuration: the same where two collections ran the same in the same way."""
        written = json.dumps(self.snapshot, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(written.encode()).hexdigest()

    @property
    def mean_reward(self) -> float | None:
        return self.reward_sum / self.rewarded if self.rewarded else None

    @property
    def is_finished(self) -> bool:
        return self.state in {self.State.COMPLETED, self.State.CANCELLED}

    @property
    def may_go_on(self) -> bool:
        """Something of it may still run: of a completed one, what failed may be tried again."""
        return not self.is_finished or (self.state == self.State.COMPLETED and self.failed > 0)


class CollectionDeletion(RetriedJob):
    """A collection on its way out, with its rollouts and their traces, or only some of its rollouts; the row stays and
    says how that ended."""

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        DELETING = "deleting", "deleting"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    collection = models.ForeignKey(Collection, null=True, on_delete=models.SET_NULL, related_name="deletions")
    chosen = models.JSONField(
        default=dict, blank=True, help_text="Which of its rollouts; empty: all of them, and the collection with them"
    )
    name = models.CharField(max_length=220, help_text="Name of the deleted object")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    total = models.PositiveIntegerField(default=0, help_text="Rollouts there were")
    deleted = models.PositiveIntegerField(default=0)
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of the worker that runs it")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["collection"],
                condition=Q(state__in=["queued", "deleting"]),
                name="deletion_of_a_collection_once_at_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"deletion of {self.name} ({self.state})"

    @property
    def is_going_on(self) -> bool:
        return self.state in {self.State.QUEUED, self.State.DELETING}

    @property
    def share(self) -> float:
        return min(1.0, self.deleted / self.total) if self.total else 0.0
