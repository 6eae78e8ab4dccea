import hashlib
import json
from datetime import datetime
from typing import Any, get_args

import orjson
from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym.agent import StopReason
from apps.gym.errors import ErrorKind
from apps.gym.events import TraceUnion, decode_event
from apps.policies.models import PolicyModel
from apps.tasks.models import Dataset, DatasetVersion, Task

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
        ASKED = "asked", "somebody paused it"
        MAX_SECONDS = "max_seconds", "its time is used up"
        MAX_TOKENS = "max_tokens", "its tokens are used up"
        MAX_COST = "max_cost", "its budget is used up"

    name = models.CharField(max_length=200)
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
        help_text="Rollouts in flight at once, over all workers; empty: as its model and environment allow",
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
    is_being_deleted = models.BooleanField(default=False, help_text="A worker deletes it: nobody sees it any more")
    snapshot = models.JSONField(default=dict, help_text="The resolved agent, policy model and environment as planned")
    idempotency_key = models.CharField(max_length=128, null=True, blank=True, unique=True)
    plan_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of what was asked for with that key")
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
    cost = models.FloatField(default=0.0, help_text="USD of every attempt that ended, its judge included")

    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="collections"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last sign of life of its planning")
    started_at = models.DateTimeField(null=True, blank=True, help_text="When its first rollout was claimed")
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = CollectionQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=(Q(state="paused") & ~Q(pause_reason="")) | (~Q(state="paused") & Q(pause_reason="")),
                name="collection_paused_has_a_reason",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["planning", "running", "paused", "completed", "cancelled"])
                & Q(pause_reason__in=["", "asked", "max_seconds", "max_tokens", "max_cost"]),
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


class CollectionDeletion(models.Model):
    """A collection on its way out, with its rollouts and their traces; the row stays and says how that ended."""

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        DELETING = "deleting", "deleting"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    collection = models.ForeignKey(Collection, null=True, on_delete=models.SET_NULL, related_name="deletions")
    name = models.CharField(max_length=220, help_text="What was deleted, as people called it")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    total = models.PositiveIntegerField(default=0, help_text="Rollouts there were")
    deleted = models.PositiveIntegerField(default=0)
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last sign of life of whoever works at it")

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
    meters = models.JSONField(default=dict, help_text="Its counters since it began, as apps.rollouts.metering has them")
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


class RolloutQuerySet(models.QuerySet["Rollout"]):
    def completed(self) -> "RolloutQuerySet":
        return self.filter(status=Rollout.Status.COMPLETED)

    def rewarded(self) -> "RolloutQuerySet":
        return self.completed().filter(reward__isnull=False)

    def run_by(self, worker_id: int) -> "RolloutQuerySet":
        """What this worker runs now. The status lets the database use the index of leases."""
        return self.filter(status=Rollout.Status.RUNNING, lease=worker_id)


class Rollout(models.Model):
    """One attempt at one task. The rows are the queue: `queued` rows are claimed under a worker's lease."""

    class Status(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        COMPLETED = "completed", "completed"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="rollouts")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="rollouts")
    repeat = models.PositiveIntegerField(help_text="Which attempt at the task, from 0")
    seed = models.PositiveBigIntegerField(default=0)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Claims so far; with `lease`, the fence")
    failures = models.PositiveSmallIntegerField(default=0, help_text="Attempts that failed and counted")
    lost = models.PositiveSmallIntegerField(default=0, help_text="How often its worker was lost while it ran")
    # No database reference: a fence is compared, never followed, and the hot table keeps one index less.
    lease = models.BigIntegerField(null=True, blank=True, help_text="The worker that runs it")

    model_version = models.CharField(max_length=200, blank=True, help_text="The policy model's version it began with")
    reward = models.FloatField(null=True, blank=True)
    components = models.JSONField(default=dict, blank=True)
    stop_reason = models.CharField(max_length=32, blank=True)
    error_kind = models.CharField(max_length=32, blank=True)
    error_message = models.TextField(blank=True)
    turns = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    tool_errors = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    judge_calls = models.PositiveIntegerField(default=0, help_text="Questions to its judge model")
    judge_tokens = models.PositiveIntegerField(default=0, help_text="Read and written by its judge model")
    cost = models.FloatField(default=0.0, help_text="USD by the prices of its policy model and its judge")
    duration = models.FloatField(default=0.0, help_text="Seconds of the attempt that ended")
    model_time = models.FloatField(
        default=0.0, help_text="Seconds of it in calls of the policy model, retries included"
    )
    tool_time = models.FloatField(default=0.0, help_text="Seconds in tool calls; side by side, they add up to more")
    verify_time = models.FloatField(default=0.0, help_text="Seconds of verification, judges included")
    tools = models.JSONField(default=dict, blank=True, help_text="By name of the tool: calls, errors, seconds")
    answer = models.CharField(max_length=200, blank=True, help_text="What the attempt answered, made comparable")
    redactions = models.JSONField(
        default=dict, blank=True, help_text="Credentials that were taken out of its trace, by kind"
    )
    flagged = models.BooleanField(default=False, help_text="It had credentials, and nobody has looked at it since")
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RolloutQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["collection", "task", "repeat"], name="rollout_once"),
            models.CheckConstraint(
                condition=Q(reward__isnull=True) | Q(status="completed"),
                name="rollout_reward_means_completed",
            ),
            models.CheckConstraint(
                condition=(Q(status="failed") & ~Q(error_kind="")) | (~Q(status="failed") & Q(error_kind="")),
                name="rollout_failed_has_a_kind",
            ),
            models.CheckConstraint(
                condition=~Q(status="completed") | ~Q(stop_reason=""),
                name="rollout_completed_has_a_stop_reason",
            ),
            models.CheckConstraint(
                condition=Q(status="running", lease__isnull=False) | (~Q(status="running") & Q(lease__isnull=True)),
                name="rollout_running_has_a_lease",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["queued", "running", "completed", "failed", "cancelled"])
                & Q(error_kind__in=["", *get_args(ErrorKind)])
                & Q(stop_reason__in=["", *get_args(StopReason)]),
                name="rollout_status_is_known",
            ),
            models.CheckConstraint(
                condition=Q(reward__isnull=True) | Q(reward__gte=-LARGEST, reward__lte=LARGEST),
                name="rollout_reward_is_finite",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["completed", "failed"]) | Q(attempt__gte=1, finished_at__isnull=False),
                name="rollout_ended_was_attempted",
            ),
        ]
        indexes = [
            models.Index(fields=["collection", "lost", "id"], condition=Q(status="queued"), name="rollout_queue"),
            models.Index(fields=["lease"], condition=Q(status="running"), name="rollout_leases"),
            models.Index(fields=["collection"], condition=Q(flagged=True), name="rollout_flagged"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk} ({self.status})"

    @property
    def repeat_number(self) -> int:
        """Which attempt at its task, as people count: from 1. Programs get `repeat`, from 0."""
        return self.repeat + 1

    def trace(self, *, tokens: bool = False) -> list[TraceUnion]:
        """The decoded events of the latest attempt, in order; model calls have their packed tokens where asked."""
        columns = ("payload", "tokens") if tokens else ("payload",)
        rows = self.events.filter(attempt=self.attempt).order_by("seq").values_list(*columns)
        return [decode_event(*row) for row in rows]


class TraceEvent(models.Model):
    """One event of an attempt, appended while it runs. `payload` is the JSON of an apps.gym.events struct."""

    pk = models.CompositePrimaryKey("rollout_id", "attempt", "seq")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="events", db_index=False)
    attempt = models.PositiveSmallIntegerField()
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=32)
    payload = models.TextField()
    tokens = models.BinaryField(null=True, help_text="Token ids and logprobs of a model call, packed")

    class Meta:
        ordering = ["attempt", "seq"]

    def __str__(self) -> str:
        return f"{self.kind} #{self.seq}"

    @property
    def event(self) -> TraceUnion:
        return decode_event(self.payload)

    @property
    def fields(self) -> dict[str, Any]:
        parsed: dict[str, Any] = orjson.loads(self.payload)
        return parsed


class Reverification(models.Model):
    """Rollouts of a collection verified again from their traces, without inference; applied only when somebody asks."""

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
    forced = models.BooleanField(default=False, help_text="Although its verifier may need the state of the attempt")
    replays = models.BooleanField(default=False, help_text="The recorded tool calls are made again in a new session")
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Claims so far: the fence against a lost worker")
    total = models.PositiveIntegerField(default=0)
    verified = models.PositiveIntegerField(default=0, help_text="Rollouts that have a new reward")
    changed = models.PositiveIntegerField(default=0, help_text="Of them, those whose reward or components are others")
    failed = models.PositiveIntegerField(default=0, help_text="Rollouts whose verification failed")
    applied = models.PositiveIntegerField(default=0)
    stale = models.PositiveIntegerField(default=0, help_text="Changed by others meanwhile, so left as they are")
    cost = models.FloatField(default=0.0, help_text="USD of the judge's calls")
    message = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="reverifications"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(default=timezone.now, help_text="Last sign of life of whoever works at it")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"reverification #{self.pk} of {self.collection.label}"

    @property
    def done(self) -> int:
        return self.verified + self.failed

    @property
    def is_settled(self) -> bool:
        """Nothing happens to it unless somebody asks."""
        return self.state not in {self.State.QUEUED, self.State.VERIFYING, self.State.APPLYING}


class ReverifiedReward(models.Model):
    """Old and new reward of one rollout; kept as its history. Either the new one is there, or why it is not."""

    class Fate(models.TextChoices):
        APPLIED = "applied", "applied"
        STALE = "stale", "the rollout was changed meanwhile"

    reverification = models.ForeignKey(Reverification, on_delete=models.CASCADE, related_name="rewards")
    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="reverified_rewards")
    attempt = models.PositiveSmallIntegerField(help_text="The rollout's attempt that was verified again")
    old_status = models.CharField(max_length=16, choices=Rollout.Status.choices)
    old_reward = models.FloatField(null=True, blank=True)
    old_components = models.JSONField(default=dict, blank=True)
    new_reward = models.FloatField(null=True, blank=True)
    new_components = models.JSONField(default=dict, blank=True)
    difference = models.FloatField(null=True, blank=True, help_text="New − old, where both are there")
    changed = models.BooleanField(default=False)
    fate = models.CharField(max_length=16, choices=Fate.choices, blank=True, help_text="Empty until it is applied")
    stop_reason = models.CharField(max_length=32, blank=True)
    answer = models.CharField(max_length=200, blank=True, help_text="What the attempt answered, made comparable")
    # Text, as in the trace: what a model wrote may hold a zero byte, which no JSON column of PostgreSQL takes.
    events = models.TextField(blank=True, help_text="Appended to the trace, one event a line: judge calls, verdict")
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
