"""Collections and their deletion."""

import hashlib
import json

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.accounts.models import user_column
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym.metrics.pass_at_k import SOLVED
from apps.gym.rewards import MAX_REWARD
from apps.gym.stored_rules import RULES, current_rules
from apps.gym.wires.pricing import known_cost
from apps.policies.models import PolicyModel
from apps.policies.redacted_fields import RedactedCharField
from apps.tasks.deletion_jobs import DeletionJob
from apps.tasks.models import Dataset, DatasetVersion

MAX_FLOAT = 1e308
"""Check constraints limit numbers to ± MAX_FLOAT, which excludes infinity and NaN."""


class CollectionQuerySet(models.QuerySet["Collection"]):
    def present(self) -> "CollectionQuerySet":
        """Leave out collections that are being deleted."""
        return self.filter(is_being_deleted=False)

    def listed(self) -> "CollectionQuerySet":
        """Leave out collections that are archived or being deleted."""
        return self.present().filter(archived_at__isnull=True)

    def under_earlier_rules(self) -> "CollectionQuerySet":
        """Return collections with stored traces that need a recheck."""
        return self.present().filter(rules_version__lt=RULES, traces_deleted_at__isnull=True)


class Collection(models.Model):
    """Rollouts of one agent and policy model on the tasks of a dataset version, several times each.

    The engine maintains the counters.
    """

    class State(models.TextChoices):
        PLANNING = "planning", "planning"
        RUNNING = "running", "running"
        PAUSED = "paused", "paused"
        COMPLETED = "completed", "completed"
        CANCELLED = "cancelled", "cancelled"

    class PauseReason(models.TextChoices):
        ASKED = "asked", "paused by a user"
        MAX_SECONDS = "max_seconds", "the time limit is reached"
        MAX_TOKENS = "max_tokens", "the token limit is reached"
        MAX_COST = "max_cost", "the cost limit is reached"
        QUOTA = "quota", "the quota of a model is exhausted"
        NOTICE = "notice", "all rollouts so far show the same set-up notice"

    name = RedactedCharField(max_length=200)
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="collections")
    version = models.ForeignKey(DatasetVersion, on_delete=models.PROTECT, related_name="collections")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="collections")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="collections")
    policy_model = models.ForeignKey(PolicyModel, on_delete=models.PROTECT, related_name="collections")
    repeats = models.PositiveIntegerField(default=1)
    limit = models.PositiveIntegerField(null=True, blank=True, help_text="Use only the first tasks")
    seed = models.PositiveIntegerField(default=0)
    sampling = models.JSONField(default=dict, blank=True)
    split_repeats = models.JSONField(
        default=dict,
        blank=True,
        help_text='Rollouts per task by split, e.g. {"train": 8}; other splits use `repeats`',
    )
    splits = models.JSONField(default=list, blank=True, help_text="Only tasks of these splits")
    tags = models.JSONField(default=list, blank=True, help_text="Only tasks that have all of these tags")
    search = models.CharField(
        max_length=200,
        blank=True,
        help_text="Only tasks with these words in the ID or at the start of the prompt",
    )
    prompt_template = models.JSONField(
        default=dict,
        blank=True,
        help_text="Replaces the task prompts: {system, user}, with {field} for fields of the row",
    )
    resume_from = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="resumed_by",
        help_text="Only rollouts that failed, were cancelled or are missing in that collection",
    )
    only_failed = models.BooleanField(default=False, help_text="Run only its failed rollouts")
    priority = models.SmallIntegerField(
        default=0,
        validators=[MinValueValidator(-1000), MaxValueValidator(1000)],
        help_text="Smaller numbers run first",
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
        help_text="Maximum attempts per rollout after failures of models or environments; lost "
        "workers count separately",
    )
    max_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        default=7 * 86_400,
        validators=[MinValueValidator(1)],
        help_text="Seconds from the first rollout until it is paused",
    )
    max_tokens = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Tokens of rollouts and judge until it is paused; empty: no limit",
    )
    max_cost = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="USD at the prices of its models until it is paused; empty: no limit",
    )
    pause_on_notice = models.BooleanField(
        default=False, help_text="Pause when 20 rollouts have ended and all show the same set-up notice"
    )
    archived_at = models.DateTimeField(null=True, blank=True, help_text="When it was archived")
    traces_deleted_at = models.DateTimeField(
        null=True, blank=True, help_text="When the deletion of its traces began; rollouts and figures stay"
    )
    is_being_deleted = models.BooleanField(
        default=False, help_text="A worker is deleting it; pages and API no longer show it"
    )
    snapshot = models.JSONField(default=dict, help_text="The resolved agent, policy model and environment as planned")
    # Null if the request had no key: unique constraints ignore null.
    idempotency_key = models.CharField(max_length=128, null=True, blank=True)  # noqa: DJ001
    plan_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the request with that key")
    state = models.CharField(max_length=16, choices=State.choices, default=State.PLANNING)
    pause_reason = models.CharField(max_length=16, choices=PauseReason.choices, blank=True)

    solve_threshold = models.FloatField(
        default=SOLVED,
        db_default=SOLVED,
        help_text="Smallest reward that solves a task; copied from the environment when planned",
    )
    rules_version = models.PositiveSmallIntegerField(
        default=current_rules,
        db_default=0,
        help_text="Version of the rules that its rollouts are stored under; 0: those of GymWeb 0.2",
    )
    total = models.PositiveIntegerField(default=0)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    retried = models.PositiveIntegerField(default=0, help_text="Attempts retried after a failure")
    rewarded = models.PositiveIntegerField(default=0, help_text="Completed with a reward")
    reward_sum = models.FloatField(default=0.0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    judge_tokens = models.BigIntegerField(default=0, help_text="Input and output tokens of the judge model")
    calls_without_usage = models.BigIntegerField(
        default=0, help_text="Replies without token counts; limits and cost leave them out"
    )
    retried_calls = models.BigIntegerField(
        default=0, db_default=0, help_text="Calls of the policy model and the judge that needed more than one try"
    )
    cost = models.FloatField(default=0.0, help_text="USD of all finished attempts, judge included")

    created_by = user_column("collections")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of its planning")
    reader = models.UUIDField(null=True, editable=False, help_text="Last reader of its stream")
    left_at = models.DateTimeField(null=True, editable=False, help_text="When the reader of its stream disconnected")
    started_at = models.DateTimeField(null=True, blank=True, help_text="When its first rollout was claimed")
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = CollectionQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            # Each user has separate idempotency keys. Commands have no user and share one set of keys.
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
                & Q(pause_reason__in=["", "asked", "max_seconds", "max_tokens", "max_cost", "quota", "notice"]),
                name="collection_state_is_known",
            ),
            models.CheckConstraint(
                condition=Q(repeats__gte=1)
                & (Q(concurrency__isnull=True) | Q(concurrency__gte=1))
                & Q(rollout_timeout__gt=0, rollout_timeout__lte=86_400)
                & Q(max_attempts__gte=1, max_attempts__lte=20)
                & (Q(max_seconds__isnull=True) | Q(max_seconds__gte=1))
                & (Q(max_tokens__isnull=True) | Q(max_tokens__gte=1))
                & (Q(max_cost__isnull=True) | Q(max_cost__gte=0, max_cost__lte=MAX_FLOAT))
                & Q(priority__gte=-1000, priority__lte=1000),
                name="collection_limits_are_possible",
                violation_error_message="A limit is out of range.",
            ),
            models.CheckConstraint(
                condition=Q(cost__gte=0, cost__lte=MAX_FLOAT)
                & Q(reward_sum__gte=-MAX_FLOAT, reward_sum__lte=MAX_FLOAT),
                name="collection_sums_are_finite",
            ),
            models.CheckConstraint(
                condition=Q(solve_threshold__gte=-MAX_REWARD, solve_threshold__lte=MAX_REWARD),
                name="collection_solve_threshold_is_finite",
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
        """Return a label with the number of the collection, because names are not unique."""
        return f"#{self.pk} {self.name}"

    @property
    def ended(self) -> int:
        """Return the number of rollouts that have ended."""
        return self.completed + self.failed + self.cancelled

    @property
    def is_archived(self) -> bool:
        return self.archived_at is not None

    @property
    def snapshot_digest(self) -> str:
        """Return the SHA-256 of the snapshot. Collections with equal digests ran with the same settings."""
        canonical = json.dumps(self.snapshot, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def mean_reward(self) -> float | None:
        return self.reward_sum / self.rewarded if self.rewarded else None

    @property
    def known_cost(self) -> float | None:
        """Return the cost, or None if tokens were used and no model had prices."""
        tokens = self.input_tokens + self.output_tokens + self.judge_tokens
        return known_cost(self.cost, tokens, is_free=self.policy_model.is_scripted)

    @property
    def is_finished(self) -> bool:
        """Return True if the collection is completed or cancelled."""
        return self.state in {self.State.COMPLETED, self.State.CANCELLED}

    @property
    def can_continue(self) -> bool:
        """Return True if rollouts can still run. A completed collection may have failed rollouts to retry."""
        return not self.is_finished or (self.state == self.State.COMPLETED and self.failed > 0)


class CollectionDeletion(DeletionJob):
    """The deletion of a collection with its rollouts and traces, of some of its rollouts, or of its traces only."""

    collection = models.ForeignKey(Collection, null=True, on_delete=models.SET_NULL, related_name="deletions")
    chosen = models.JSONField(default=dict, blank=True, help_text="Rollouts to delete; empty: all, and the collection")
    traces_only = models.BooleanField(default=False, db_default=False, help_text="Delete only traces and their words")
    deleted_events = models.BigIntegerField(default=0, db_default=0, help_text="Deleted trace events")
    deleted_bytes = models.BigIntegerField(default=0, db_default=0, help_text="Bytes of deleted traces and words")
    name = models.CharField(max_length=220, help_text="Name of the deleted object")
    total = models.PositiveIntegerField(default=0, help_text="Number of rollouts")
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last heartbeat of the worker that runs it")

    class Meta(DeletionJob.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["collection"],
                condition=Q(state__in=["queued", "deleting"]),
                name="deletion_of_a_collection_once_at_a_time",
            ),
        ]
